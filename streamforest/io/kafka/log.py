"""A Kafka topic as the log of a pipeline: read in a group, answered in transactions.

Written against kafka-python; its bugs are worked around in `compat/workarounds`. Which partitions are ours is
known by `membership` or `partition_membership`; `retry` says what happens while the broker is away.
Everything here is called from one thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Any

from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import (
    AuthorizationError,
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from streamforest.errors import BrokerError, RecoveryError
from streamforest.io.failpoints import failpoint
from streamforest.io.kafka.compat.workarounds import committed_now, unpark
from streamforest.io.kafka.membership import Assignment, KafkaMembership, TopicAssignment
from streamforest.io.kafka.merge import Alignment
from streamforest.io.kafka.producer import NOT_OURS, TransactionalProducer
from streamforest.io.kafka.reader import JournalTail, KafkaReader, commit_number, read_journal
from streamforest.io.kafka.retry import RetryPolicy, not_allowed
from streamforest.io.kafka.settings import KafkaSettings
from streamforest.io.kafka.stalls import StallWatch
from streamforest.io.kafka.topics import Topics
from streamforest.io.log import (
    CommitInDoubt,
    Log,
    OutputRecord,
    Partition,
    RecordSlice,
    Transaction,
)

log = logging.getLogger(__name__)

_METADATA_LIMIT = 4096
_ALIGNED_POLL = 0.05  # seconds a poll may take while records are in hand


class KafkaSource:
    """The events (and labels) of the partitions that are ours."""

    def __init__(self, membership: KafkaMembership) -> None:
        self.settings = settings = membership.settings
        self.membership = membership
        self._assignment, self._retry = membership.assignment, membership.retry
        self._stalls = StallWatch(membership.assignment, settings.stall_seconds)
        self._aligned: Alignment | None = None
        if settings.merge_wait_seconds is not None:
            self._aligned = Alignment(settings.merge_wait_seconds)

    def seek(self, positions: Mapping[Partition, int]) -> None:
        """Continue from here, with everything resumed; nothing if it was all taken away meanwhile."""
        assignment = self._assignment
        if not assignment.is_ours():
            return
        assignment.refuse_gone(positions)
        with assignment.while_ours():
            for partition, offset in positions.items():
                assignment.consumer.seek(TopicPartition(*partition), offset)
            assignment.consumer.resume(*assignment.partitions)
        self._stalls.begin()
        self.membership.paused = set()
        if self._aligned is not None:
            self._aligned.begin([tuple(tp) for tp in assignment.partitions])

    def poll(self, max_records: int, timeout: float) -> list[RecordSlice] | None:
        """The next records; None if partitions were assigned again in the meantime."""
        assignment = self._assignment
        if not assignment.is_ours():
            return None
        if self._aligned is not None and len(self._aligned):
            timeout = min(timeout, _ALIGNED_POLL)
        unpark(assignment.consumer)
        try:
            polled = assignment.consumer.poll(
                timeout_ms=int(timeout * 1000), max_records=max_records
            )
        except OffsetOutOfRangeError as error:
            raise RecoveryError(
                f"events are gone from the log before they were read ({error}): raise the topic's "
                "retention; to go on without them, start the pipeline under another name"
            ) from error
        except LogTruncationError as error:
            raise RecoveryError(
                f"the broker has lost events that were read already ({error}), as an unclean leader "
                "election does: start the pipeline under another name"
            ) from error
        except NoOffsetForPartitionError:
            polled = {}  # a partition that was just added: its assignment comes with the next poll
        except KafkaError as error:
            self._retry.back_off("poll", error)
            polled = {}
        except (KeyError, AssertionError) as error:
            log.info("the assignment has changed: %r", error)
            assignment.detach()
            return None
        assignment.watch()
        if not assignment.is_ours():
            return None
        if polled:
            self._retry.recovered()
        self._retry.heard(assignment.silent_for())
        self._stalls.note(polled, self.membership.paused)
        if self._aligned is not None:
            return self._side_by_side(self._aligned, polled, max_records)
        return [
            RecordSlice((tp.topic, tp.partition), batch[0].offset, batch[-1].offset + 1, batch)
            for tp, batch in polled.items()
            if batch
        ]

    def _side_by_side(
        self, aligned: Alignment, polled: Mapping[TopicPartition, list[Any]], max_records: int
    ) -> list[RecordSlice]:
        """The next records by their times; partitions with plenty in hand are paused."""
        for tp, batch in polled.items():
            aligned.add(tuple(tp), batch)
        taken = aligned.take(max_records, time.monotonic(), self._behind)
        full = {TopicPartition(*partition) for partition in aligned.full()}
        paused = self.membership.paused
        with self._assignment.while_ours():
            self._assignment.consumer.pause(*(full - paused))
            self._assignment.consumer.resume(*(paused - full))
        self.membership.paused = full
        return taken

    def _behind(self, partitions: list[Partition]) -> list[Partition]:
        """Those that have more than was polled, or of which nothing is known yet."""
        consumer = self._assignment.consumer
        found = []
        for partition in partitions:
            tp = TopicPartition(*partition)
            end = consumer.highwater(tp)
            if end is None or consumer.position(tp) < end:
                found.append(partition)
        return found

    def reader(self, positions: Mapping[Partition, int]) -> KafkaReader:
        """A reader of the input from these positions on."""
        return KafkaReader(self.settings.client(), positions)

    def lag(self) -> dict[Partition, int]:
        """Records known to the broker at the last fetch and not yet polled."""
        return self._stalls.lag()

    def ends(self) -> dict[Partition, int]:
        """Where all partitions end now."""
        found = self._assignment.consumer.end_offsets(self._assignment.partitions)
        return {tuple(tp): offset for tp, offset in found.items()}

    def at_end(self) -> bool:
        """Whether every partition has been read to where it ends now."""
        assignment = self._assignment
        if not assignment.is_ours() or (self._aligned is not None and len(self._aligned)):
            return False
        try:
            ends = assignment.consumer.end_offsets(assignment.partitions)
            return all(assignment.consumer.position(tp) >= end for tp, end in ends.items())
        except (KafkaError, AssertionError, KeyError):
            return False


class KafkaSink:
    """Predictions, dead letters, journal and offsets, in one transaction."""

    numbers_commits = True

    def __init__(self, membership: KafkaMembership, producer: TransactionalProducer) -> None:
        self.settings = membership.settings
        self._assignment, self._retry = membership.assignment, membership.retry
        self._producer = producer

    def commit(self, transaction: Transaction) -> None:
        """Make predictions, dead letters, journal and offsets true at once.

        1. Nobody commits who is not a member: the membership captured at assignment (trap A).
        2. Begin, send everything, flush, and look at every single outcome (trap C).
        3. The journal's offset is known now, and with it the metadata of the offsets.
        4. Offsets of all owned partitions into the same transaction.
        5. Commit: the only decision point.

        After any failure the outcome is unknown until the log is acquired again, with a new producer
        (trap B). A commit that fails again and again is reported by `trouble`.
        """
        try:
            self._commit(transaction)
        except CommitInDoubt as doubt:
            self._retry.doubted(doubt)
            raise
        self._retry.committed()

    def _commit(self, transaction: Transaction) -> None:
        assignment, settings, producer = self._assignment, self.settings, self._producer
        membership = assignment.membership
        if membership is None or not assignment.is_ours():
            raise CommitInDoubt("no longer a member of the group")
        try:
            if settings.exactly_once:
                producer.begin()
            place = producer.publish(
                _messages(settings.topics, transaction, settings.partition or 0)
            )
            failpoint("after-produce")
            metadata = transaction.metadata(place)
            if len(metadata.encode()) > _METADATA_LIMIT:
                raise BrokerError(f"metadata of {len(metadata)} bytes; a bug")
            offsets = {
                TopicPartition(*partition): OffsetAndMetadata(offset, metadata, -1)
                for partition, offset in transaction.positions.items()
            }
            if settings.exactly_once:
                producer.add_offsets(offsets, membership)
                failpoint("before-commit")
                producer.commit()
            else:
                failpoint("before-commit")
                assignment.consumer.commit(offsets, timeout_ms=10_000)
            failpoint("after-commit")
        except NOT_OURS as error:
            # whoever owns the partitions now has fenced us; to fence them back would be wrong
            assignment.refused()
            raise CommitInDoubt(f"{type(error).__name__}: {error}") from error
        except AuthorizationError as error:
            raise not_allowed(settings, error) from error
        except KafkaError as error:
            raise CommitInDoubt(f"{type(error).__name__}: {error}") from error


def _messages(
    topics: Topics, transaction: Transaction, partition: int
) -> dict[str, list[OutputRecord]]:
    """What is published, by topic; the journal last, since its place is asked for."""
    return {
        topics.predictions: transaction.predictions,
        topics.dead_letters: transaction.dead_letters,
        topics.journal: [
            OutputRecord(transaction.journal, str(transaction.number).encode(), partition=partition)
        ],
    }


class KafkaJournal:
    """The journal topic, and the metadata of the committed offsets."""

    def __init__(self, settings: KafkaSettings, assignment: Assignment) -> None:
        self.settings = settings
        self.committed_only = settings.exactly_once
        self._assignment = assignment

    def read(
        self, since: int, until: int | None, keep_alive: Callable[[], None] = lambda: None
    ) -> Generator[tuple[int, bytes], None, None]:
        """Records after offset `since`, up to and including `until`, or all there are now."""
        settings = self.settings
        if until is None:
            with closing(self.tail(since)) as tail:
                yield from tail.records(keep_alive)
            return
        client, topic = settings.client(), settings.topics.journal
        yield from read_journal(client, topic, since, until, settings.partition or 0)

    def tail(self, since: int) -> JournalTail:
        """The records after offset `since`, as they are written."""
        settings = self.settings
        return JournalTail(
            settings.client(), settings.topics.journal, since, settings.partition or 0
        )

    def last_commit(self) -> str | None:
        """The metadata of the group's last commit, whichever process made it."""
        found = []
        consumer, topic, partition = (
            self._assignment.consumer,
            self.settings.topics.events,
            self.settings.partition,
        )
        try:
            for number in sorted(consumer.partitions_for_topic(topic) or ()):
                if partition not in (None, number):
                    continue
                offset = committed_now(consumer, TopicPartition(topic, number))
                if offset is not None and offset.metadata:
                    found.append(str(offset.metadata))
        except KafkaError as error:
            raise BrokerError(f"the last commit cannot be asked for: {error}") from error
        return max(found, key=commit_number, default=None)


def kafka_log(settings: KafkaSettings, assignment: Assignment | None = None) -> Log:
    """The log of a pipeline on a broker; of the whole topic, unless an assignment says otherwise."""
    assignment = assignment or TopicAssignment(settings)
    producer = TransactionalProducer(settings.producer)
    membership = KafkaMembership(settings, assignment, producer, RetryPolicy(settings))
    return Log(
        KafkaSource(membership),
        KafkaSink(membership, producer),
        KafkaJournal(settings, assignment),
        membership,
    )
