"""A partition that has records and brings none is fetched again; one that is paused is not meant to."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from streamforest.io.kafka import source
from streamforest.io.kafka.source import StallWatch

ONE = TopicPartition("events", 0)


class Consumer:
    """Has read five records of ten."""

    def __init__(self) -> None:
        self.sought: list[int] = []

    def assignment(self) -> set[TopicPartition]:
        return {ONE}

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)

    def position(self, partition: TopicPartition) -> int:
        return 5

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.sought.append(offset)

    def resume(self, partition: TopicPartition) -> None:
        """It is not paused."""


def test_a_partition_is_not_stalled_while_it_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(source.time, "monotonic", lambda: clock.now)
    consumer = Consumer()
    assignment: Any = SimpleNamespace(
        consumer=consumer, partitions=[ONE], while_ours=lambda: nullcontext()
    )
    watch = StallWatch(assignment, 60.0)
    watch.note({ONE: [SimpleNamespace(offset=4)]}, set())
    for clock.now in (30.0, 59.0, 100.0, 500.0):
        watch.note({}, {ONE})
    for clock.now in (501.0, 559.0):  # read on: its time begins anew
        watch.note({}, set())
    assert consumer.sought == []
    clock.now = 561.0
    watch.note({}, set())
    assert consumer.sought == [5]
