"""Fetched record batches, read in a third of the time that kafka-python takes.

Most of a poll is spent on taking records apart in Python: seven variable-length numbers each, a call for
every one, two objects and a dozen properties a record. `QuickRecords` does it in one loop and keeps what
a pipeline needs of a record. Everything around it is kafka-python's own: checksums, aborted
transactions, positions. `check_reading` reads batches both ways and compares; it runs at import.

It also replaces two things that go wrong in kafka-python:

- A header's name is bytes to the broker. kafka-python expects UTF-8, and calls the whole partition corrupt at
  the first record that has something else: whoever may write to a topic could stop all its consumers for
  ever. Here such a name becomes text with escapes (`test_header_names_that_are_no_text_stop_nothing`).
- After a damaged batch kafka-python's next poll never returns. Here the rest of the fetch is dropped, and the
  batch is fetched again (`test_a_damaged_batch_is_fetched_anew`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from kafka.record.util import calc_crc32c, decode_varint
from kafka.structs import TopicPartition

from streamforest.io.kafka.compat.members import incompatible

_FORMAT = 2
_CRC_AT, _RECORDS_AT = 17, 61  # bytes from the beginning of a batch


class Fetched(msgspec.Struct, gc=False):
    """What a pipeline needs of a record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


_NO_HEADERS: list[tuple[str, bytes | None]] = []


def read_records(batch: Any) -> list[Fetched]:
    """The records of a batch of format v2; CorruptRecordError if it is not well formed.

    A number is a zigzag varint. Nearly all have one or two bytes and are read in place, without a call.
    """
    batch._maybe_uncompress()
    data, pos = bytes(batch._buffer), batch._pos
    base, first = batch.base_offset, batch.first_timestamp
    fixed = batch.max_timestamp if batch.timestamp_type else None
    records = []
    try:
        for _ in range(batch.records_count):
            length, pos = _number(data, pos)
            end = pos + length
            pos += 1  # attributes, of which there are none
            one = data[pos]
            if one < 0x80:
                timestamp, pos = (one >> 1) ^ -(one & 1), pos + 1
            else:
                timestamp, pos = _number(data, pos)
            one, two = data[pos], data[pos + 1]
            if one < 0x80:
                offset, pos = one >> 1, pos + 1
            elif two < 0x80:
                offset, pos = ((one & 0x7F) | (two << 7)) >> 1, pos + 2
            else:
                offset, pos = _number(data, pos)
            one = data[pos]
            if one < 0x80:
                size, pos = (one >> 1) ^ -(one & 1), pos + 1
            else:
                size, pos = _number(data, pos)
            if size < 0:  # to the broker any negative size means none, not only -1
                key = None
            else:
                key = data[pos : pos + size]
                pos += size
            one, two = data[pos], data[pos + 1]
            if two < 0x80 <= one and not one & 1:
                size, pos = ((one & 0x7F) | (two << 7)) >> 1, pos + 2
            else:
                size, pos = _number(data, pos)
            if size < 0:
                value = None
            else:
                value = data[pos : pos + size]
                pos += size
            if data[pos] == 0:
                headers, pos = _NO_HEADERS, pos + 1
            else:
                headers, pos = _headers(data, pos)
            if pos != end:
                raise CorruptRecordError(f"a record of {length} bytes ends {pos - end} bytes off")
            stamp = first + timestamp if fixed is None else fixed
            records.append(Fetched(base + offset, stamp, key, value, headers))
    except (IndexError, ValueError) as error:
        raise CorruptRecordError(f"invalid record: {error!r}") from error
    if pos != len(data):
        raise CorruptRecordError(f"{len(data) - pos} bytes after the last record")
    return records


def _number(data: bytes, pos: int) -> tuple[int, int]:
    one = data[pos]
    if one < 0x80:
        return (one >> 1) ^ -(one & 1), pos + 1
    two = data[pos + 1]
    if two < 0x80:
        raw = (one & 0x7F) | (two << 7)
        return (raw >> 1) ^ -(raw & 1), pos + 2
    return decode_varint(data, pos)  # type: ignore[no-any-return]


def _headers(data: bytes, pos: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, pos = _number(data, pos)
    if count < 0:
        raise CorruptRecordError(f"{count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, pos = _number(data, pos)
        if size < 0:
            raise CorruptRecordError(f"a header's name of {size} bytes")
        name = data[pos : pos + size].decode(errors="backslashreplace")  # may be any bytes
        pos += size
        size, pos = _number(data, pos)
        if size < 0:
            headers.append((name, None))
        else:
            headers.append((name, data[pos : pos + size]))
            pos += size
    return headers, pos


def _records(tp: Any, batch: Any) -> list[Fetched]:
    try:
        return read_records(batch)
    except CorruptRecordError as error:
        raise _corrupt(tp, batch, error.args[0]) from error


def _corrupt(tp: Any, batch: Any, details: str) -> CorruptRecordError:
    return CorruptRecordError(f"{tp.topic}-{tp.partition} at offset {batch.base_offset}: {details}")


class QuickRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    """The records of one fetched partition."""

    def _unpack_records(self, tp: Any, records: Any, *deserializers: Any) -> Iterator[Any]:
        if any(deserializers):
            yield from super()._unpack_records(tp, records, *deserializers)
            return
        try:
            last = None
            while (batch := records.next_batch()) is not None:
                last = batch
                self._check(tp, batch)
                self.leader_epoch = batch.leader_epoch
                if self._skips(batch):
                    self.next_fetch_offset = batch.next_offset
                    continue
                for record in _records(tp, batch):
                    self.records_read += 1
                    self.next_fetch_offset = record.offset + 1
                    yield record
                self.bytes_read += batch.size_in_bytes
            if last is not None:  # also where the last record of it was compacted away
                self.next_fetch_offset = last.next_offset
        except Exception:
            self.drain()  # otherwise the next poll never returns
            raise
        self.drain()

    def _check(self, tp: Any, batch: Any) -> None:
        if batch.magic != _FORMAT:
            raise _corrupt(
                tp, batch, f"messages of format {batch.magic}, which no broker since 2017 writes"
            )
        if self.check_crcs and not batch.validate_crc():
            raise _corrupt(tp, batch, "wrong checksum")

    def _skips(self, batch: Any) -> bool:
        """Whether a batch belongs to an aborted transaction, or only marks the end of one."""
        aborted = self.aborted_transactions or self.aborted_producer_ids
        if aborted and self.isolation_level and batch.has_producer_id():
            self._consume_aborted_transactions_up_to(batch.last_offset)
            if self._contains_abort_marker(batch):
                self.aborted_producer_ids.discard(batch.producer_id)
            elif self._is_batch_aborted(batch):
                return True
        return bool(batch.is_control_batch)


def use_quick_records(consumer: Any) -> None:
    """Make this consumer read by `QuickRecords`; with deserializers it reads as before."""
    consumer._fetcher.PartitionRecords = QuickRecords


def odd_batch() -> bytes:
    """A batch in which key, value and a header's value are absent, by negative sizes other than -1."""
    # length 10; no attributes, times or offsets; key -2; value -65, in two bytes; "h": -3
    record = bytes([20, 0, 0, 0, 3, 0x81, 1, 2, 2, ord("h"), 5])
    builder = MemoryRecordsBuilder(_FORMAT, 0, 1 << 20)
    builder.append(0, None, b"", [])
    builder.close()
    raw = bytearray(builder.buffer())
    del raw[_RECORDS_AT:]
    raw += record
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">I", raw, _CRC_AT, calc_crc32c(bytes(raw[_CRC_AT + 4 :])))
    return bytes(raw)


def check_reading() -> None:
    """DependencyError if `QuickRecords` does not read the same from a batch as kafka-python does."""
    try:
        builder = MemoryRecordsBuilder(_FORMAT, 0, 1 << 20)
        for number in range(80):
            headers = [("trace", b"1"), ("é", None)] if number % 3 else []
            key = b"k" * number if number % 2 else None
            builder.append(1_700_000_000_000 + 100 * number, key, b"v" * 3 * number, headers)
        builder.append(1_700_000_000_000, b"k", None, [])
        builder.close()
        raw = bytes(builder.buffer()) + odd_batch()
        same = _read(QuickRecords, raw) == _read(Fetcher.PartitionRecords, raw)
    except (AttributeError, TypeError, AssertionError, CorruptRecordError) as error:
        raise incompatible(f"its record batches cannot be read ({error!r})") from error
    if not same:
        raise incompatible("it reads other records from a batch")


def _read(kind: Any, raw: bytes) -> list[tuple[Any, ...]]:
    tp = TopicPartition("t", 0)
    part = kind(3, tp, MemoryRecords(raw), isolation_level=1, aborted_transactions=[])
    records = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in part.take()]
    return [*records, (part.next_fetch_offset, part.leader_epoch, bool(part))]
