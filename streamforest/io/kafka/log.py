"""A Kafka topic as the log of a pipeline: read in a group (`source`), answered in transactions.

Written against kafka-python; its bugs are worked around in `compat/workarounds`. Which partitions are ours is
known by `membership` or `partition_membership`; `retry` says what happens while the broker is away.
Everything here is called from one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing

from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import AuthorizationError, KafkaError

from streamforest.errors import BrokerError
from streamforest.io.failpoints import failpoint
from streamforest.io.kafka.compat.workarounds import committed_now
from streamforest.io.kafka.membership import Assignment, KafkaMembership, TopicAssignment
from streamforest.io.kafka.producer import NOT_OURS, TransactionalProducer
from streamforest.io.kafka.reader import JournalTail, commit_number, read_journal
from streamforest.io.kafka.retry import RetryPolicy, not_allowed
from streamforest.io.kafka.settings import KafkaSettings
from streamforest.io.kafka.source import KafkaSource
from streamforest.io.kafka.topics import Topics
from streamforest.io.log import (
    CommitInDoubt,
    Log,
    OutputRecord,
    Transaction,
)

_METADATA_LIMIT = 4096


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
