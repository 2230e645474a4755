"""Measures how deeply a message is nested and how many items it has, without decoding it.

The codec skips unknown fields, however deep they are, until the interpreter's stack overflows; and how much
of the stack is in use differs between a run and its recovery. Our own limit, far below that, makes the same
decision each time. So does the limit on items, which are the values of arrays and objects and the names in
objects: each of them costs memory and time, also in an unknown field.

Everything here takes time linear in the message, with a small factor.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _without_escapes(raw: bytes) -> bytes:
    """The JSON without escapes, so that every quote begins or ends a string.

    Every backslash belongs to what comes after it, so pairs of them go first, then escaped quotes.
    """
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw


def _without_strings(raw: bytes) -> bytes:
    """The same with 0 in place of each string; an unterminated string takes all that follows."""
    return b"0".join(raw.split(b'"')[::2])


def json_is_deeper(raw: bytes, limit: int) -> bool:
    r"""Whether brackets are nested in more than `limit` levels, not counting those in strings.

    Only brackets are kept, and pairs are removed from the inside, a level at a time: a megabyte of
    them takes milliseconds.

    >>> json_is_deeper(b'{"x": [1, {"a": "[[["}]}', 3), json_is_deeper(b'{"x": [1, {"a": 2}]}', 2)
    (False, True)
    >>> json_is_deeper(b'{"a\\"[[[[": 1}', 1), json_is_deeper(b'"' + b'\\"[' * 9, 2)
    (False, False)
    """
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False  # nearly every event has fewer brackets than that
    left = _without_strings(_without_escapes(raw)).translate(_ONE_KIND, _NOT_BRACKETS)
    for _ in range(limit):
        if b"[]" not in left:
            break
        left = left.replace(b"[]", b"")
    return b"[]" in left or left.count(b"[") > limit


def json_holds_more(raw: bytes, limit: int) -> bool:
    """Whether arrays and objects hold more than `limit` items in all.

    >>> json_holds_more(b'{"x": [1, {"a": "3:4"}, []]}', 7), json_holds_more(b'{"x": [1, 2]}', 3)
    (False, True)
    """
    quotes = raw.count(b'"')
    around = raw.count(b",") + raw.count(b":") + raw.count(b"[") + raw.count(b"{")
    if around <= limit and quotes <= 2 * limit:
        return False
    raw = _without_escapes(raw)
    if raw.count(b'"') > 2 * (limit + 1):
        return True  # each string is an item, except one that is the whole message
    # a container that holds k values has k - 1 commas, and k colons if they have names
    left = _without_strings(raw).translate(None, b" \t\r\n")
    containers = left.count(b"[") + left.count(b"{") - left.count(b"[]") - left.count(b"{}")
    return left.count(b",") + left.count(b":") + containers > limit


_FIELDS = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Byte strings, ext types (which have one more byte) and texts: how many bytes the length takes."""
_COUNTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Arrays and maps: how many bytes the count takes, and how many items each entry is."""


def _steps() -> list[int]:
    """By the first byte: the bytes that an item takes, or 0 if the first byte does not say."""
    sizes = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
    sizes |= {0xCA: 5, 0xCB: 9, 0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18}
    sizes |= {lead: 1 + (lead & 0x1F) for lead in range(0xA0, 0xC0)}  # short texts
    sizes |= dict.fromkeys([*_LENGTHS, *_COUNTS], 0)
    return [sizes.get(lead, 1) for lead in range(256)]


_STEPS = _steps()
_WIDTHS = [_LENGTHS.get(lead, 0) for lead in range(256)]
_FIRSTS = [1 + _WIDTHS[lead] + (0xC7 <= lead <= 0xC9) for lead in range(256)]
"""By the first byte: how many bytes come before the content."""
_FEW = [
    2 * (lead & 0x0F) if 0x80 <= lead <= 0x8F else lead & 0x0F if 0x90 <= lead <= 0x9F else -1
    for lead in range(256)
]
"""By the first byte: how many items a small array or map has (a name is an item), else -1."""


def msgpack_is_deeper(raw: bytes, limit: int, known: Container[str] = ()) -> bool:
    """Whether arrays and maps are nested in more than `limit` levels. A truncated message is not.

    Fields in `known` have a type, and the decoder refuses what is deeper than that: they are skipped,
    which is most of an event.

    >>> msgpack_is_deeper(b"\\x91" * 5, 5), msgpack_is_deeper(b"\\x91" * 6, 5)
    (False, True)
    >>> event = msgspec.msgpack.encode({"x": {"a": 1.5}, "trace": [[1]]})
    >>> msgpack_is_deeper(event, 3, {"x"}), msgpack_is_deeper(event, 2, {"x"})
    (False, True)
    """
    try:
        fields = _FIELDS(raw) if known else {}
    except (ValueError, RecursionError):  # a DecodeError, or a name that is not UTF-8
        fields = {}
    if fields and len(fields) == _head(raw, 0)[1] // 2:  # otherwise a name occurs twice
        return any(
            _is_deeper(bytes(value), limit - 1)
            for name, value in fields.items()
            if name not in known
        )
    return _is_deeper(raw, limit)


def _is_deeper(raw: bytes, limit: int) -> bool:
    steps, few, widths, firsts, from_bytes = _STEPS, _FEW, _WIDTHS, _FIRSTS, int.from_bytes
    position, left = 0, 1
    around: list[int] = []  # for each enclosing container: how many items are left in it
    try:
        while True:
            while left:
                left -= 1
                lead = raw[position]
                step, items = steps[lead], few[lead]
                if not step:
                    width = widths[lead]
                    if width:  # here, not in `_head`: a call for each would take as long again
                        step = firsts[lead] + from_bytes(raw[position + 1 : position + 1 + width])
                    else:
                        step, items = _head(raw, position)
                position += step
                if items >= 0:
                    if len(around) >= limit:
                        return True
                    around.append(left)
                    left = items
            if not around:
                return False
            left = around.pop()
    except IndexError:
        return False


def msgpack_holds_more(raw: bytes, limit: int) -> bool:
    """Whether arrays and maps hold, or claim to hold, more than `limit` items in all.

    >>> raw = msgspec.msgpack.encode({"x": [1, {"a": "3,4"}, []]})
    >>> msgpack_holds_more(raw, 7), msgpack_holds_more(raw, 6)
    (False, True)
    """
    steps, few, widths, firsts, from_bytes = _STEPS, _FEW, _WIDTHS, _FIRSTS, int.from_bytes
    position, left, seen = 0, 1, 0
    try:
        while left:
            left -= 1
            lead = raw[position]
            step, items = steps[lead], few[lead]
            if not step:
                width = widths[lead]
                if width:
                    step = firsts[lead] + from_bytes(raw[position + 1 : position + 1 + width])
                else:
                    step, items = _head(raw, position)
            position += step
            if items > 0:
                left += items
                seen += items
                if seen > limit:
                    return True
    except IndexError:  # a truncated message
        pass
    return False


def _head(raw: bytes, position: int) -> tuple[int, int]:
    """Bytes to the next item, and how many items the container at this position has."""
    lead = raw[position]
    if lead not in _COUNTS:
        return _STEPS[lead], _FEW[lead]
    width, each = _COUNTS[lead]
    if position + 1 + width > len(raw):
        raise IndexError("truncated")
    return 1 + width, each * int.from_bytes(raw[position + 1 : position + 1 + width])
