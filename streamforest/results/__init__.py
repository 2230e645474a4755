"""The predictions of a run as a data frame, and a report of them.

>>> import streamforest.results
>>> frame = streamforest.results.read("runs/digits")  # doctest: +SKIP
>>> frame.loc[frame.truth.notna(), "correct"].mean()  # doctest: +SKIP
0.983
"""

from __future__ import annotations

from streamforest.results.reading import read as read

__all__ = ["read"]
