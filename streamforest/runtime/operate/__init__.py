"""What operators ask of a pipeline: adopt, promote, what-if, inspect."""
