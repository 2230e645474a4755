"""How partitions alternate in a journal record: written, read again, damaged, bounded."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.memory_log import MemoryRecord

from streamforest.errors import RecoveryError
from streamforest.io.log import Partition, Records
from streamforest.runtime.checkpoint.commit import Pending
from streamforest.runtime.checkpoint.journal import (
    MAX_BYTES,
    Entry,
    Interleaving,
    read_entry,
    runs_of,
)
from streamforest.runtime.processing.schedule import CommitSchedule, Settings
from streamforest.runtime.recovery import replayer
from streamforest.runtime.recovery.replayer import batches


class Reader:
    """Records in memory, with gaps between their offsets."""

    def __init__(self, records: dict[Partition, list[MemoryRecord]]) -> None:
        self.records = records

    def take(
        self, partition: Partition, first: int, end: int, max_records: int | None = None
    ) -> list[Any]:
        found = [r for r in self.records[partition] if first <= r.offset < end]
        return found[:max_records]

    def close(self) -> None:
        """Nothing is held."""


def written(several: list[Records]) -> Entry:
    """The journal record of these batches, as it is read again."""
    order = Interleaving()
    for records in several:
        order.add(records)
    count = sum(map(len, several))
    packed = order.order()
    entry = Entry(3, 100, 100 + count, order.slices(), order=packed, v=2 if packed else 1)
    return read_entry(0, msgspec.json.encode(entry))


def alternating(partitions: list[Partition], gap: Callable[[int], int] = lambda i: 1) -> Records:
    """One record after the other, of these partitions."""
    records, offsets = [], dict.fromkeys(partitions, 5)
    for number, partition in enumerate(partitions):
        records.append(MemoryRecord(offsets[partition], b"%d" % number))
        offsets[partition] += gap(number)
    return Records(partitions, records)


def reader_of(records: Records) -> Reader:
    found: dict[Partition, list[MemoryRecord]] = {}
    for partition, record in zip(records.partitions, records.records, strict=True):
        found.setdefault(partition, []).append(record)
    return Reader(found)


PARTITIONS = st.lists(
    st.tuples(st.sampled_from(["events", "labels"]), st.integers(0, 200)), max_size=60
)


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from([("e", 0), ("e", 1), ("l", 0)]), st.integers(1, 300))),
    PARTITIONS,
    st.integers(1, 50),
    st.integers(1, 3),
)
def test_what_is_written_is_read_again(
    runs: list[tuple[Partition, int]], more: list[Partition], batch: int, gap: int
) -> None:
    partitions = [partition for partition, count in runs for _ in range(count)] + more
    records = alternating(partitions, lambda number: 1 + number % gap)
    cut = [
        Records(records.partitions[i : i + batch], records.records[i : i + batch])
        for i in range(0, len(records), batch)
    ]
    entry = written(cut)
    whole = Interleaving()
    whole.add(records)
    assert len(msgspec.json.encode([entry.slices, entry.order])) <= whole.size + 10
    found = list(batches(entry, reader_of(records)))
    assert [p for one in found for p in one.partitions] == records.partitions
    assert [r for one in found for r in one.records] == records.records
    assert bool(entry.order) == (len({*partitions}) < sum(1 for _ in _changes(partitions)))


def _changes(partitions: list[Partition]) -> list[Partition]:
    return [p for i, p in enumerate(partitions) if not i or partitions[i - 1] != p]


def test_a_record_without_an_order_is_read_as_ever() -> None:
    """Older ones list slices in turn, a partition perhaps more than once."""
    raw = b'{"commit":1,"first":0,"events":4,"slices":[["e",0,0,2],["e",1,0,1],["e",0,2,3]]}'
    entry = read_entry(0, raw)
    records = {("e", n): [MemoryRecord(i, b"") for i in range(3)] for n in (0, 1)}
    (found,) = batches(entry, Reader(records))
    assert found.partitions == [("e", 0), ("e", 0), ("e", 1), ("e", 0)]
    assert [record.offset for record in found.records] == [0, 1, 0, 2]


def test_long_records_are_read_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replayer, "_BATCH", 100)
    records = alternating([("e", number % 7) for number in range(1_000)])
    found = list(batches(written([records]), reader_of(records)))
    assert [len(one) for one in found] == [100] * 10


def test_records_that_are_gone_are_missed() -> None:
    records = alternating([("e", number % 3) for number in range(30)])
    entry = written([records])
    for lost in (0, 4, 9):  # the first, one in between, the last
        reader = reader_of(records)
        del reader.records["e", 1][lost]
        with pytest.raises(RecoveryError, match=r"commit 3 took 30 events.*gone from the log"):
            list(batches(entry, reader))


@pytest.mark.parametrize(
    "order", ["%", "AAA", "gA==", "////////////////", "AAECAAEC", "AAE=", "AAECAAECAAECAAECAAEC"]
)
def test_a_damaged_order_is_an_error(order: str) -> None:
    entry = Entry(3, 0, 5, [("e", 0, 0, 2), ("e", 1, 0, 2), ("e", 2, 0, 1)], order=order, v=2)
    with pytest.raises(RecoveryError, match="record of commit 3 says in a damaged form"):
        list(runs_of(entry))
    with pytest.raises(RecoveryError, match="damaged"):
        list(runs_of(Entry(3, 0, 5, [], order="AAA=", v=2)))


def test_a_later_format_is_refused() -> None:
    with pytest.raises(RecoveryError, match="record 7 is of format 4: use the version"):
        read_entry(7, b'{"commit":1,"first":0,"events":0,"v":4}')


def test_10000_alternating_events_take_little() -> None:
    records = alternating([("events", number % 16) for number in range(10_000)])
    entry = written([records])
    assert len(base64.b64decode(entry.order)) == 10_000
    assert len(msgspec.json.encode(entry)) < 15_000


def test_a_commit_comes_early_before_its_journal_record_is_too_large() -> None:
    """Only with settings far beyond the defaults: 130 partitions and a million events a commit."""
    schedule = CommitSchedule(Settings(commit_events=10**6, commit_seconds=None))
    pending, events = Pending(), 0
    part = alternating([("events", number % 130) for number in range(5_000)])
    while not schedule.commit_due(events, pending):
        pending.order.add(part)
        events += len(part)
    assert events > 200_000
    entry = Entry(1, 0, events, pending.order.slices(), order=pending.order.order(), v=2)
    assert 0.4 * MAX_BYTES < len(msgspec.json.encode(entry)) < MAX_BYTES


def test_what_is_left_of_an_entry_keeps_its_order() -> None:
    """The first records of a partition are gone: its first places in the order are left out."""
    a, b = ("a", 0), ("b", 0)
    records = {p: [MemoryRecord(i, b"%d" % i) for i in range(4)] for p in (a, b)}
    both = Interleaving()
    for partition, offset in [(a, 0), (b, 0), (a, 1), (a, 2), (b, 1), (b, 2), (a, 3), (b, 3)]:
        both.add(Records.of(partition, [records[partition][offset]]))
    entry = Entry(3, 0, 8, both.slices(), order=both.order(), v=2)
    del records[a][:2]
    (batch,) = replayer.remaining(entry, Reader(records))
    order = [(p, r.offset) for p, r in zip(batch.partitions, batch.records, strict=True)]
    assert order == [(b, 0), (a, 2), (b, 1), (b, 2), (a, 3), (b, 3)]
    (whole,) = replayer.remaining(Entry(3, 0, 6, [(*a, 0, 4), (*b, 0, 4)]), Reader(records))
    assert [r.offset for r in whole.records] == [2, 3, 0, 1, 2, 3]
    assert not list(replayer.remaining(entry, Reader({a: [], b: []})))
