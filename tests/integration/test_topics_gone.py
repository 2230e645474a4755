"""Topics that are deleted, or get partitions, while a pipeline uses them: each is named."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from integration.waiting import until

from streamforest.errors import BrokerError
from streamforest.io.kafka.clients import asking
from streamforest.io.kafka.log import kafka_log
from streamforest.io.kafka.membership import TopicAssignment, acquire_alone
from streamforest.io.kafka.settings import KafkaSettings, for_partition
from streamforest.io.kafka.topics import Topics, absent
from streamforest.io.log import CommitInDoubt, Log, OutputRecord, Transaction
from streamforest.testing.broker.server import Broker
from streamforest.testing.plugin import TopicMaker


@pytest.fixture
def settings(kafka_broker: Broker, kafka_topic: TopicMaker) -> KafkaSettings:
    names = ("events", "predictions", "dlq", "journal")
    topics = Topics(*(kafka_topic(name, 2 if name == "events" else 1) for name in names))
    group = f"g-{uuid.uuid4().hex[:8]}"
    return KafkaSettings(kafka_broker.servers, topics, group, metadata_max_age_ms=500)


@contextmanager
def attached(settings: KafkaSettings) -> Iterator[Log]:
    log = kafka_log(settings)
    producer: Any = log.sink._producer  # type: ignore[attr-defined]
    producer._settings = lambda: {**settings.producer(), "max_block_ms": 1_000}
    producer.deadline = 2.0
    try:
        log.source.seek(acquire_alone(log.membership).new_partitions, {})
        yield log
    finally:
        log.close()


def delete(settings: KafkaSettings, topic: str) -> None:
    with asking(settings.connection) as client:
        client.delete_topics([topic])
        until(lambda: absent(client, [topic]) == [topic])


def test_an_output_topic_that_was_deleted_is_named(settings: KafkaSettings) -> None:
    topics = settings.topics
    positions = {(topics.events, 0): 0, (topics.events, 1): 0}
    transaction = Transaction(
        0, [OutputRecord(b"p")], [], b"{}", positions, lambda place: '{"commit":0}'
    )
    with attached(settings) as log:
        log.sink.commit(transaction)
        delete(settings, topics.predictions)

        def until_named() -> None:
            for _ in range(6):
                with pytest.raises(CommitInDoubt):
                    log.sink.commit(transaction)
                assert log.membership.trouble() is not None
                acquire_alone(log.membership)

        with pytest.raises(BrokerError, match=f"no topic '{topics.predictions}' any more"):
            until_named()


def test_an_input_topic_that_was_deleted_is_named(settings: KafkaSettings) -> None:
    with attached(settings) as log:
        assignment = log.membership.assignment  # type: ignore[attr-defined]
        assert isinstance(assignment, TopicAssignment)
        assignment._topic_check._patience = 1.0
        delete(settings, settings.topics.events)

        def go_on() -> None:
            until(lambda: log.source.poll(10, 0.1) is None)
            while True:
                log.membership.try_acquire()

        with pytest.raises(BrokerError, match=f"no topic '{settings.topics.events}' any more"):
            go_on()


def test_a_partition_without_a_journal_of_its_own_is_not_begun(settings: KafkaSettings) -> None:
    with attached(for_partition(settings, 0)):
        pass
    wrong = replace(for_partition(settings, 1), group=settings.group + "-1")
    with (
        pytest.raises(BrokerError, match=f"'{settings.topics.journal}' needs 2 partitions"),
        attached(wrong),
    ):
        pass
