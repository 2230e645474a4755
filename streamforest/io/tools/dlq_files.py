"""The dead letters of a run without a broker: lines in its folder, as many as its last commit says."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from streamforest.errors import StreamForestError
from streamforest.io.codec.dead_letters import Letter, read_letter
from streamforest.io.codec.events import Format
from streamforest.io.file_log import committed_sizes

_NAME = "dead_letters"


def letters_in(folder: Path, limit: int | None = None) -> Iterator[Letter]:
    """The dead letters of a run folder, oldest first, at most `limit` of them."""
    path = folder / f"{_NAME}.jsonl"
    size = committed_sizes(folder).get(_NAME, 0)
    return islice(_letters(path, size), limit)


def _letters(path: Path, size: int) -> Iterator[Letter]:
    if not size:
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            size -= len(line)
            if size < 0:
                return  # written after the last commit
            yield _letter(line, f"{path}, line {number}")


def _letter(line: bytes, place: str) -> Letter:
    try:
        fields: dict[str, Any] = json.loads(line)
        headers = [(str(name), str(text).encode()) for name, text in fields["headers"].items()]
        value = (
            None if fields["value"] is None else base64.b64decode(fields["value"], validate=True)
        )
        letter = read_letter(SimpleNamespace(headers=headers, key=None, value=value))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
        letter = None
    if letter is None:
        raise StreamForestError(f"{place}: not a dead letter; was the file changed?")
    return letter


def as_text(letter: Letter, format: Format = "json") -> str:
    """The event of a letter as text: JSON as it was sent, MessagePack as JSON, other bytes as hex.

    >>> letter = Letter("t", 0, 1, "label", "", None, None, b'\\x81\\xa1x\\x07', [])
    >>> as_text(letter, "msgpack"), as_text(letter)
    ('{"x":7}', '81a17807')
    """
    value = letter.value
    if value is None:
        return ""
    if format == "msgpack" and letter.truncated is None:
        try:
            return msgspec.json.encode(msgspec.msgpack.decode(value), enc_hook=str).decode()
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            return value.hex()
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex() if letter.truncated is None else value.decode(errors="replace")
