"""Recorded input: data sets and files."""
