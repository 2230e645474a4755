"""Text from strangers, made fit to be seen.

Labels, ids, feature names, keys and headers come from whoever can write to a topic. In a terminal, a log,
a metric or an error they are only ever text: control characters, escape sequences, line breaks, bidi
overrides, zero-width characters and lone surrogates are shown as escapes, and the length is bounded.
Everything that leaves the process for human eyes passes through here. So does what is kept of them: how
much it counts against a bound in bytes.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii
from typing import Any

MOST = 1_000
"""Characters of one piece of text that are shown, unless a place has room for fewer."""


def printable(text: str, most: int = MOST) -> str:
    r"""One line of harmless characters: what cannot be printed as it is becomes an escape.

    >>> printable("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    >>> printable("user\u202egpj.exe"), printable("\ud800"), printable("naïve 漢字 🙂")
    ('user\\u202egpj.exe', '\\ud800', 'naïve 漢字 🙂')
    >>> printable("x" * 9, most=4)
    'xxxx…'
    """
    cut = text[:most]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)
    return cut if len(text) <= most else cut + "…"


def printable_lines(text: str, most: int = 20_000) -> str:
    r"""The same for text of our own that has several lines.

    >>> printable_lines("two problems\n  one\x07\n  another")
    'two problems\n  one\\x07\n  another'
    """
    return "\n".join(printable(line, most) for line in text.split("\n"))


def shown(value: Any, most: int = 80) -> str:
    r"""A value as Python writes it, of bounded length; `repr` alone would write a megabyte.

    >>> shown("a\nb"), shown(7), shown("z" * 100, most=5)
    ("'a\\nb'", '7', "'zzzz…")
    """
    if isinstance(value, str | bytes) and len(value) > most:
        value = value[:most]  # before it is written out, not after
    try:
        text = repr(value)
    except Exception:  # an int of thousands of digits, or an object of a stranger's making
        text = f"<{type(value).__name__} that cannot be written out>"
    return printable(text, most)


KEPT = 128
"""Bytes that a text takes beside its characters: the object, its place in a table, its number."""


def kept_bytes(value: str | float) -> int:
    r"""What a name, a category, a label or an id counts: its length in a snapshot, and `KEPT`.

    In a snapshot other characters than ASCII are escapes, which is never less than they take in memory.

    >>> kept_bytes("red") - KEPT, kept_bytes("\x00é") - KEPT, kept_bytes(1.5) - KEPT
    (5, 14, 24)
    """
    if isinstance(value, str):
        return len(encode_basestring_ascii(value)) + KEPT
    if isinstance(value, int):
        return value.bit_length() // 3 + 2 + KEPT
    return 24 + KEPT
