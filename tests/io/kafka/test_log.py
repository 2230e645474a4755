"""What the Kafka log and its parts do without asking their broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import (
    CorruptRecordError,
    KafkaConnectionError,
    LogTruncationError,
    OffsetOutOfRangeError,
)

from streamforest.errors import BrokerError, RecordsGoneError, RecoveryError
from streamforest.io.kafka.compat.workarounds import create_client
from streamforest.io.kafka.log import kafka_log
from streamforest.io.kafka.membership import KafkaMembership, TopicAssignment
from streamforest.io.kafka.reader import JournalTail, KafkaReader
from streamforest.io.kafka.retry import RetryPolicy
from streamforest.io.kafka.settings import KafkaSettings, check_partition_counts, for_partition
from streamforest.io.kafka.topics import TopicCheck, Topics
from streamforest.io.log import CommitInDoubt, Log, Transaction

SETTINGS = KafkaSettings("127.0.0.1:1", Topics.of("p"), "p")


def new_log() -> tuple[Log, KafkaMembership]:
    log = kafka_log(SETTINGS)
    assert isinstance(log.membership, KafkaMembership)
    return log, log.membership


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses, and nobody is asked what is wrong."""
    monkeypatch.setattr("streamforest.io.kafka.retry.time.sleep", lambda seconds: None)
    monkeypatch.setattr("streamforest.io.kafka.retry.diagnose", lambda where: None)


@pytest.mark.usefixtures("at_once")
def test_a_batch_that_stays_damaged_is_not_read_for_ever() -> None:
    retry = RetryPolicy(SETTINGS)
    for offset in (3, 4, 4, 4, 4):
        retry.back_off("poll", CorruptRecordError(f"t-0 at offset {offset}: wrong checksum"))
        retry.back_off("poll", KafkaConnectionError("away"))
        retry.recovered()  # other partitions are read meanwhile
    with pytest.raises(BrokerError, match="t-0 at offset 4"):
        retry.back_off("poll", CorruptRecordError("t-0 at offset 4: wrong checksum"))


# ---- commits that fail


def nothing() -> Transaction:
    return Transaction(0, [], [], b"", {}, str)


def describing(monkeypatch: pytest.MonkeyPatch, missing: set[str]) -> None:
    """Let the broker say that it lacks these topics."""

    @contextmanager
    def asking(where: Any) -> Iterator[Any]:
        yield SimpleNamespace(
            describe_topics=lambda names: [
                {"name": name, "error_code": 3 if name in missing else 0} for name in names
            ]
        )

    monkeypatch.setattr("streamforest.io.kafka.retry.asking", asking)


@pytest.mark.usefixtures("at_once")
def test_a_failed_commit_is_trouble_until_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    describing(monkeypatch, set())
    log, membership = new_log()
    monkeypatch.setattr(membership.assignment, "trouble", lambda: None)
    for _ in range(12):
        with pytest.raises(CommitInDoubt):
            log.sink.commit(nothing())
        membership.retry.recovered()  # the broker answers all the while
        assert membership.trouble() == "commit: no longer a member of the group"
        membership.retry.found(None)  # and says that the last commit is the same as ever
    assert membership.trouble() is not None
    membership.retry.found("another")
    assert membership.trouble() is None
    with pytest.raises(CommitInDoubt):
        log.sink.commit(nothing())
    assert membership.trouble() is not None
    monkeypatch.setattr(log.sink, "_commit", lambda transaction: None)
    log.sink.commit(nothing())
    assert membership.trouble() is None


@pytest.mark.usefixtures("at_once")
def test_a_topic_that_keeps_commits_from_succeeding_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    describing(monkeypatch, {"p.dlq"})
    log, _ = new_log()
    with pytest.raises(CommitInDoubt):
        log.sink.commit(nothing())
    with pytest.raises(BrokerError, match=r"has no topic 'p\.dlq' any more"):
        log.sink.commit(nothing())


# ---- partitions and topics that come and go


def test_a_partition_without_a_journal_of_its_own_is_refused() -> None:
    counts = {"p.events": 3, "p.journal": 2, "p.labels": 2}
    check_partition_counts(SETTINGS, counts.__getitem__)
    check_partition_counts(for_partition(SETTINGS, 1), counts.__getitem__)
    with pytest.raises(BrokerError, match=r"'p.journal' needs 3 .*'p.events' has, and has 2"):
        check_partition_counts(for_partition(SETTINGS, 2), counts.__getitem__)
    counts["p.journal"] = 4
    check_partition_counts(for_partition(SETTINGS, 2), counts.__getitem__)
    late = KafkaSettings("127.0.0.1:1", Topics.of("p", labels="p.labels"), "p", partition=2)
    with pytest.raises(BrokerError, match=r"'p.labels' needs 3 .*'p.events' has, and has 2"):
        check_partition_counts(late, counts.__getitem__)


def test_a_topic_that_is_gone_is_told_from_one_that_another_owns() -> None:
    there: dict[str, set[int]] = {"p.events": {0}}
    consumer = SimpleNamespace(_cluster=SimpleNamespace(partitions_for_topic=there.get))
    patient, brief = TopicCheck(SETTINGS, 1e9), TopicCheck(SETTINGS, 0.0)
    for absence in (patient, brief):
        absence.look(consumer)
    there.clear()
    patient.look(consumer)
    with pytest.raises(BrokerError, match=r"no topic 'p\.events' any more"):
        brief.look(consumer)
    there["p.events"] = {0}
    brief.look(consumer)


class Seeking:
    """A consumer whose partition was taken away."""

    _fetcher = SimpleNamespace(_handle_fetch_response=None)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        raise ValueError("Unassigned partition")


def test_positions_in_partitions_that_are_gone_are_named() -> None:
    log, membership = new_log()
    assignment = membership.assignment
    assignment.consumer = Seeking()
    assignment.partitions = [TopicPartition("p.events", 0)]
    assignment.attach()
    with pytest.raises(RecordsGoneError, match=r"offset 7 of p\.events-1, which is not among"):
        log.source.seek({("p.events", 0): 5, ("p.events", 1): 7}, {})
    assert assignment.is_ours()
    log.source.seek({("p.events", 0): 5}, {})  # taken away in this moment: it is attached anew
    assert not assignment.is_ours()


def test_trouble_is_told_while_the_consumer_goes() -> None:
    """It is asked for from another thread."""

    class Leaving(TopicAssignment):
        asked = 0

        @property
        def consumer(self) -> Any:
            self.asked += 1
            return SimpleNamespace(_coordinator=self) if self.asked == 1 else None

        @consumer.setter
        def consumer(self, value: Any) -> None: ...

        heartbeat = SimpleNamespace(last_receive=float("inf"), last_reset=0.0)

    assignment = Leaving(SETTINGS)
    assignment.attach()
    assignment.asked = 0
    assert assignment.trouble() is None


# ---- what cannot be read any more


class Refusing:
    """A consumer whose polls fail."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self._fetcher = SimpleNamespace(_next_partition_records=None)

    def poll(self, **how: Any) -> Any:
        raise self.error

    def resume(self, *partitions: TopicPartition) -> None: ...


def test_a_log_that_was_cut_short_is_an_error() -> None:
    log, membership = new_log()
    membership.assignment.attach()
    membership.assignment.consumer = Refusing(
        LogTruncationError({TopicPartition("p.events", 0): None})
    )
    with pytest.raises(RecoveryError, match="lost events that were read already"):
        log.source.poll(1, 0.0)


def test_a_journal_that_was_made_anew_is_an_error() -> None:
    tail = JournalTail.__new__(JournalTail)
    tail._tp = TopicPartition("p.journal", 0)
    tail._consumer = Refusing(OffsetOutOfRangeError({tail._tp: 9}))
    with pytest.raises(RecoveryError, match=r"'p.journal' has no records .* recreated"):
        tail.poll()


def test_the_partition_whose_events_are_gone_is_named() -> None:
    reader = KafkaReader.__new__(KafkaReader)
    wanted, other = TopicPartition("p.events", 0), TopicPartition("p.events", 1)
    reader._buffers = {}
    reader._consumer = Refusing(OffsetOutOfRangeError({other: 33}))
    with pytest.raises(RecoveryError, match=r"events of p\.events-1 at offset 33 are gone"):
        reader._fill(wanted)


def test_a_record_of_any_size_is_received() -> None:
    consumer = create_client(KafkaConsumer, **SETTINGS.consumer(), api_version=(3, 0))
    try:
        assert consumer._manager.config["receive_message_max_bytes"] > 2 << 29
    finally:
        consumer.close(autocommit=False, timeout_ms=100)
