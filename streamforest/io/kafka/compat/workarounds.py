"""What kafka-python gets wrong on the way to exactly-once, and what we do about each.

The letters are used in the code wherever one of these matters. Each has a test in
`tests/integration/test_kafka_workarounds.py` that holds with the workaround and shows the fault without it:
when a release of kafka-python fixes the fault, the test fails and the workaround can go.

A. A consumer that the group has evicted reports generation -1 and no member id, and the broker accepts
   offsets sent with these. So the membership is read once, when partitions are assigned, and nothing else
   is ever committed with (`valid_membership`; `test_a_zombies_commit_is_refused`).
B. Offsets of a refused transaction leak into the next one of the same producer. So a producer that failed in
   any way is closed and replaced (`TransactionalProducer.replace` in `producer`;
   `test_offsets_of_a_refused_transaction_do_not_leak_into_the_next`).
C. `commit_transaction()` can return with nothing committed, and a failed `send()` does not fail the
   transaction. So everything is sent and flushed, and each outcome is checked, before offsets are added
   (`TransactionalProducer.publish`; `test_a_message_without_an_answer_fails_the_commit`).
D. A consumer can stay in the state `<rebalancing>` for ever. `JoinWatch` makes it join again
   (`test_a_consumer_that_hangs_in_a_join_is_asked_to_join_anew`). Its metadata can also stop being refreshed:
   the task that does so ends with the first error that is no KafkaError. So a consumer that was asked to
   join several times in vain is replaced (`JoinWatch.in_vain`;
   `test_a_consumer_that_cannot_join_is_replaced`).
E. A call made while the broker is down can be lost, and then waits without end. The sender's
   `await_ready` must return False instead of raising (`patch_sender`), and every call that waits has a
   deadline (`call_with_timeout`; `test_a_call_made_while_the_broker_is_down_is_not_lost`).
F. `committed()` can give an old answer: a poll that looks up its position and runs out of time leaves its
   request behind, and the next caller who asks for the same partitions gets the answer to that. So the
   request is forgotten before a new one is made (`committed_now`;
   `test_f_committed_offsets_are_asked_for_anew`).
G. After `resume`, records of a partition that was paused are not returned while an empty fetch is the current
   one, which it stays if everything else has been read; nor by the poll that finds the current one paused,
   which sleeps instead. So an empty fetch is dropped before each poll, and a paused one put aside (`unpark`;
   `test_records_of_a_paused_partition_come_back`).
H. The sender splits a batch that is larger than its topic allows, after which `flush` fails for ever. So the
   batch fails instead, and the producer writes smaller ones (`patch_sender`;
   `test_batches_shrink_to_what_a_topic_takes`).
I. A client starts its thread before it connects; if it cannot connect, nobody else can end that thread. In a
   long outage each attempt would leave a thread and its files open. So the network client is kept and closed
   (`create_client`; `test_a_client_without_a_broker_leaves_nothing_behind` in `tests/io/kafka`).
   Where it looks for a broker is in `bootstrap`.
J. At level DEBUG kafka-python logs every request, with PLAIN the password too. So its loggers get a filter
   before a client with a login is created (`hide_logins`;
   `test_debug_records_of_the_library_carry_no_login`).
K. A client keeps the password that it was created with. So its logins are replaced by ones that read the
   password again (`logins`; `test_a_password_that_was_rotated_is_used_at_the_next_login`).

What goes wrong in reading is dealt with in `records`: header names that are not UTF-8, and damaged batches.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from kafka.errors import KafkaError

from streamforest.io.kafka.auth.secrets import hide_logins
from streamforest.io.kafka.compat.bootstrap import network_client
from streamforest.io.kafka.compat.logins import use_current_logins
from streamforest.io.log import CommitInDoubt

log = logging.getLogger(__name__)

_STABLE = "<stable>"
_JOIN_REQUESTS = 3  # so often a consumer is asked to join before another takes its place


def create_client(maker: Callable[..., Any], **settings: Any) -> Any:
    """A client of kafka-python's: it leaves nothing behind if it cannot reach its broker (I), and its
    login is not logged (J).
    """
    if "sasl_mechanism" in settings:
        hide_logins()
        use_current_logins()
    networks: list[Any] = []

    def network(**configs: Any) -> Any:
        networks.append(network_client(**configs))
        return networks[0]

    try:
        return maker(**settings, kafka_client=network)
    except BaseException:
        for client in networks:
            try:
                client.close()
            except Exception as error:  # the caller is told why it could not connect
                log.info("a client did not close cleanly: %r", error)
        raise


# ---- the group


def valid_membership(metadata: Any) -> Any | None:
    """The membership if the broker can fence it; None if it is that of an evicted member (A)."""
    if metadata is None or metadata.generation_id < 0 or not metadata.member_id:
        return None
    return metadata


def request_rejoin(consumer: Any) -> None:
    """Make a consumer join its group again with its next poll."""
    consumer._coordinator.request_rejoin()


class JoinWatch:
    """Makes a consumer that has not been stable for a while join its group again (D)."""

    def __init__(self, consumer: Any, unstable_seconds: float = 15.0) -> None:
        self._consumer = consumer
        self._limit = unstable_seconds
        self._stable = time.monotonic()
        self._requests = 0

    @property
    def in_vain(self) -> bool:
        """Whether the consumer was asked to join so often without success that another should."""
        return self._requests >= _JOIN_REQUESTS

    def look(self) -> bool:
        """Call it after each poll; True if the consumer has to join again."""
        now = time.monotonic()
        if self._consumer.group_metadata().state == _STABLE:
            self._stable, self._requests = now, 0
            return False
        if now - self._stable < self._limit:
            return False
        log.warning("not stable in the group for %.0f s: joining again", now - self._stable)
        request_rejoin(self._consumer)
        self._stable, self._requests = now, self._requests + 1
        return True


def answered_ago(consumer: Any) -> float:
    """Seconds since the group's coordinator last answered; a poll does not report its silence."""
    heartbeat = consumer._coordinator.heartbeat
    return float(time.monotonic() - max(heartbeat.last_receive, heartbeat.last_reset))


def known_partitions(consumer: Any, topic: str) -> set[int] | None:
    """The partitions of a topic as of the consumer's last metadata, without asking the broker."""
    known: set[int] | None = consumer._cluster.partitions_for_topic(topic)
    return known


def committed_now(consumer: Any, partition: Any, timeout_ms: int = 10_000) -> Any | None:
    """Offset and metadata that the broker has for a partition at this moment (F)."""
    coordinator = consumer._coordinator

    async def fetch() -> Any:
        coordinator._offset_fetch_futures.pop(frozenset([partition]), None)
        return await coordinator.fetch_committed_offsets_async([partition], timeout_ms)

    return coordinator._net.run(fetch).get(partition)


# ---- reading


def unpark(consumer: Any) -> None:
    """Make records of a partition that was paused and resumed readable: call it before a poll (G)."""
    fetcher = consumer._fetcher
    current = fetcher._next_partition_records
    if current is None:
        return
    if current:
        partition = current.topic_partition
        if partition not in consumer.paused():
            return
        fetcher._paused_partition_records[partition] = current
    fetcher._next_partition_records = None


# ---- writing


def call_with_timeout(seconds: float, call: Callable[..., Any], *args: Any) -> Any:
    """What `call` returns or raises; CommitInDoubt if it does neither in time (E).

    A call that never ends leaves its thread behind; that ends with the producer it waits for.
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


def patch_sender(producer: Any) -> None:
    """Make this producer's sender retry where it would lose a request (E), and split no batch (H)."""
    client = producer._sender._client
    usual = client.await_ready

    def await_ready(node: Any, timeout_ms: int = 30_000) -> bool:
        try:
            return bool(usual(node, timeout_ms=timeout_ms))
        except KafkaError:
            return False

    client.await_ready = await_ready
    producer._sender._can_split = lambda batch, error: False


def close_producer(producer: Any) -> None:
    """Close a producer without waiting for what it has not sent.

    Its own `close` first waits for what is unsent, and gives up with the sender still running.
    """
    producer._sender.force_close()
    producer._sender.join(1.0)
    try:
        call_with_timeout(5.0, lambda: producer.close(timeout=1))
    except (KafkaError, CommitInDoubt) as error:
        log.info("a producer did not close cleanly: %s", error)
