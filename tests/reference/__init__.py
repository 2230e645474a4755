"""Slow, plain re-tellings of the algorithms, to hold the kernels against."""
