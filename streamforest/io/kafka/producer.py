"""The one way in which this package writes in transactions: consumer and `dlq replay` alike.

It is written so that none of kafka-python's faults (see `compat.workarounds`) can make a commit that
did not happen look like one that did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import KafkaProducer
from kafka.errors import (
    AuthorizationError,
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    RecordListTooLargeError,
    UnknownMemberIdError,
)

from streamforest.errors import BrokerError
from streamforest.io.kafka.compat import batches
from streamforest.io.kafka.compat.workarounds import (
    call_with_timeout,
    close_producer,
    create_client,
    patch_sender,
)
from streamforest.io.log import CommitInDoubt, OutputRecord

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
