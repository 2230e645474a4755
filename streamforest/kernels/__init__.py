"""Compiled functions over arrays: no Python objects, no input or output.

A forest is a handful of arrays (`tree.Trees`); one kernel per kind of forest moves its trees through
a batch of rows, in order and deterministically. `kernel` is the one decorator all of them carry.
"""
