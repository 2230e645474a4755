"""The stream forest and the NCM forest as one model."""
