"""What single values amount to: names as they are kept, what is missing, what is no number."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from streamforest.errors import FeatureError
from streamforest.text import KEPT, kept_bytes, shown

Name = str | int | bool | float | tuple[str | int | bool | float, ...]
MOST_BITS = 2_000
"""Of an int as a label or a name: what Python writes and reads again whatever its limit of digits."""
TIMES = (np.datetime64, np.timedelta64)
"""Scalars of NumPy's that give a bare number when asked for a Python value."""
_NO_NUMBERS = (bytes, bytearray, complex, *TIMES)


def plain_name(name: Any) -> Name:
    """A feature's name as a plain value that can be sorted and saved: a scalar, or a tuple of them."""
    if isinstance(name, tuple) and name:
        return tuple(map(_plain_scalar, name))
    return _plain_scalar(name)


def name_order(name: Name) -> Any:
    """What new names are sorted by: type name, then value. Parts of tuples may be of any types."""
    if isinstance(name, tuple):
        return "tuple", [(type(part).__name__, part) for part in name]
    return type(name).__name__, name


def kept_name_bytes(name: Name) -> int:
    """The bytes that a name counts against a limit."""
    if isinstance(name, tuple):
        return KEPT + sum(map(kept_bytes, name))
    return kept_bytes(name)


def _plain_scalar(name: Any) -> str | int | bool | float:
    if isinstance(name, np.generic) and not isinstance(name, TIMES):
        name = name.item()
    if type(name) in (str, bool):
        return name  # type: ignore[no-any-return]
    if isinstance(name, str):
        return str.__str__(name)
    if isinstance(name, int) and name.bit_length() <= MOST_BITS:
        return int(name)
    if isinstance(name, float) and math.isfinite(name):
        return float(name)
    raise FeatureError(
        f"feature name {shown(name)} ({type(name).__name__}) cannot be kept: use a str, a number "
        f"(an int of at most {MOST_BITS:,} bits) or a tuple of them"
    )


def is_missing(value: Any) -> bool:
    """Whether there is no value: None, or what pandas writes in its place."""
    return value is None or value is pd.NA or value is pd.NaT


def as_float(value: Any) -> float:
    """A number of any kind as a float64; ValueError, TypeError or ArithmeticError for all else.

    >>> as_float(Decimal("sNaN")), as_float(np.float16(0.5))
    (nan, 0.5)
    """
    if isinstance(value, _NO_NUMBERS) or getattr(value, "ndim", 0) != 0:
        raise TypeError
    if isinstance(value, Decimal) and value.is_snan():
        return math.nan  # as any other NaN, which it refuses to become
    return float(value)
