"""The order of the merge: a function of the records, however they are cut into polls."""

from __future__ import annotations

from collections import deque
from functools import partial
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamforest.io.kafka.merge import Merge
from streamforest.io.log import Partition

record = partial(SimpleNamespace, key=None, value=b"", headers=[])
EVENTS, LABELS = ("events", 0), ("labels", 0)
Place = tuple[Partition, int]


def never(partition: Partition) -> float:
    return 0.0


def by_definition(log: dict[Partition, list[Any]]) -> list[Place]:
    """Every record by (highest timestamp so far in its partition, topic, partition, offset)."""
    keyed = []
    for partition, records in log.items():
        time = 0
        for one in records:
            time = max(time, one.timestamp)
            keyed.append((time, partition, one.offset))
    return [(partition, offset) for _, partition, offset in sorted(keyed)]


TIMESTAMPS = st.lists(st.integers(-1, 12), max_size=12)
"""Few different ones, so that many are equal, and some go back; -1 is a record without one."""


@st.composite
def logs(draw: st.DrawFn) -> dict[Partition, list[Any]]:
    """Up to two topics of up to three partitions, with gaps between the offsets."""
    partitions = [(topic, number) for topic in ("a", "b") for number in range(3)]
    log = {}
    for partition in draw(st.lists(st.sampled_from(partitions), min_size=1, unique=True)):
        offset, records = draw(st.integers(0, 3)), []
        for timestamp in draw(TIMESTAMPS):
            records.append(record(offset=offset, timestamp=timestamp))
            offset += draw(st.integers(1, 2))
        log[partition] = records
    return log


@settings(deadline=None, derandomize=True)
@given(logs(), st.data())
def test_the_order_is_a_function_of_the_records(
    log: dict[Partition, list[Any]], data: st.DataObject
) -> None:
    """Any cutting into polls, any number taken at a time, and starting over anywhere in between."""
    unread = {partition: deque(records) for partition, records in log.items()}
    times = dict.fromkeys(log, 0)
    merge = Merge(times)
    order: list[Place] = []

    def wait_for(partition: Partition) -> float:
        return 1e9 if unread[partition] else 0.0

    while any(unread.values()) or len(merge):
        partition = data.draw(st.sampled_from(sorted(log)))
        polled = data.draw(st.integers(0, 5))
        merge.add(
            partition, [unread[partition].popleft() for _ in range(polled) if unread[partition]]
        )
        taken = merge.take(data.draw(st.integers(1, 7)), 0.0, wait_for)
        for place, one in zip(taken.partitions, taken.records, strict=True):
            order.append((place, one.offset))
            times[place] = max(times[place], one.timestamp)
        if data.draw(st.integers(0, 9)) == 0:  # killed: what was read and not taken is read again
            done = {p: sum(place == p for place, _ in order) for p in log}
            unread = {p: deque(records[done[p] :]) for p, records in log.items()}
            merge = Merge(times)
    assert order == by_definition(log)


def test_a_partition_is_waited_for_as_long_as_the_caller_says() -> None:
    merge = Merge({EVENTS: 0, LABELS: 0})
    merge.add(EVENTS, [record(offset=i, timestamp=i) for i in range(3)])

    def second(partition: Partition) -> float:
        return 1.0 if partition == LABELS else 0.0

    assert not merge.take(10, 0.0, second)
    assert not merge.take(10, 0.9, second)
    assert merge.take(2, 1.1, second).partitions == [EVENTS, EVENTS]
    merge.add(LABELS, [record(offset=5, timestamp=1)])
    taken = merge.take(10, 1.2, never)
    assert taken.partitions == [LABELS, EVENTS]
    assert taken.last() == {LABELS: taken.records[0], EVENTS: taken.records[1]}
    merge.add(EVENTS, [record(offset=3, timestamp=9)])
    assert not merge.take(10, 5.0, second)  # a new wait, from now on
    assert not merge.take(10, 5.9, second)
    assert len(merge.take(10, 6.0, second)) == 1
    merge.add(EVENTS, [record(offset=4, timestamp=9)])
    assert len(merge.take(10, 9.0, second)) == 1  # the others go on until it brings records
    merge.add(EVENTS, [record(offset=5, timestamp=9)])
    assert merge.take(10, 9.1, never).records[0].offset == 5  # read to its end
    merge.add(EVENTS, [record(offset=6, timestamp=9)])
    assert not merge.take(10, 9.2, second)  # it has unread records again: a new wait
    assert merge.slow(9.7, 0.5) == [LABELS]
    assert merge.slow(9.7, 0.6) == []


def test_nothing_is_handed_out_beyond_a_partition_that_becomes_empty() -> None:
    merge = Merge({EVENTS: 0, LABELS: 0})
    merge.add(EVENTS, [record(offset=i, timestamp=i) for i in range(4)])
    merge.add(LABELS, [record(offset=0, timestamp=1)])
    taken = merge.take(10, 0.0, lambda partition: 1e9)
    assert taken.partitions == [
        EVENTS,
        EVENTS,
        LABELS,
    ]  # the next of its records may be of time 1 too
    merge.add(
        LABELS, [record(offset=1, timestamp=0)]
    )  # behind the one before: it counts as of time 1
    taken = merge.take(10, 0.0, never)
    assert taken.partitions == [LABELS, EVENTS, EVENTS]


def test_a_record_far_ahead_comes_when_the_others_are_read_to_their_ends() -> None:
    merge = Merge({("events", 0): 0, ("events", 1): 0})
    far = 253_402_300_799_000
    merge.add(("events", 0), [record(offset=0, timestamp=far), record(offset=1, timestamp=7)])
    merge.add(("events", 1), [record(offset=i, timestamp=i) for i in range(3)])
    assert [place[1] for place in merge.take(10, 0.0, never).partitions] == [1, 1, 1, 0, 0]


def test_buffers_are_bounded_in_records() -> None:
    merge = Merge({EVENTS: 0, LABELS: 0}, max_records=100)
    merge.add(EVENTS, [record(offset=i, timestamp=i) for i in range(99)])
    assert merge.full() == set()
    merge.add(EVENTS, [record(offset=99, timestamp=99)])
    assert merge.full() == {EVENTS}
    assert merge.buffered(EVENTS) == 100
    merge.take(50, 0.0, never)
    assert merge.full() == {EVENTS}  # read on only once there is room for another poll
    merge.take(1, 0.0, never)
    assert merge.full() == set()
    many = Merge({("events", number): 0 for number in range(1_280)})
    many.add(("events", 0), [record(offset=i, timestamp=i) for i in range(50)])
    assert many.full() == {("events", 0)}


def test_buffers_are_bounded_in_bytes() -> None:
    merge = Merge({EVENTS: 0, LABELS: 0}, max_bytes=8 << 20)
    large = partial(record, key=b"k" * 1_000, value=b"v" * 900_000, headers=[("h", b"x" * 149_999)])
    merge.add(EVENTS, [large(offset=i, timestamp=i) for i in range(3)])
    assert merge.full() == set()
    merge.add(EVENTS, [large(offset=3, timestamp=3)])
    assert merge.full() == {EVENTS}
    merge.take(2, 0.0, never)
    assert merge.full() == {EVENTS}  # the bytes of a poll are free once all of it is processed
    merge.take(1, 0.0, never)
    assert merge.full() == set()
    assert merge.buffered(EVENTS) == 1
