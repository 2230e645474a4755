"""A look at the first rows of a stream: which columns say nothing, or are different in every row.

A column with one value only, a counter and an id cannot help to predict, and an id can mislead. They are
named in a warning, once; what to do about it is the user's to say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from streamforest.jsonable import count, rows
from streamforest.text import shown

ROWS = 1_000
"""Rows that are looked at."""
_MIN_VALUES = 500  # fewer say nothing about a column
_BITS = 4_096
_MAX_COLUMNS = 2_000
_NEARLY_ALL = 0.9


class Profile:
    """Counts of the first values of each column, in a few bytes each."""

    def __init__(self) -> None:
        self._seen: dict[str, list[Any]] = {}
        """By column: values, whether all are equal, whether each is one more than the last, the last one as
        text, and a bit for each checksum of a text."""

    def note(self, name: Any, value: Any) -> None:
        """Count a value that is not missing."""
        entry = self._seen.get(name)
        if entry is None:
            if len(self._seen) >= _MAX_COLUMNS or type(name) is not str:
                return
            entry = self._seen[name] = [0, True, True, "", 0]
        told = value if isinstance(value, str) else repr(value)
        told = told[:200]
        if entry[0]:
            entry[1] = entry[1] and told == entry[3]
            entry[2] = entry[2] and _is_next(entry[3], told)
        entry[0] += 1
        entry[3] = told
        if isinstance(value, str):
            entry[4] |= 1 << (crc32(told.encode(errors="backslashreplace")) % _BITS)

    def findings(self, kinds: Mapping[Any, str]) -> list[str]:
        """What is to be told, a line for each kind of finding."""
        constant, counters, ids = [], [], []
        for name, (values, equal, counts, _, bits) in self._seen.items():
            if values < _MIN_VALUES or kinds.get(name) in (None, "ignored"):
                continue
            if equal:
                constant.append(name)
            elif counts:
                counters.append(name)
            elif kinds[name] == "category" and _distinct(bits) >= _NEARLY_ALL * values:
                ids.append(name)
        told = []
        for names, what in (
            (constant, "has the same value in every row"),
            (counters, "counts the rows"),
            (ids, "is different in nearly every row, as an id is"),
        ):
            if names:
                listed = ", ".join(shown(name) for name in names[:10])
                more = f" and {len(names) - 10} more" if len(names) > 10 else ""
                told.append(
                    f"in the first {ROWS:,} rows {listed}{more} {what}, and cannot help to predict; "
                    f"to leave it out: features.ignore = [{listed.replace(chr(39), chr(34))}]"
                )
        return told

    # ---- snapshots

    def state(self) -> list[Any]:
        """Plain data."""
        return [[name, *entry[:4], f"{entry[4]:x}"] for name, entry in self._seen.items()]

    @classmethod
    def from_state(cls, state: Any) -> Profile:
        """What `state()` described; ValueError if it describes nothing."""
        profile = cls()
        for name, values, equal, counts, last, bits in rows(state, "profile", 6):
            if type(name) is not str or type(last) is not str or len(profile._seen) >= _MAX_COLUMNS:
                raise ValueError("the profile of the first rows is damaged")
            mask = int(bits, 16)
            if not 0 <= mask < 1 << _BITS:
                raise ValueError("the profile of the first rows is damaged")
            profile._seen[name] = [count(values, "values"), bool(equal), bool(counts), last, mask]
        return profile


def _is_next(before: str, now: str) -> bool:
    """Whether a whole number follows another.

    >>> _is_next("7.0", "8.0"), _is_next("7", "9"), _is_next("a", "b")
    (True, False, False)
    """
    try:
        return float(now) == float(before) + 1 and float(now).is_integer()
    except ValueError:
        return False


def _distinct(bits: int) -> float:
    """About how many different texts have set these bits."""
    free = _BITS - bits.bit_count()
    return -_BITS * math.log(max(1, free) / _BITS)
