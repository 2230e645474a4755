"""Record batches by the hundred: what `KafkaProducer.send` does message by message, done in one go.

`send` costs ten times what it takes to read a message, nearly all of it in bookkeeping: a lock, a
future, a few checks and a function call a byte. A commit has all its messages at hand, so they are
written into record batches here (format v2, as Kafka's protocol defines it) and given to the
producer's accumulator whole. From there on everything is kafka-python's own: transactions, sequence
numbers, retries. A batch is taken or refused as a whole by the broker, so its one outcome is that of
every message in it.

This reaches behind kafka-python's public interface. `usable` builds the same messages both ways and
compares the bytes; where they differ, as in a release that changed its inside, `send` it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError
from kafka.producer.producer_batch import ProducerBatch
from kafka.record.memory_records import MemoryRecordsBuilder

from streamforest.io.log import OutputRecord

log = logging.getLogger(__name__)

_FORMAT = 2
_NULL = b"\x01"  # the length -1


def _varint(value: int) -> bytes:
    """A zigzag varint.

    >>> _varint(0), _varint(-1), _varint(300)
    (b'\\x00', b'\\x01', b'\\xd8\\x04')
    """
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(0x80 | (left & 0x7F))
        left >>= 7
    out.append(left)
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


def write_records(messages: Sequence[OutputRecord], first: int, most: int) -> tuple[bytes, int]:
    """The records of the messages from number `first` on, as many as fit `most` bytes but at least
    one; and how many that are. All have the batch's own timestamp.
    """
    parts: list[bytes] = []
    size = 0
    for offset in range(len(messages) - first):
        value, key, headers, _ = messages[first + offset]
        place = _number(offset)
        middle = _NULL if key is None else _number(len(key)) + key
        if value is None:
            length, value = _NULL, b""
        else:
            length = _number(len(value))
        tail = _headers(headers) if headers else b"\x00"
        # attributes and timestamp are a zero byte each
        body = 2 + len(place) + len(middle) + len(length) + len(value) + len(tail)
        front = _number(body)
        size += len(front) + body
        if size > most and offset:
            return b"".join(parts), offset
        parts += (front, b"\x00\x00", place, middle, length, value, tail)
    return b"".join(parts), len(messages) - first


def _builder(records: bytes, count: int, timestamp: int, size: int, compression: int) -> Any:
    """kafka-python's builder of a batch, holding these records."""
    builder = MemoryRecordsBuilder(_FORMAT, compression, size)
    inner = builder._builder
    inner._buffer += records
    inner._first_timestamp = inner._max_timestamp = timestamp
    inner._num_records, inner._last_offset = count, count - 1
    builder._next_offset = count
    return builder


@cache
def usable() -> bool:
    """Whether this release of kafka-python builds from our records what it builds from its own."""
    messages = [
        OutputRecord(b"value"),
        OutputRecord(None, b"key"),
        OutputRecord(b"v" * 300, b"", [("trace", b"id"), ("é", b"")]),
    ]
    try:
        records, count = write_records(messages, 0, 1 << 20)
        ours = _builder(records, count, 1_700_000_000_000, 1 << 20, 0)
        theirs = MemoryRecordsBuilder(_FORMAT, 0, 1 << 20)
        for value, key, headers, _ in messages:
            theirs.append(1_700_000_000_000, key, value, headers)
        for one in (ours, theirs):
            one.set_producer_state(7, 1, 5, True)
            one.close()
        same = bool(ours.next_offset() == theirs.next_offset() and ours.buffer() == theirs.buffer())
    except (AttributeError, TypeError, AssertionError) as error:
        log.info("kafka-python has changed inside: %r", error)
        same = False
    if not same:
        log.warning("messages are sent one by one: this release of kafka-python is not known yet")
    return same


def append(
    producer: Any, topic: str, lane: int, messages: Sequence[OutputRecord], most: int
) -> Any:
    """Give messages of one partition to the producer; the batches they are in, in order."""
    tp = TopicPartition(topic, lane)
    manager, accumulator = producer._transaction_manager, producer._accumulator
    if manager is not None and manager.is_transactional():
        manager.maybe_add_partition_to_transaction(tp)
    compression = accumulator.config["compression_attrs"]
    now = int(time.time() * 1000)
    batches = []
    first = 0
    while first < len(messages):
        records, count = write_records(messages, first, most)
        batch = ProducerBatch(tp, _builder(records, count, now, most, compression))
        batches.append(batch)
        first += count
    with accumulator._tp_lock(tp):
        for batch in batches:
            accumulator._batches[tp].append(batch)
            accumulator._incomplete.add(batch)
    producer._sender.wakeup()
    return batches


def outcome(batch: Any) -> tuple[int, BaseException | None]:
    """Where the broker put the last message of a batch, and None; or the error that all of it had."""
    future = batch.produce_future
    if not future.is_done:
        return -1, KafkaError("no answer from the broker")
    if future.failed():
        return -1, future.exception
    base, _, error_of = future.value
    if error_of is not None:
        return -1, error_of(0)
    return base + batch.record_count - 1, None
