"""Where events come from and where predictions go."""
