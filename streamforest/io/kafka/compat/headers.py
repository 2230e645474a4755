"""Header names that are no text.

To the broker a header's name is bytes. kafka-python wants UTF-8, and calls a whole partition corrupt at
the first record that has something else: whoever may write to a topic could stop every consumer of it for
ever. Here such a name becomes text with escapes, and the record is read like any other.
"""

from __future__ import annotations

from typing import Any

from kafka.record.default_records import DefaultRecordBatch, decode_varint

_usual = DefaultRecordBatch.__next__


class _Forgiving(bytes):
    """Bytes whose slices turn into text whatever they are."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _Forgiving(found) if isinstance(found, bytes) else found

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return super().decode(encoding, "backslashreplace")


def mend_headers() -> None:
    """Let kafka-python read records with such headers; it costs the others nothing."""
    DefaultRecordBatch.__next__ = _next


def _next(batch: Any) -> Any:
    if batch._next_record_index >= batch._num_records:
        return _usual(batch)  # ends, or says what is left over
    try:
        record = batch._read_msg()
    except UnicodeDecodeError:
        record = _read_forgiving(batch)
    except (ValueError, IndexError):
        return _usual(batch)  # raises its own error
    batch._next_record_index += 1
    return record


def _read_forgiving(batch: Any) -> Any:
    """The record that begins here, out of a copy of its bytes alone."""
    buffer, at = batch._buffer, batch._pos
    length, start = decode_varint(buffer, at)
    batch._buffer, batch._pos = _Forgiving(buffer[at : start + length]), 0
    try:
        return batch._read_msg()
    finally:
        batch._buffer, batch._pos = buffer, at + batch._pos
