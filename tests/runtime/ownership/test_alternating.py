"""Partitions that alternate: the order of record times goes on over every change of owner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.memory_log import MemoryBroker
from support.owner_process import EVENTS, Process, advance, finish, follow, some_events

from streamforest.io.log import Partition
from streamforest.runtime.recovery.ownership import Phase

PARTITIONS: list[Partition] = [("events", 0), ("events", 1), ("events", 2)]


def spread() -> MemoryBroker:
    """The events in turn in three partitions, 10 ms apart; two of partition 1 are 40 ms ahead."""
    broker = MemoryBroker()
    events = some_events(0, EVENTS)
    for number, partition in enumerate(PARTITIONS):
        indices = range(number, EVENTS, 3)
        timestamps = [1_000 + 10 * i + (40 if i in (10, 37) else 0) for i in indices]
        broker.add([events[i] for i in indices], partition, timestamps)
    return broker


@pytest.fixture
def broker() -> MemoryBroker:
    return spread()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    process = Process(spread(), tmp_path_factory.mktemp("undisturbed"))
    process.run.recover()
    assert process.run.consume() == "finished"
    return process.member.broker.predictions


def places(predictions: list[bytes]) -> list[tuple[int, int]]:
    return [(p["partition"], p["offset"]) for p in map(json.loads, predictions)]


def test_the_order_is_that_of_the_highest_times_so_far(undisturbed: list[bytes]) -> None:
    expected: list[tuple[int, int, int]] = []
    for (_, number), records in spread().records.items():
        highest = 0
        for record in records:
            highest = max(highest, record.timestamp)
            expected.append((highest, number, record.offset))
    assert places(undisturbed) == [place[1:] for place in sorted(expected)]
    assert places(undisturbed) != sorted(places(undisturbed), key=lambda place: place[::-1])


def test_the_journal_says_how_partitions_alternate(
    broker: MemoryBroker, process: Process, undisturbed: list[bytes]
) -> None:
    process.run.recover()
    finish(process, undisturbed)
    entries: list[dict[str, Any]] = [json.loads(entry) for entry in broker.journal]
    several = [entry for entry in entries if entry["events"] > entry["first"]]
    assert all(entry["v"] == 2 and entry["order"] for entry in several)
    assert all(len(entry["slices"]) == 3 for entry in several)
    assert len(entries[0].get("order", "")) == 0


@pytest.mark.parametrize("events", range(10, EVENTS, 10))
def test_it_goes_on_where_a_dead_owner_was(
    broker: MemoryBroker, tmp_path: Path, events: int, undisturbed: list[bytes]
) -> None:
    owner = Process(broker, tmp_path)
    owner.run.recover()
    for _ in range(events // 10):
        advance(owner)()
    owner.run._step(None)  # and events that are never committed
    owner.die()
    successor = Process(broker, tmp_path)
    successor.run.recover()
    assert successor.run.events == events
    finish(successor, undisturbed)


def test_a_standby_follows_and_goes_on(
    process: Process, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    process.run.recover()
    standby = Process(process.member.broker, tmp_path / "own")
    step = advance(process)

    def last_words() -> None:
        step()
        process.die()

    follow(process, standby, [step, step, last_words])
    assert standby.phase is Phase.OWNING
    assert standby.in_memory() == process.in_memory()
    finish(standby, undisturbed)


def test_a_clean_stop_keeps_the_times(
    broker: MemoryBroker, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    for _ in range(6):  # each from a snapshot at exactly its position
        process = Process(broker, tmp_path)
        process.run.recover()
        process.run.consume(max_events=10)
        process.member.release()
    last = Process(broker, tmp_path)
    last.run.recover()
    finish(last, undisturbed)


def late(broker: MemoryBroker) -> list[tuple[int, int]]:
    """More events in two partitions, all of them before the last one of partition 1, which has been read;
    and their order: partition 1 counts as of that time.
    """
    for number in (0, 1):
        timestamps = [2_000 + 10 * i for i in range(10)]
        broker.add(some_events(200 + 50 * number, 10), ("events", number), timestamps)
    return [(number, offset) for number in (0, 1) for offset in range(10, 20)]


@pytest.mark.parametrize("way", ["same process", "killed", "stopped", "standby"])
def test_a_partition_that_was_ahead_stays_behind_the_others(tmp_path: Path, way: str) -> None:
    broker = MemoryBroker()
    for number, last in ((0, 1_090), (1, 5_000)):
        timestamps = [1_000 + 10 * i for i in range(9)] + [last]
        broker.add(some_events(20 * number, 10), ("events", number), timestamps)
    process = Process(broker, tmp_path)
    process.run.recover()
    if way == "stopped":
        assert process.run.consume() == "finished"
        process.member.release()
    standby = Process(broker, tmp_path / "own")
    if way == "standby":
        follow(process, standby, [advance(process), advance(process), process.die])
        process = standby
    elif way != "stopped":
        advance(process)()
        advance(process)()
    expected = late(broker)
    if way in ("killed", "stopped"):
        process.die()
        process = Process(broker, tmp_path)
        process.run.recover()
    assert process.run.events == 20
    assert process.run.consume() == "finished"
    assert places(broker.predictions)[20:] == expected
