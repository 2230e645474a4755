"""How deeply a message is nested and how many items it has, counted without decoding it.

Fields that an event does not have are skipped by the codec, however deep they are, until the interpreter's
stack gives out; and how much of the stack is in use differs between a run and its recovery. A limit of our
own, far below, makes the same decision each time. So does one on the number of items, which are the values
of arrays and objects and the names in objects: each costs its share, wherever it stands.

Everything here takes time linear in the message, with a small factor.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _without_escapes(raw: bytes) -> bytes:
    """JSON whose quotes all begin or end a string.

    Every backslash belongs to what comes after it, so pairs of them go first, then escaped quotes.
    """
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw


def _without_strings(raw: bytes) -> bytes:
    """The same with 0 in place of each string; one that never ends takes all that follows."""
    return b"0".join(raw.split(b'"')[::2])


def json_is_deeper(raw: bytes, most: int) -> bool:
    r"""Whether brackets stand in more than `most` levels, those within strings left aside.

    Only brackets are kept, and pairs are taken out from the inside, a level at a time: a megabyte of
    them takes milliseconds.

    >>> json_is_deeper(b'{"x": [1, {"a": "[[["}]}', 3), json_is_deeper(b'{"x": [1, {"a": 2}]}', 2)
    (False, True)
    >>> json_is_deeper(b'{"a\\"[[[[": 1}', 1), json_is_deeper(b'"' + b'\\"[' * 9, 2)
    (False, False)
    """
    if raw.count(b"[") + raw.count(b"{") <= most:
        return False  # nearly every event: there are not even so many
    left = _without_strings(_without_escapes(raw)).translate(_ONE_KIND, _NOT_BRACKETS)
    for _ in range(most):
        if b"[]" not in left:
            break
        left = left.replace(b"[]", b"")
    return b"[]" in left or left.count(b"[") > most


def json_holds_more(raw: bytes, most: int) -> bool:
    """Whether arrays and objects hold more than `most` items, all together.

    >>> json_holds_more(b'{"x": [1, {"a": "3:4"}, []]}', 7), json_holds_more(b'{"x": [1, 2]}', 3)
    (False, True)
    """
    quotes = raw.count(b'"')
    around = raw.count(b",") + raw.count(b":") + raw.count(b"[") + raw.count(b"{")
    if around <= most and quotes <= 2 * most:
        return False
    raw = _without_escapes(raw)
    if raw.count(b'"') > 2 * (most + 1):
        return True  # each string is an item, but for one that is all there is
    # a container that holds k values has k - 1 commas, and k colons if they have names
    left = _without_strings(raw).translate(None, b" \t\r\n")
    containers = left.count(b"[") + left.count(b"{") - left.count(b"[]") - left.count(b"{}")
    return left.count(b",") + left.count(b":") + containers > most


_FIELDS = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes, ext types (which have one more byte) and texts: how many bytes tell the length."""
_COUNTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Arrays and maps: how many bytes tell the count, and how many items there are for each."""


def _steps() -> list[int]:
    """By the first byte: how many an item takes whose size that tells, else 0."""
    sizes = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
    sizes |= {0xCA: 5, 0xCB: 9, 0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18}
    sizes |= {lead: 1 + (lead & 0x1F) for lead in range(0xA0, 0xC0)}  # short texts
    sizes |= dict.fromkeys([*_LENGTHS, *_COUNTS], 0)
    return [sizes.get(lead, 1) for lead in range(256)]


_STEPS = _steps()
_WIDTHS = [_LENGTHS.get(lead, 0) for lead in range(256)]
_FIRSTS = [1 + _WIDTHS[lead] + (0xC7 <= lead <= 0xC9) for lead in range(256)]
"""By the first byte: how many stand before the content."""
_FEW = [
    2 * (lead & 0x0F) if 0x80 <= lead <= 0x8F else lead & 0x0F if 0x90 <= lead <= 0x9F else -1
    for lead in range(256)
]
"""By the first byte: how many items a small array or map has (a name is one too), else -1."""


def msgpack_is_deeper(raw: bytes, most: int, known: Container[str] = ()) -> bool:
    """Whether arrays and maps stand in more than `most` levels. What is cut short is no deeper.

    Fields in `known` have a type, and what is too deep for it is refused anyway: they are not looked
    at, which is most of an event.

    >>> msgpack_is_deeper(b"\\x91" * 5, 5), msgpack_is_deeper(b"\\x91" * 6, 5)
    (False, True)
    >>> event = msgspec.msgpack.encode({"x": {"a": 1.5}, "trace": [[1]]})
    >>> msgpack_is_deeper(event, 3, {"x"}), msgpack_is_deeper(event, 2, {"x"})
    (False, True)
    """
    try:
        fields = _FIELDS(raw) if known else {}
    except (ValueError, RecursionError):  # a DecodeError, or a name that is no UTF-8
        fields = {}
    if fields and len(fields) == _head(raw, 0)[1] // 2:  # else a name stands there twice
        return any(
            _is_deeper(bytes(value), most - 1)
            for name, value in fields.items()
            if name not in known
        )
    return _is_deeper(raw, most)


def _is_deeper(raw: bytes, most: int) -> bool:
    steps, few, widths, firsts, from_bytes = _STEPS, _FEW, _WIDTHS, _FIRSTS, int.from_bytes
    at, left = 0, 1
    around: list[int] = []  # of each container around this one, how many items are left
    try:
        while True:
            while left:
                left -= 1
                lead = raw[at]
                step, items = steps[lead], few[lead]
                if not step:
                    width = widths[lead]
                    if width:  # here, not in `_head`: a call for each would take as long again
                        step = firsts[lead] + from_bytes(raw[at + 1 : at + 1 + width])
                    else:
                        step, items = _head(raw, at)
                at += step
                if items >= 0:
                    if len(around) >= most:
                        return True
                    around.append(left)
                    left = items
            if not around:
                return False
            left = around.pop()
    except IndexError:
        return False


def msgpack_holds_more(raw: bytes, most: int) -> bool:
    """Whether arrays and maps hold more than `most` items, all together, or say so.

    >>> raw = msgspec.msgpack.encode({"x": [1, {"a": "3,4"}, []]})
    >>> msgpack_holds_more(raw, 7), msgpack_holds_more(raw, 6)
    (False, True)
    """
    steps, few, widths, firsts, from_bytes = _STEPS, _FEW, _WIDTHS, _FIRSTS, int.from_bytes
    at, left, seen = 0, 1, 0
    try:
        while left:
            left -= 1
            lead = raw[at]
            step, items = steps[lead], few[lead]
            if not step:
                width = widths[lead]
                if width:
                    step = firsts[lead] + from_bytes(raw[at + 1 : at + 1 + width])
                else:
                    step, items = _head(raw, at)
            at += step
            if items > 0:
                left += items
                seen += items
                if seen > most:
                    return True
    except IndexError:  # cut short
        pass
    return False


def _head(raw: bytes, at: int) -> tuple[int, int]:
    """Bytes to the next item, and how many items the container that begins here has."""
    lead = raw[at]
    if lead not in _COUNTS:
        return _STEPS[lead], _FEW[lead]
    width, each = _COUNTS[lead]
    if at + 1 + width > len(raw):
        raise IndexError("cut short")
    return 1 + width, each * int.from_bytes(raw[at + 1 : at + 1 + width])
