"""The stream forest."""
