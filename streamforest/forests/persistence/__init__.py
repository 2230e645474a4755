"""Snapshot files of forests and River pipelines."""
