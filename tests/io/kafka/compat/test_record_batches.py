"""Record batches as we write and read them are kafka-python's own, byte for byte and field by field."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from kafka.structs import TopicPartition

from streamforest.io.kafka.compat import batches
from streamforest.io.kafka.compat import records as kafka_records
from streamforest.io.log import OutputRecord

TIME = 1_700_000_000_000


def some(draw: random.Random, n: int) -> list[OutputRecord]:
    """Messages of all shapes: no key, no value, none of either's length, headers, large ones."""
    made = []
    for _ in range(n):
        value = draw.choice([None, b"", draw.randbytes(draw.randrange(1, 30_000))])
        key = draw.choice([None, b"", draw.randbytes(draw.randrange(1, 300))])
        headers = [(f"h{i}é", draw.randbytes(i * 50)) for i in range(draw.randrange(3))]
        made.append(OutputRecord(value, key, headers))
    return made


def theirs(messages: list[OutputRecord], step: int = 0, compression: int = 0) -> bytes:
    builder = MemoryRecordsBuilder(2, compression, 1 << 30)
    for i, (value, key, headers, _) in enumerate(messages):
        builder.append(TIME + i * step, key, value, headers)
    builder.close()
    return bytes(builder.buffer())


@pytest.mark.parametrize("seed", range(5))
def test_the_bytes_are_the_same(seed: int) -> None:
    messages = some(random.Random(seed), 400)
    records, count = batches.write_records(messages, 0, 1 << 30)
    ours = batches._builder(records, count, TIME, 1 << 30, 0)
    ours.close()
    assert (count, bytes(ours.buffer())) == (400, theirs(messages))


def test_batches_are_cut_where_they_are_full() -> None:
    messages = [OutputRecord(b"v" * 1_000) for _ in range(50)]
    first, cut = 0, []
    while first < 50:
        records, count = batches.write_records(messages, first, 10_000)
        assert len(records) <= 10_000
        cut.append(count)
        first += count
    assert sum(cut) == 50
    assert set(cut[:-1]) == {9}
    assert batches.write_records([OutputRecord(b"v" * 99_999)], 0, 10)[1] == 1


def read(kind: Any, raw: bytes, start: int = 0, chunk: int | None = None) -> list[tuple[Any, ...]]:
    tp = TopicPartition("t", 0)
    part = kind(start, tp, MemoryRecords(raw), isolation_level=1, aborted_transactions=[])
    found: list[tuple[Any, ...]] = []
    while part and (some := part.take(chunk)):
        found += [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in some]
        found.append(("next", part.next_fetch_offset))
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("compression", [0, 1])
def test_what_is_read_is_the_same(seed: int, compression: int) -> None:
    draw = random.Random(seed)
    raw = b"".join(theirs(some(draw, 150), draw.randrange(1, 90_000), compression) for _ in "ab")
    for start, chunk in ((0, None), (0, 7), (33, 50)):
        told = read(kafka_records.QuickRecords, raw, start, chunk)
        assert told == read(Fetcher.PartitionRecords, raw, start, chunk)


def test_any_negative_size_means_none() -> None:
    raw = theirs(some(random.Random(1), 3)) + kafka_records.odd_batch()
    told = read(kafka_records.QuickRecords, raw)
    assert told == read(Fetcher.PartitionRecords, raw)
    assert told[-2][2:] == (None, None, [("h", None)])


def test_a_header_without_a_name_is_an_error() -> None:
    raw = bytearray(kafka_records.odd_batch())
    raw[69] = 1  # the size of the name: -1
    with pytest.raises(CorruptRecordError, match="name of -1 bytes"):
        kafka_records.read_records(MemoryRecords(bytes(raw)).next_batch())


@pytest.mark.parametrize("before", [0, 3])
def test_a_part_with_a_damaged_batch_is_let_go_of(before: int) -> None:
    """kafka-python would ask it for ever for what is left; it is fetched anew instead."""
    good = theirs(some(random.Random(1), before)) if before else b""
    bad = bytearray(theirs(some(random.Random(2), 3)))
    bad[100] ^= 1
    records = MemoryRecords(good + bytes(bad))
    part = kafka_records.QuickRecords(0, TopicPartition("t", 4), records)
    if before:
        assert len(part.take()) == before
        assert part.next_fetch_offset == before
    else:
        with pytest.raises(CorruptRecordError, match="t-4 at offset 0: wrong checksum"):
            part.take()
    assert not part


def test_a_damaged_batch_is_an_error_and_nothing_else() -> None:
    draw = random.Random(1)
    raw = bytearray(theirs(some(draw, 30)))
    for _ in range(2_000):
        mutated = bytearray(raw)
        for _ in range(draw.randrange(1, 4)):
            mutated[draw.randrange(61, len(raw))] = draw.randrange(256)
        batch = MemoryRecords(bytes(mutated)).next_batch()
        try:
            kafka_records.read_records(batch)
        except CorruptRecordError:
            continue
    with pytest.raises(CorruptRecordError, match="wrong checksum"):
        read(kafka_records.QuickRecords, bytes(raw[:100]) + b"\x00" + bytes(raw[101:]))
    old = bytearray(raw)
    struct.pack_into(">i", old, 57, 31)  # one record more than there are
    with pytest.raises(CorruptRecordError):
        kafka_records.read_records(MemoryRecords(bytes(old)).next_batch())
