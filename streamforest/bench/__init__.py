"""Benchmarks: comparisons of models, the pipeline on a real broker, and the papers' figures."""
