"""Writes in transactions: the producer of consumer and `dlq replay` alike, and the sink of a pipeline.

It is written so that none of kafka-python's faults (see `compat.workarounds`) can make a commit that
did not happen look like one that did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import (
    AuthorizationError,
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    RecordListTooLargeError,
    UnknownMemberIdError,
)

from streamforest.errors import BrokerError
from streamforest.io.failpoints import failpoint
from streamforest.io.kafka.compat import batches
from streamforest.io.kafka.compat.workarounds import (
    call_with_timeout,
    close_producer,
    create_client,
    patch_sender,
)
from streamforest.io.kafka.membership import KafkaMembership
from streamforest.io.kafka.retry import not_allowed
from streamforest.io.kafka.topics import Topics
from streamforest.io.log import CommitInDoubt, OutputRecord, Transaction

NOT_OURS = (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    ProducerFencedError,
    UnknownMemberIdError,
)
"""What the broker answers to a process whose partitions belong to another process now."""
_SMALLEST_BATCH = 4_096  # bytes; a batch of this size holds one message or a few
_METADATA_LIMIT = 4096


class TransactionalProducer:
    """A producer that is replaced after any failure, with a deadline on every wait."""

    def __init__(self, settings: Callable[[], Mapping[str, Any]], deadline: float = 15.0) -> None:
        """`settings` is called for each producer: a password or a certificate may have changed."""
        self._settings = settings
        self.deadline = deadline
        self._producer: Any = None
        self._partition_counts: dict[str, int] = {}
        self._batch_bytes = 512 * 1024

    def replace(self) -> None:
        """Close the producer, if there is one, and begin with a new one that fences all others."""
        self.close()
        settings = self._settings()
        producer = create_client(KafkaProducer, **settings)
        patch_sender(producer)
        self._producer = producer
        self._partition_counts.clear()  # asking again is how a producer gets to know a topic
        if "transactional_id" in settings:
            producer.init_transactions()

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def publish(self, messages: Mapping[str, Sequence[OutputRecord]]) -> int:
        """Send all messages, topic by topic, wait, and check the outcome of each (C).

        Returns the offset of the very last message.
        """
        sent = [
            batch
            for topic, several in messages.items()
            for partition, own in self._by_partition(topic, several).items()
            for batch in batches.append(self._producer, topic, partition, own, self._batch_bytes)
        ]
        self._producer.flush(timeout=self.deadline)
        last = -1
        for batch in sent:
            last, error = batches.outcome(batch)
            if isinstance(error, (AuthorizationError, *NOT_OURS)):
                raise error  # certain, and the same at the next attempt
            if error is not None:
                self._shrink_batches(error)
                raise CommitInDoubt(f"the broker did not take a message: {error!r}")
        if last < 0:  # a repeated batch that the broker had already: it does not say where
            raise CommitInDoubt("the broker did not say where it put the last message")
        return last

    def partitions(self, topic: str) -> int:
        """How many partitions a topic had when this producer first asked."""
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = len(self._producer.partitions_for(topic))
        return count

    def _by_partition(
        self, topic: str, messages: Sequence[OutputRecord]
    ) -> dict[int, list[OutputRecord]]:
        count = self.partitions(topic)
        by_partition: dict[int, list[OutputRecord]] = {}
        for message in messages:
            number = message.partition % count
            if number in by_partition:
                by_partition[number].append(message)
            else:
                by_partition[number] = [message]
        return by_partition

    def _shrink_batches(self, error: BaseException) -> None:
        """Write smaller batches from now on if these were larger than the topic allows (H)."""
        if not isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
            return
        if self._batch_bytes <= _SMALLEST_BATCH:
            raise BrokerError(
                f"a message is larger than its topic allows ({error}): raise max.message.bytes of "
                "the topic; if it is a prediction, lowering predictions.top_k helps too"
            ) from error
        self._batch_bytes //= 4

    def add_offsets(self, offsets: Mapping[Any, Any], membership: Any) -> None:
        """Put the consumed offsets into the transaction."""
        call_with_timeout(
            self.deadline, self._producer.send_offsets_to_transaction, offsets, membership
        )

    def commit(self) -> None:
        """Commit the transaction."""
        call_with_timeout(self.deadline, self._producer.commit_transaction)

    def close(self) -> None:
        """Close the producer without waiting for what it has not sent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            close_producer(producer)


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
