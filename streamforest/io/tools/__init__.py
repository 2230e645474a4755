"""Commands that work on topics: replay of recorded sets, dead letters."""
