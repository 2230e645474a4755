"""kafka-python's traps on the way to exactly-once, and the way out of each, in one place.

Each of the six has a test that fails without its remedy, so that we notice when a release mends one.

A. A consumer that was evicted reports generation -1 and no member id, and the broker accepts offsets
   sent with these. So the membership is captured when partitions are assigned (`captured`), and
   nothing else is ever committed with.
B. Offsets of a refused transaction leak into the next one of the same producer. So a producer that
   failed in any way is closed and replaced (`TransactionalProducer.replace`).
C. `commit_transaction()` can return with nothing committed, and a failed `send()` does not fail the
   transaction. So everything is sent, flushed and looked at one by one before offsets are added
   (`publish`), and a snapshot is deleted only after a newer one is named by `committed()` itself.
D. A consumer can stay in `<rebalancing>` for ever. `JoinWatch` asks it to join anew.
E. Calls made while the broker is down can be lost and then wait without end. The sender's
   `await_ready` must return False instead of raising (`mend_sender`), and every call that waits has a
   deadline (`within`).

F. `committed()` can answer with what was asked for long ago: a poll that looks for its position and runs
   out of time leaves its question behind, and the next one who asks for the same partitions gets the old
   answer. So the question is forgotten before it is asked (`committed_now`).

Two more were met on the way. Records of a partition that was paused are parked, and are not taken up
again after `resume` while an empty fetch is still the current one, which it is for ever if everything else
has been read: `unpark` lets go of it before each poll. And a batch larger than its topic allows is split by
the sender, after which `flush` fails for ever. So it is not split (`mend_sender`) but fails, and smaller
batches are made.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kafka import KafkaProducer
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
from streamforest.io.kafka.clients import made
from streamforest.io.kafka.compat import batches as kafka_batches
from streamforest.io.log import CommitInDoubt, OutputRecord

log = logging.getLogger(__name__)

NOT_OURS = (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    ProducerFencedError,
    UnknownMemberIdError,
)
"""What a process hears whose partitions are another's now."""
_STABLE = "<stable>"
_LEAST_BATCH = 4_096  # bytes; a batch of this size holds one message or a few


def captured(metadata: Any) -> Any | None:
    """A membership that the broker can fence; None if this one belongs to nobody (trap A)."""
    if metadata is None or metadata.generation_id < 0 or not metadata.member_id:
        return None
    return metadata


def within(seconds: float, call: Callable[..., Any], *args: Any) -> Any:
    """What `call` returns or raises; CommitInDoubt if it does neither in time (trap E).

    The thread of a call that never ends is left behind; it ends with the producer it waits for.
    """
    done = threading.Event()
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["value"] = call(*args)
        except BaseException as error:  # handed to the caller, whatever it is
            outcome["error"] = error
        finally:
            done.set()

    threading.Thread(target=work, daemon=True, name="kafka-call").start()
    if not done.wait(seconds):
        raise CommitInDoubt(f"{getattr(call, '__name__', 'a call')} had no answer in {seconds} s")
    if "error" in outcome:
        raise outcome["error"]
    return outcome.get("value")


def mend_sender(producer: Any) -> None:
    """Let the sender try again where it would lose a request (trap E), and never split a batch."""
    client = producer._sender._client
    usual = client.await_ready

    def await_ready(node: Any, timeout_ms: int = 30_000) -> bool:
        try:
            return bool(usual(node, timeout_ms=timeout_ms))
        except KafkaError:
            return False

    client.await_ready = await_ready
    producer._sender._can_split = lambda batch, error: False


def committed_now(consumer: Any, partition: Any, timeout_ms: int = 10_000) -> Any | None:
    """Offset and metadata that the broker has for a partition at this moment (trap F)."""
    coordinator = consumer._coordinator

    async def ask() -> Any:
        coordinator._offset_fetch_futures.pop(frozenset([partition]), None)
        return await coordinator.fetch_committed_offsets_async([partition], timeout_ms)

    return coordinator._net.run(ask).get(partition)


def unpark(consumer: Any) -> None:
    """Let records of a partition that was paused and resumed be read: call it before a poll."""
    fetcher = consumer._fetcher
    current = fetcher._next_partition_records
    if current is not None and not current:
        fetcher._next_partition_records = None


def _outcome(future: Any) -> tuple[int, BaseException | None]:
    """Where the broker put one message, and None; or the error it had."""
    if not future.is_done:
        return -1, KafkaError("no answer from the broker")
    if future.failed():
        return -1, future.exception
    return int(future.value.offset), None


class JoinWatch:
    """Asks a consumer that has not been stable for a while to join its group anew (trap D)."""

    def __init__(self, consumer: Any, patience: float = 15.0) -> None:
        self._consumer = consumer
        self._patience = patience
        self._stable = time.monotonic()

    def look(self) -> bool:
        """Call it after each poll; True if it had to ask."""
        now = time.monotonic()
        if self._consumer.group_metadata().state == _STABLE:
            self._stable = now
            return False
        if now - self._stable < self._patience:
            return False
        log.warning("not stable in the group for %.0f s; joining anew", now - self._stable)
        self._consumer._coordinator.request_rejoin()
        self._stable = now
        return True


def answered_ago(consumer: Any) -> float:
    """Seconds since the group's coordinator last answered; poll itself does not tell of silence."""
    heartbeat = consumer._coordinator.heartbeat
    return float(time.monotonic() - max(heartbeat.last_receive, heartbeat.last_reset))


class TransactionalProducer:
    """A producer that is replaced after any failure, with a deadline on every wait."""

    def __init__(self, settings: Callable[[], Mapping[str, Any]], deadline: float = 15.0) -> None:
        """`settings` is asked for each producer: a password or a certificate may have changed."""
        self._settings = settings
        self.deadline = deadline
        self._producer: Any = None
        self._lanes: dict[str, int] = {}
        self._most = 512 * 1024

    def replace(self) -> None:
        """Close the producer, if there is one, and begin with a new one that fences all others."""
        self.close()
        settings = self._settings()
        producer = made(KafkaProducer, **settings)
        mend_sender(producer)
        self._producer = producer
        self._lanes.clear()  # to be asked for anew: that is how a producer gets to know a topic
        if "transactional_id" in settings:
            producer.init_transactions()

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def publish(self, messages: Mapping[str, Sequence[OutputRecord]]) -> int:
        """Send everything, topic by topic, wait, and look at every single outcome (trap C); the
        offset of the very last message.
        """
        outcomes: list[Callable[[], tuple[int, BaseException | None]]] = []
        send = self._in_batches if kafka_batches.usable() else self._one_by_one
        for topic, several in messages.items():
            for lane, those in self._by_lane(topic, several).items():
                outcomes += send(topic, lane, those)
        self._producer.flush(timeout=self.deadline)
        last = -1
        for outcome in outcomes:
            last, error = outcome()
            if isinstance(error, (AuthorizationError, *NOT_OURS)):
                raise error  # no doubt about these, and asking again changes nothing
            if error is not None:
                self._heed(error)
                raise CommitInDoubt(f"a message was not taken by the broker: {error!r}")
        if last < 0:  # a repeated batch that the broker had already: it does not say where
            raise CommitInDoubt("the broker did not say where it put the last message")
        return last

    def partitions(self, topic: str) -> int:
        """How many a topic has, as of when this producer first asked."""
        count = self._lanes.get(topic)
        if count is None:
            count = self._lanes[topic] = len(self._producer.partitions_for(topic))
        return count

    def _by_lane(
        self, topic: str, messages: Sequence[OutputRecord]
    ) -> dict[int, list[OutputRecord]]:
        count = self.partitions(topic)
        lanes: dict[int, list[OutputRecord]] = {}
        for message in messages:
            lane = message.partition % count
            if lane in lanes:
                lanes[lane].append(message)
            else:
                lanes[lane] = [message]
        return lanes

    def _in_batches(self, topic: str, lane: int, messages: Sequence[OutputRecord]) -> list[Any]:
        batches = kafka_batches.append(self._producer, topic, lane, messages, self._most)
        return [partial(kafka_batches.outcome, batch) for batch in batches]

    def _one_by_one(self, topic: str, lane: int, messages: Sequence[OutputRecord]) -> list[Any]:
        futures = [
            self._producer.send(topic, message.value, message.key, message.headers, lane)
            for message in messages
        ]
        return [partial(_outcome, future) for future in futures]

    def _heed(self, error: BaseException) -> None:
        """Make smaller batches where these are larger than the topic allows."""
        if not isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
            return
        if self._most <= _LEAST_BATCH:
            raise BrokerError(
                f"a message is larger than its topic allows ({error}): raise max.message.bytes of "
                "the pipeline's own topics, or lower predictions.top_k"
            ) from error
        self._most //= 4

    def add_offsets(self, offsets: Mapping[Any, Any], membership: Any) -> None:
        """Put the consumed offsets into the transaction."""
        within(self.deadline, self._producer.send_offsets_to_transaction, offsets, membership)

    def commit(self) -> None:
        """Commit the transaction."""
        within(self.deadline, self._producer.commit_transaction)

    def close(self) -> None:
        """Let go of the producer, without waiting for what it has not sent."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        # its own `close` first waits for what is unsent, and gives up with the sender still running
        producer._sender.force_close()
        producer._sender.join(1.0)
        try:
            within(5.0, lambda: producer.close(timeout=1))
        except (KafkaError, CommitInDoubt) as error:
            log.info("a producer did not close cleanly: %s", error)
