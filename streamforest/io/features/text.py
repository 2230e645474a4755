"""Text as numbers: how often its words occur, in a fixed number of columns.

A word's column is a checksum of it, so no table of words has to be kept, and the same word has the same
column in every process and for ever.
"""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

COLUMNS = 64
"""Columns of one text; words that share a column are counted together."""
MIN_WORDS = 4
"""A text whose first value has fewer words is a category."""
_WORD = re.compile(r"\w+")


def is_text(value: str) -> bool:
    """Whether a value is a sentence rather than a name.

    >>> is_text("the parcel came late"), is_text("New York")
    (True, False)
    """
    return len(value.split(None, MIN_WORDS)) >= MIN_WORDS


def names_of(name: str) -> tuple[str, ...]:
    """The columns that a text becomes."""
    return tuple(f"{name}.{i}" for i in range(COLUMNS))


def counts_of(value: Any) -> list[float]:
    """How often the words of a text, or of a list of texts, occur.

    >>> counts = counts_of("Late, late parcel")
    >>> sorted(counts)[-2:], counts == counts_of(["late parcel", "LATE"])
    ([1.0, 2.0], True)
    """
    counts = [0.0] * COLUMNS
    texts = value if isinstance(value, list) else (value,)
    for text in texts:
        for word in _WORD.findall(str(text).lower()):
            counts[crc32(word.encode(errors="backslashreplace")) % COLUMNS] += 1.0
    return counts
