"""Clients that cannot reach their broker, or are let go of, leave nothing running behind."""

from __future__ import annotations

import gc
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, ProducerFencedError

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
