"""Reading once more: what is held of one partition while another is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import OffsetOutOfRangeError

from streamforest.io.kafka import reader as kafka_reader
from streamforest.io.kafka.reader import KafkaReader

WANTED, OTHER = TopicPartition("wanted", 0), TopicPartition("other", 0)


def record(offset: int) -> Any:
    return SimpleNamespace(offset=offset, key=None, value=b"v" * 1_000, headers=[])


class Lopsided:
    """A consumer that brings what is wanted after twenty polls, and of the other one all it may."""

    def __init__(self) -> None:
        self.paused: set[Any] = set()
        self.polls = self.brought = 0

    def assign(self, partitions: list[Any]) -> None:
        """Both."""

    def seek(self, partition: Any, at: int) -> None:
        """At their beginning."""

    def pause(self, partition: Any) -> None:
        self.paused.add(partition)

    def resume(self, partition: Any) -> None:
        self.paused.discard(partition)

    def close(self, autocommit: bool) -> None:
        """Nothing is held."""

    def poll(self) -> dict[Any, list[Any]]:
        self.polls += 1
        if self.polls > 20 and WANTED not in self.paused:
            return {WANTED: [record(0)]}
        if OTHER in self.paused:
            return {}
        self.brought += 2
        return {OTHER: [record(self.brought - 2), record(self.brought - 1)]}


def test_what_is_held_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Lopsided()
    monkeypatch.setattr(kafka_reader, "_consumer", lambda client: consumer)
    monkeypatch.setattr(kafka_reader, "_poll", lambda consumer: consumer.poll())
    monkeypatch.setattr(kafka_reader, "_MAX_BUFFERED_BYTES", 18_000)
    reader = KafkaReader({}, {("wanted", 0): 0, ("other", 0): 0})
    assert [one.offset for one in reader.take(("wanted", 0), 0, 1)] == [0]
    assert consumer.brought == 10
    consumer.polls = 0
    assert len(reader.take(("other", 0), 2, 6)) == 4
    assert [one.offset for one in reader.take(("other", 0), 6, 30)] == list(range(6, 30))
    assert reader._bytes[OTHER] == 0
    assert [one.offset for one in reader.take(("other", 0), 30, 40, 3)] == [30, 31, 32]
    assert [one.offset for one in reader.take(("other", 0), 33, 40, 9)] == list(range(33, 40))


def test_records_that_were_deleted_before_they_were_read_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A standby asks whether the owner has work; to find some of it deleted must not end it."""

    def deleted(consumer: Any) -> Any:
        raise OffsetOutOfRangeError({WANTED: 0})

    monkeypatch.setattr(kafka_reader, "_consumer", lambda client: Lopsided())
    monkeypatch.setattr(kafka_reader, "_poll", deleted)
    assert KafkaReader({}, {("wanted", 0): 0}).has_any({WANTED: 5})
