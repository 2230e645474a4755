"""How deeply a message is nested, counted without decoding it.

Fields that an event does not have are skipped by the codec, however deep they are, until the interpreter's
stack gives out; and how much of the stack is in use differs between a run and its recovery. A limit of our
own, far below, makes the same decision each time.
"""

from __future__ import annotations

import re
from collections.abc import Container
from struct import unpack_from

import msgspec

# a string, also one that never ends: every quote is then looked at once, in time linear in the length
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_REST = bytes(set(range(256)) - set(b"[]{}"))


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
    left = _STRINGS.sub(b"", raw).translate(_ONE_KIND, _REST)
    for _ in range(most):
        if b"[]" not in left:
            break
        left = left.replace(b"[]", b"")
    return b"[]" in left or left.count(b"[") > most


_SIZES = {0xCC: 1, 0xD0: 1, 0xCD: 2, 0xD1: 2, 0xCE: 4, 0xD2: 4, 0xCA: 4, 0xCF: 8, 0xD3: 8, 0xCB: 8}
_FIXED_EXT = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
_LENGTHS = {0xC4: ">B", 0xD9: ">B", 0xC5: ">H", 0xDA: ">H", 0xC6: ">I", 0xDB: ">I"}
_EXT_LENGTHS = {0xC7: ">B", 0xC8: ">H", 0xC9: ">I"}
_COUNTS = {0xDC: (">H", 1), 0xDE: (">H", 2), 0xDD: (">I", 1), 0xDF: (">I", 2)}
_WIDTH = {">B": 1, ">H": 2, ">I": 4}


_fields = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode


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
        fields = _fields(raw) if known else {}
    except (ValueError, RecursionError):  # a DecodeError, or a name that is no UTF-8
        fields = {}
    if fields and len(fields) == _item(raw, 0)[0] // 2:  # else a name stands there twice
        return any(
            _is_deeper(bytes(value), most - 1)
            for name, value in fields.items()
            if name not in known
        )
    return _is_deeper(raw, most)


def _is_deeper(raw: bytes, most: int) -> bool:
    at, end = 0, len(raw)
    open_: list[int] = []  # of each container around us, how many items are left
    try:
        while at < end:
            items, at = _item(raw, at)
            if open_:
                open_[-1] -= 1
            if items >= 0:
                if len(open_) >= most:
                    return True
                open_.append(items)
            while open_ and open_[-1] == 0:
                open_.pop()
            if not open_:
                break
    except IndexError:
        pass
    return False


def _item(raw: bytes, at: int) -> tuple[int, int]:
    """Items of the container that begins here (-1 if none does), and where the next item stands."""
    lead = raw[at]
    at += 1
    if lead <= 0x7F or lead >= 0xE0 or 0xC0 <= lead <= 0xC3:
        return -1, at
    if lead <= 0x8F:
        return 2 * (lead & 0x0F), at
    if lead <= 0x9F:
        return lead & 0x0F, at
    if lead <= 0xBF:
        return -1, at + (lead & 0x1F)
    if lead in _SIZES:
        return -1, at + _SIZES[lead]
    if lead in _FIXED_EXT:
        return -1, at + _FIXED_EXT[lead]
    if lead in _COUNTS:
        form, each = _COUNTS[lead]
        return each * _number(raw, at, form), at + _WIDTH[form]
    ext = lead in _EXT_LENGTHS
    form = _EXT_LENGTHS[lead] if ext else _LENGTHS[lead]
    return -1, at + _WIDTH[form] + ext + _number(raw, at, form)


def _number(raw: bytes, at: int, form: str) -> int:
    if at + _WIDTH[form] > len(raw):
        raise IndexError("cut short")
    found: int = unpack_from(form, raw, at)[0]
    return found
