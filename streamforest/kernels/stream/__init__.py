"""Kernels of the stream forest: trees over a ring buffer of recent rows."""
