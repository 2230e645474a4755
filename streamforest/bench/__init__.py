"""Benchmarks: a module per comparison or per figure of a paper, and the models held against."""
