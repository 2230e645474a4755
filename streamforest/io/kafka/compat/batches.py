"""Record batches written all at once: what `KafkaProducer.send` does message by message.

`send` costs ten times what it takes to read a message, nearly all of it in bookkeeping: a lock, a
future, a few checks, and a function call for each byte of a number. A commit has all its messages at
hand, so this module writes them into record batches (format v2 of Kafka's protocol) and gives those to
the producer's accumulator. From there on everything is kafka-python's own: transactions, sequence
numbers, retries. The broker takes or refuses a batch as a whole, so a batch's outcome is that of every
message in it.

`check_writing` writes the same messages both ways and compares the bytes; it runs at import.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError
from kafka.producer.producer_batch import ProducerBatch
from kafka.record.memory_records import MemoryRecordsBuilder

from streamforest.io.kafka.compat.members import incompatible
from streamforest.io.log import OutputRecord

_FORMAT = 2
_NULL = b"\x01"  # the length -1


def _varint(value: int) -> bytes:
    """A number as a zigzag varint.

    >>> _varint(0), _varint(-1), _varint(300)
    (b'\\x00', b'\\x01', b'\\xd8\\x04')
    """
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(0x80 | (rest & 0x7F))
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SMALL = [_varint(i) for i in range(1 << 14)]


def _number(value: int) -> bytes:
    return _SMALL[value] if value < len(_SMALL) else _varint(value)


def _headers(headers: Sequence[tuple[str, bytes]]) -> bytes:
    out = [_number(len(headers))]
    for name, value in headers:
        raw = name.encode()
        out += (_number(len(raw)), raw, _number(len(value)), value)
    return b"".join(out)


def write_records(
    messages: Sequence[OutputRecord], first: int, max_bytes: int
) -> tuple[bytes, int]:
    """Write messages from number `first` on as records: as many as fit, but at least one.

    Returns the bytes and how many messages they hold. All have the timestamp of their batch.
    """
    parts: list[bytes] = []
    size = 0
    for number in range(len(messages) - first):
        value, key, headers, _ = messages[first + number]
        offset_delta = _number(number)
        key_field = _NULL if key is None else _number(len(key)) + key
        if value is None:
            value_length, value = _NULL, b""
        else:
            value_length = _number(len(value))
        header_field = _headers(headers) if headers else b"\x00"
        # attributes and timestamp are a zero byte each
        body = 2 + len(offset_delta) + len(key_field) + len(value_length) + len(value)
        body += len(header_field)
        length = _number(body)
        size += len(length) + body
        if size > max_bytes and number:
            return b"".join(parts), number
        parts += (length, b"\x00\x00", offset_delta, key_field, value_length, value, header_field)
    return b"".join(parts), len(messages) - first


def _builder(records: bytes, count: int, timestamp: int, size: int, compression: int) -> Any:
    """kafka-python's builder of a batch that holds these records."""
    builder = MemoryRecordsBuilder(_FORMAT, compression, size)
    inner = builder._builder
    inner._buffer += records
    inner._first_timestamp = inner._max_timestamp = timestamp
    inner._num_records, inner._last_offset = count, count - 1
    builder._next_offset = count
    return builder


def check_writing() -> None:
    """DependencyError if kafka-python does not build the same bytes from our records as from its own."""
    messages = [
        OutputRecord(b"value"),
        OutputRecord(None, b"key"),
        OutputRecord(b"v" * 300, b"", [("trace", b"id"), ("é", b"")]),
    ]
    timestamp = 1_700_000_000_000
    try:
        records, count = write_records(messages, 0, 1 << 20)
        ours = _builder(records, count, timestamp, 1 << 20, 0)
        theirs = MemoryRecordsBuilder(_FORMAT, 0, 1 << 20)
        for value, key, headers, _ in messages:
            theirs.append(timestamp, key, value, headers)
        for builder in (ours, theirs):
            builder.set_producer_state(7, 1, 5, True)
            builder.close()
        same = ours.next_offset() == theirs.next_offset() and ours.buffer() == theirs.buffer()
    except (AttributeError, TypeError, AssertionError) as error:
        raise incompatible(f"its record batches cannot be written ({error!r})") from error
    if not same:
        raise incompatible("it writes other record batches")


def append(
    producer: Any, topic: str, partition: int, messages: Sequence[OutputRecord], max_bytes: int
) -> list[Any]:
    """Give messages of one partition to the producer; returns their batches, in order."""
    tp = TopicPartition(topic, partition)
    manager, accumulator = producer._transaction_manager, producer._accumulator
    if manager is not None and manager.is_transactional():
        manager.maybe_add_partition_to_transaction(tp)
    compression = accumulator.config["compression_attrs"]
    now = int(time.time() * 1000)
    batches = []
    first = 0
    while first < len(messages):
        records, count = write_records(messages, first, max_bytes)
        batch = ProducerBatch(tp, _builder(records, count, now, max_bytes, compression))
        batches.append(batch)
        first += count
    with accumulator._tp_lock(tp):
        for batch in batches:
            accumulator._batches[tp].append(batch)
            accumulator._incomplete.add(batch)
    producer._sender.wakeup()
    return batches


def outcome(batch: Any) -> tuple[int, BaseException | None]:
    """The offset of a batch's last message and None, or -1 and the error that the whole batch had."""
    future = batch.produce_future
    if not future.is_done:
        return -1, KafkaError("no answer from the broker")
    if future.failed():
        return -1, future.exception
    base, _, error_of = future.value
    if error_of is not None:
        return -1, error_of(0)
    return base + batch.record_count - 1, None
