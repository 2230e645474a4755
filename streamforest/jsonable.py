"""Strict checks of values read from JSON: a file may have been tampered with.

Each check returns the value, or raises ValueError with what is wrong.
"""

from __future__ import annotations

import math
from typing import Any

LARGEST = (1 << 53) - 1
"""No stream reaches a larger count, and a float could not hold it exactly."""
LARGEST_OFFSET = (1 << 63) - 1
"""The largest offset of a record, and the largest time in milliseconds."""


def count(value: Any, what: str, limit: int = LARGEST) -> int:
    """A whole number from 0 to `limit`; `what` names it in the error.

    >>> count(3, "events")
    3
    >>> count(True, "events")
    Traceback (most recent call last):
    ...
    ValueError: events is True, expected a whole number from 0 to 9007199254740991
    """
    if type(value) is not int or not 0 <= value <= limit:
        raise ValueError(f"{what} is {_short(value)}, expected a whole number from 0 to {limit}")
    return value


def time_of(value: Any, what: str) -> int:
    """A time in milliseconds since 1970, negative before that."""
    if type(value) is not int or abs(value) > LARGEST_OFFSET:
        raise ValueError(f"{what} is {_short(value)}, expected a time in milliseconds")
    return value


def scalar(value: Any, what: str) -> str | int | float:
    """A text, a finite number or a boolean, as a label or an id may be."""
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"{what} is {_short(value)}, expected a text or a finite number")


def rows(value: Any, what: str, width: int | None = None) -> list[Any]:
    """A list; with a `width`, one of lists that have so many items each."""
    if type(value) is not list:
        raise ValueError(f"{what} is a {type(value).__name__}, expected a list")
    if width is not None and any(type(row) is not list or len(row) != width for row in value):
        raise ValueError(f"{what}: expected lists of {width}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
