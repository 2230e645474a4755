"""Clients that cannot reach their broker, or are let go of, leave nothing running behind."""

from __future__ import annotations

import gc
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)

from streamforest.errors import BrokerError, BrokerUnavailable
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.clients import ask, persist, with_retries
from streamforest.io.kafka.compat import batches
from streamforest.io.kafka.compat.workarounds import create_client
from streamforest.io.kafka.producer import TransactionalProducer
from streamforest.io.log import OutputRecord


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens: taken, so that no one else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def held() -> tuple[int, int]:
    """Threads and open files of this process; sockets that were refused go with the garbage."""
    gc.collect()
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("maker", [KafkaConsumer, KafkaProducer, KafkaAdminClient])
def test_a_client_without_a_broker_leaves_nothing_behind(
    nobody: str, maker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kafka")  # captured errors would keep their sockets open

    def attempt() -> None:
        with pytest.raises(KafkaError):
            create_client(maker, bootstrap_servers=nobody, bootstrap_timeout_ms=100)

    attempt()
    before = held()
    for _ in range(4):
        attempt()
    assert held() == before


def test_what_may_pass_is_asked_again_until_the_time_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = [BrokerUnavailable("no quorum"), BrokerUnavailable("no leader")]

    def attempt() -> str:
        if errors:
            raise errors.pop(0)
        return "here it is"

    assert with_retries(Connection("h:1", retry_seconds=30), attempt) == "here it is"
    assert [record.getMessage() for record in caplog.records] == [
        "no quorum (asking again, for 30 s at most)"
    ]
    errors[:] = [BrokerUnavailable("no quorum")]
    with pytest.raises(BrokerError, match=r"^no quorum$") as told:
        with_retries(Connection("h:1", retry_seconds=0), attempt)
    assert not isinstance(told.value, BrokerUnavailable)  # whoever catches it does not ask again
    errors[:] = [BrokerUnavailable("no quorum")] * 1_000
    with pytest.raises(BrokerError, match=r"no quorum; asked again for .* \(kafka.retry_seconds\)"):
        with_retries(Connection("h:1", retry_seconds=0.2), attempt)


def test_what_does_not_pass_is_told_at_once(nobody: str) -> None:
    def refused() -> None:
        raise BrokerError("wrong password")

    with pytest.raises(BrokerError, match="wrong password"):
        with_retries(Connection("h:1", retry_seconds=1e9), refused)
    with pytest.raises(BrokerError, match="what: UnsupportedVersionError"):
        persist(Connection("h:1", retry_seconds=1e9), "what", _raising(UnsupportedVersionError()))
    with pytest.raises(TopicAuthorizationFailedError):
        persist("h:1", "what", _raising(TopicAuthorizationFailedError()))
    brief = Connection("h:1", retry_seconds=0)
    with pytest.raises(BrokerError, match="what: CoordinatorNotAvailableError"):
        persist(brief, "what", _raising(CoordinatorNotAvailableError()))
    with pytest.raises(BrokerError, match=f"no broker at {nobody}: connection refused"):
        ask(Connection(nobody, retry_seconds=0), lambda client: client.list_topics())


def _raising(error: KafkaError) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def offline(servers: str, **more: Any) -> dict[str, Any]:
    """Settings with which a producer is made without asking its broker."""
    return {"bootstrap_servers": servers, "api_version": (3, 0), "acks": "all", **more}


def test_a_producer_with_unsent_messages_ends_when_it_is_let_go_of(nobody: str) -> None:
    producer = TransactionalProducer(lambda: offline(nobody))
    producer.replace()
    inner = producer._producer
    (batch,) = batches.append(inner, "t", 0, [OutputRecord(b"unsent")], 1_000)
    producer.close()
    inner._sender.join(20)
    assert not inner._sender.is_alive()
    assert batch.produce_future.is_done
    assert batches.outcome(batch)[1] is not None


def test_each_producer_is_made_with_the_settings_of_its_time(nobody: str) -> None:
    """A password or a certificate may have changed since the one before."""
    told = iter(["old", "new"])
    producer = TransactionalProducer(lambda: offline(nobody, client_id=next(told)))
    for expected in ("old", "new"):
        producer.replace()
        assert producer._producer.config["client_id"] == expected
    producer.close()


def test_a_fenced_producer_says_so(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To take it for a doubt would fence whoever owns the partitions now."""
    producer = TransactionalProducer(lambda: offline(nobody))
    producer.replace()
    monkeypatch.setattr(producer._producer, "partitions_for", lambda topic: {0})
    monkeypatch.setattr(producer._producer, "flush", lambda timeout: None)
    monkeypatch.setattr(
        batches, "outcome", lambda batch: (-1, ProducerFencedError("another has begun"))
    )
    try:
        with pytest.raises(ProducerFencedError):
            producer.publish({"t": [OutputRecord(b"v")]})
    finally:
        producer.close()
