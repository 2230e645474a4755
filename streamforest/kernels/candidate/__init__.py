"""Kernels of the consistent and the online forest: trees that grow from candidate splits."""
