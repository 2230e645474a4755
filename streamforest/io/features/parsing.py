"""What a single value is: missing, a number, true or false, a time."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Any

from streamforest.io.features import dates

ABSENT = frozenset(
    (
        "",
        "na",
        "n/a",
        "#n/a",
        "<na>",
        "nan",
        "-nan",
        "null",
        "none",
        "nil",
        "nat",
        "?",
        "-",
        "--",
        ".",
    )
)
"""What a missing number, date or boolean is written as, in lower case."""
DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_CODE = re.compile(r"0\d+")  # 007 is a name
TRUE, FALSE = frozenset(("true", "yes", "t")), frozenset(("false", "no", "f"))


def is_decimal(value: str) -> bool:
    """Whether a text is a number, and not a code such as 007.

    >>> [is_decimal(one) for one in ("3.50", "-1e3", "007", "0.5", "1_000", "inf", "3 kg")]
    [True, True, False, True, False, False, False]
    """
    value = value.strip()
    return DECIMAL.fullmatch(value) is not None and _CODE.fullmatch(value) is None


def is_bool(value: str) -> bool:
    """Whether a text is true or false."""
    return value.strip().lower() in ("true", "false")


def is_absent(value: Any) -> bool:
    """Whether a value says that there is none: NA, null, an empty text.

    >>> is_absent(" n/a "), is_absent("no"), is_absent(None)
    (True, False, True)
    """
    if isinstance(value, str):
        return len(value) < 8 and value.strip().lower() in ABSENT
    return value is None or (isinstance(value, float) and value != value) or _is_nat(value)


def _is_nat(value: Any) -> bool:
    """Whether it is pandas' missing time, which is a date by its class."""
    return isinstance(value, date) and value != value


def time_of(value: Any) -> tuple[int, bool] | None:
    """The time in a value of a date column, and whether it has a time of day; None if it has none."""
    if isinstance(value, str):
        at = dates.parse(value)
        if at is None and is_decimal(value):
            at = dates.of_number(Decimal(value.strip()))
        return at
    if isinstance(value, date):
        return None if value != value else dates.of_datetime(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return dates.of_number(value)
    return None
