"""A look at the first rows of a stream: which columns say nothing, or are different in every row.

A column with one value only, a counter and an id cannot help to predict, and an id can mislead. They are
named in a warning, once; what to do about it is the user's to say.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from streamforest.jsonable import count, rows
from streamforest.text import printable, shown

ROWS = 1_000
"""Rows that are looked at."""
_MIN_VALUES = 500  # fewer say nothing about a column
_BITS = 4_096
_MAX_COLUMNS = 2_000
_MAX_TEXT = 200
_MAX_LISTED = 10
_NEARLY_ALL = 0.9


@dataclass
class Seen:
    """What is known of the first values of a column, in a few bytes."""

    values: int = 0
    constant: bool = True
    counts: bool = True
    """Whether each value is one more than the last."""
    last: str = ""
    bits: int = 0
    """A bit for each checksum of a text: about as many as there are different ones."""

    def note(self, value: Any) -> None:
        """Count a value that is not missing."""
        text = (value if isinstance(value, str) else repr(value))[:_MAX_TEXT]
        if self.values:
            self.constant = self.constant and text == self.last
            self.counts = self.counts and _is_next(self.last, text)
        self.values += 1
        self.last = text
        if isinstance(value, str):
            self.bits |= 1 << (crc32(text.encode(errors="backslashreplace")) % _BITS)


class Profile:
    """The first values of each column."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def note(self, name: Any, value: Any) -> None:
        """Count a value that is not missing."""
        seen = self._seen.get(name)
        if seen is None:
            if len(self._seen) >= _MAX_COLUMNS or type(name) is not str:
                return
            seen = self._seen[name] = Seen()
        seen.note(value)

    def warnings(self, kinds: Mapping[Any, str]) -> list[str]:
        """A line for each way in which columns cannot help."""
        constant, counters, ids = [], [], []
        for name, seen in self._seen.items():
            if seen.values < _MIN_VALUES or kinds.get(name) in (None, "ignored"):
                continue
            if seen.constant:
                constant.append(name)
            elif seen.counts:
                counters.append(name)
            elif kinds[name] == "category" and _distinct(seen.bits) >= _NEARLY_ALL * seen.values:
                ids.append(name)
        return [
            _warning(names, what)
            for names, what in (
                (constant, ("has", "have", "the same value in every row")),
                (counters, ("counts", "count", "the rows")),
                (ids, ("is", "are", "different in nearly every row, as an id is")),
            )
            if names
        ]

    # ---- snapshots

    def state(self) -> list[Any]:
        """Plain data."""
        return [
            [name, seen.values, seen.constant, seen.counts, seen.last, f"{seen.bits:x}"]
            for name, seen in self._seen.items()
        ]

    @classmethod
    def from_state(cls, state: Any) -> Profile:
        """What `state()` described; ValueError if it describes nothing."""
        profile = cls()
        for name, values, constant, counts, last, bits in rows(state, "profile", 6):
            mask = int(bits, 16)
            if (
                type(name) is not str
                or type(last) is not str
                or len(last) > _MAX_TEXT
                or len(profile._seen) >= _MAX_COLUMNS
                or not 0 <= mask < 1 << _BITS
            ):
                raise ValueError("the profile of the first rows is damaged")
            seen = Seen(count(values, "values"), bool(constant), bool(counts), last, mask)
            profile._seen[name] = seen
        return profile


def _warning(names: list[str], what: tuple[str, str, str]) -> str:
    one, many, rest = what
    several = len(names) > 1
    listed = ", ".join(shown(name) for name in names[:_MAX_LISTED])
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    quoted = json.dumps(names[:_MAX_LISTED])
    return (
        f"in the first {ROWS:,} rows {listed}{more} {many if several else one} {rest}, and cannot help to "
        f"predict; to leave {'them' if several else 'it'} out: features.ignore = {printable(quoted)}"
    )


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
