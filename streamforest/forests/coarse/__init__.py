"""Coarse and fine labels: a taxonomy, two levels for every forest, and classes estimated for coarse rows."""
