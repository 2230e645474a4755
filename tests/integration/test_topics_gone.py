"""Topics that are deleted, or get partitions, while a pipeline uses them: each is named."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from integration.waiting import until

from streamforest.errors import BrokerError
from streamforest.io.codec.decoders import by_value
from streamforest.io.codec.events import decoder
from streamforest.io.kafka.clients import asking
from streamforest.io.kafka.log import KafkaLog
from streamforest.io.kafka.membership import TopicHold
from streamforest.io.kafka.settings import KafkaSettings, for_partition
from streamforest.io.kafka.topics import Topics, absent
from streamforest.io.log import CommitInDoubt, OutputRecord, Reassigned, Transaction
from streamforest.testing.broker.server import Broker
from streamforest.testing.plugin import TopicMaker


@pytest.fixture
def settings(kafka_broker: Broker, kafka_topic: TopicMaker) -> KafkaSettings:
    names = ("events", "predictions", "dlq", "journal")
    topics = Topics(*(kafka_topic(name, 2 if name == "events" else 1) for name in names))
    group = f"g-{uuid.uuid4().hex[:8]}"
    return KafkaSettings(kafka_broker.servers, topics, group, metadata_ms=500)


@contextmanager
def attached(settings: KafkaSettings) -> Iterator[KafkaLog]:
    log = KafkaLog(settings, by_value(decoder()))
    log._producer._settings = lambda: {**settings.producer(), "max_block_ms": 1_000}
    log._producer.deadline = 2.0
    try:
        found = log.attach()
        log.seek(found.started)
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
        log.commit(transaction)
        delete(settings, topics.predictions)

        def until_named() -> None:
            for _ in range(6):
                with pytest.raises(CommitInDoubt):
                    log.commit(transaction)
                assert log.trouble() is not None
                log.attach()

        with pytest.raises(BrokerError, match=f"no topic '{topics.predictions}' any more"):
            until_named()


def test_an_input_topic_that_was_deleted_is_named(settings: KafkaSettings) -> None:
    with attached(settings) as log:
        assert isinstance(log.hold, TopicHold)
        log.hold._absence._patience = 1.0
        delete(settings, settings.topics.events)

        def given_out_anew() -> bool:
            try:
                log.poll(10, 0.1)
            except Reassigned:
                return True
            return False

        def go_on() -> None:
            until(given_out_anew)
            log.attach()

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
