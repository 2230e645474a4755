"""kafka-python's traps on the way to exactly-once, and the way out of each, in one place.

Each of the five has a test that fails without its remedy, so that we notice when a release mends one.

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
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import KafkaProducer
from kafka.errors import AuthorizationError, KafkaError

from streamforest.stream.records import CommitInDoubt, Outgoing

log = logging.getLogger(__name__)

_STABLE = "<stable>"


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
    """Let the sender try again where it would lose a request (trap E)."""
    client = producer._sender._client
    usual = client.await_ready

    def await_ready(node: Any, timeout_ms: int = 30_000) -> bool:
        try:
            return bool(usual(node, timeout_ms=timeout_ms))
        except KafkaError:
            return False

    client.await_ready = await_ready


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


class TransactionalProducer:
    """A producer that is replaced after any failure, with a deadline on every wait."""

    def __init__(self, settings: Mapping[str, Any], deadline: float = 15.0) -> None:
        self._settings = dict(settings)
        self.deadline = deadline
        self._producer: Any = None
        self._lanes: dict[str, int] = {}

    @property
    def transactional(self) -> bool:
        """Whether it publishes in transactions."""
        return "transactional_id" in self._settings

    def replace(self) -> None:
        """Close the producer, if there is one, and begin with a new one that fences all others."""
        self.close()
        producer = KafkaProducer(**self._settings)
        mend_sender(producer)
        self._producer = producer
        if self.transactional:
            producer.init_transactions()

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def publish(self, messages: Iterable[tuple[str, Outgoing]]) -> list[Any]:
        """Send everything, wait, and look at every single outcome (trap C); their metadata."""
        producer = self._producer
        send, lanes = producer.send, self._lanes
        futures = []
        for topic, message in messages:
            count = lanes.get(topic)
            if count is None:
                count = lanes[topic] = len(producer.partitions_for(topic))
            futures.append(
                send(
                    topic,
                    message.value,
                    message.key,
                    message.headers,
                    message.lane % count,
                )
            )
        producer.flush(timeout=self.deadline)
        for future in futures:
            if future.is_done and isinstance(future.exception, AuthorizationError):
                raise future.exception  # no doubt about this one, and asking again changes nothing
            if not future.is_done or future.failed():
                raise CommitInDoubt(f"a message was not taken by the broker: {future.exception!r}")
        return futures

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
        try:
            within(5.0, lambda: producer.close(timeout=1))
        except (KafkaError, CommitInDoubt) as error:
            log.info("a producer did not close cleanly: %s", error)
