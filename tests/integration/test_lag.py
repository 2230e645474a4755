"""What counts as waiting to be read: records, not markers of transactions, nor what may yet be aborted."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from integration.waiting import until
from kafka import KafkaProducer

from streamforest.io.kafka.log import kafka_log
from streamforest.io.kafka.membership import KafkaMembership, acquire_alone
from streamforest.io.kafka.settings import KafkaSettings
from streamforest.io.kafka.source import KafkaSource
from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing import Broker


@pytest.fixture(params=["one partition", "merged"])
def source(kafka_broker: Broker, request: pytest.FixtureRequest) -> Iterator[KafkaSource]:
    """The input of a pipeline that has begun to read; only its first partition is written to."""
    topics = Topics.of(f"lag-{uuid.uuid4().hex[:8]}")
    ensure_topics(
        kafka_broker.servers, topics, create=True, partitions=1 + (request.param == "merged")
    )
    log = kafka_log(KafkaSettings(kafka_broker.servers, topics, topics.events, stall_seconds=0.5))
    log.source.seek(acquire_alone(log.membership).new_partitions, {})
    assert isinstance(log.source, KafkaSource)
    yield log.source
    log.close()


@pytest.fixture
def producer(kafka_broker: Broker) -> Iterator[Any]:
    """Whoever writes the input, in transactions."""
    producer = KafkaProducer(
        bootstrap_servers=kafka_broker.servers, transactional_id=f"upstream-{uuid.uuid4().hex[:8]}"
    )
    producer.init_transactions()
    yield producer
    producer.close(timeout=5)


def write(producer: Any, source: KafkaSource, count: int) -> None:
    producer.begin_transaction()
    for _ in range(count):
        producer.send(source.settings.topics.events, b"{}", partition=0)
    producer.flush(timeout=30)


def test_lag_counts_what_can_be_read(source: KafkaSource, producer: Any) -> None:
    membership = source.membership
    assert isinstance(membership, KafkaMembership)
    first = (source.settings.topics.events, 0)
    write(producer, source, 3)
    producer.commit_transaction()
    write(producer, source, 2)
    producer.abort_transaction()
    read: list[Any] = []

    def polled(lag: int) -> bool:
        records = source.poll(1, 0.1)
        assert records is not None
        read.extend(records.records)
        return source.lag().get(first) == lag

    until(lambda: polled(0) and len(read) == 3, 30)  # of seven offsets three are records
    assert source.unread({first: 2})
    assert not source.unread({first: 3})  # what was aborted, and two markers
    assert not source.unread({first: 3})  # which was looked at once
    write(producer, source, 2)
    until(lambda: polled(0) and membership.trouble() is not None, 30)
    told = membership.trouble() or ""
    assert (
        f"is open for over 0 s, and nothing after it can be read: {first[0]}-0 at offset 7" in told
    )
    assert len(read) == 3
    assert not source.unread({first: 3})
    producer.commit_transaction()
    until(lambda: polled(0) and len(read) == 5, 30)
    assert membership.trouble() is None
    assert not source.unread({first: 9})
