"""Measures of a running model: what it got right, for which classes, and how long it took."""
