"""Coarse and fine labels: the tables of Ristin 2015, and what coarse rows are worth to all forests."""
