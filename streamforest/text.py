"""Makes untrusted text safe to show, and counts the memory it takes.

Labels, ids, feature names, keys and headers come from whoever can write to a topic. Before one of them is
shown in a terminal, a log, a metric or an error, control characters, escape sequences, line breaks, bidi
overrides, zero-width characters and lone surrogates become escapes, and its length is bounded.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

MAX_SHOWN = 1_000
"""Characters of one text that are shown, unless the caller has room for fewer."""


def printable(text: str, limit: int = MAX_SHOWN) -> str:
    r"""The text as one line, with an escape for each character that is not printable.

    >>> printable("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    >>> printable("user\u202egpj.exe"), printable("\ud800"), printable("naïve 漢字 🙂")
    ('user\\u202egpj.exe', '\\ud800', 'naïve 漢字 🙂')
    >>> printable("x" * 9, limit=4)
    'xxxx…'
    """
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)
    return cut if len(text) <= limit else cut + "…"


def printable_lines(text: str, limit: int = 20_000) -> str:
    r"""The same for a text of several lines, whose line breaks stay.

    >>> printable_lines("two problems\n  one\x07\n  another")
    'two problems\n  one\\x07\n  another'
    """
    return "\n".join(printable(line, limit) for line in text.split("\n"))


def shown(value: Any, limit: int = 80) -> str:
    r"""The `repr` of a value, printable and of bounded length.

    >>> shown("a\nb"), shown(7), shown("z" * 100, limit=5)
    ("'a\\nb'", '7', "'zzzz…")
    """
    if isinstance(value, str | bytes) and len(value) > limit:
        value = value[:limit]  # before `repr`, which could take a megabyte
    try:
        text = repr(value)
    except Exception:  # an int of thousands of digits, or an object of any class
        text = f"<{type(value).__name__} that cannot be shown>"
    return printable(text, limit)


_MAX_NAME = 200  # characters of a wrong name that are compared


def nearest(name: str, valid: Sequence[str]) -> str:
    """The remedy for a wrong name: the closest valid one, else all of them.

    >>> nearest("n_tres", ["n_trees", "seed"]), nearest("trees", ["n_trees", "seed"])
    ('did you mean n_trees?', 'did you mean n_trees?')
    >>> nearest("colour", ["n_trees", "seed"])
    'valid are n_trees, seed'
    """
    return guess(name, valid) or f"valid are {', '.join(valid)}"


def guess(name: str, valid: Sequence[str]) -> str:
    """The closest of the valid names, as a question; empty if none is close.

    >>> guess("clas", ["weight", "class"]), guess("clas", ["weight"])
    ('did you mean class?', '')
    """
    close = difflib.get_close_matches(name[:_MAX_NAME], valid, n=1)
    close += [one for one in valid if len(name) > 3 and name in one]
    return f"did you mean {printable(close[0])}?" if close else ""


KEPT = 128
"""Bytes that a text takes besides its characters: the object, its entry in a table, its number."""


def kept_bytes(value: str | float) -> int:
    r"""The bytes that a name, a category, a label or an id counts against a limit: its length as ASCII
    JSON, and `KEPT`.

    In ASCII JSON other characters are escapes, which never take less than the characters do in memory.

    >>> kept_bytes("red") - KEPT, kept_bytes("\x00é") - KEPT, kept_bytes(1.5) - KEPT
    (5, 14, 24)
    """
    if isinstance(value, str):
        return len(encode_basestring_ascii(value)) + KEPT
    if isinstance(value, int):
        return value.bit_length() // 3 + 2 + KEPT
    return 24 + KEPT
