"""What `advance` is asked to do with a row."""

from __future__ import annotations

PREDICT, LEARN, BOTH = 1, 2, 3
"""Bits: a row with both is predicted first and learned then."""
