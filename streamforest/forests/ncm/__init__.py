"""The class-incremental NCM forest."""
