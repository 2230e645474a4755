"""kafka-python's five traps: each test holds with our remedy, and shows the trap without it.

When a release mends one, the half that shows the trap fails, and the remedy can go.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

import pytest
from integration.oracle import read_all
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.structs import ConsumerGroupMetadata

from streamforest.stream.broker import Broker
from streamforest.stream.kafka_guard import (
    JoinWatch,
    TransactionalProducer,
    captured,
    mend_sender,
    within,
)
from streamforest.stream.records import CommitInDoubt, Outgoing
from streamforest.testing.plugin import TopicMaker


def settings(broker: Broker, name: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.servers,
        "transactional_id": name,
        "max_block_ms": 10_000,
        "transaction_timeout_ms": 10_000,
    }


def join(broker: Broker, topic: str, group: str, session_ms: int = 6_000) -> Any:
    """A member of a group that owns the topic's only partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=300,
    )
    consumer.subscribe([topic])
    consumer.partitions_for_topic(topic)
    deadline = time.monotonic() + 30
    while not consumer.assignment():
        consumer.poll(timeout_ms=200)
        assert time.monotonic() < deadline
    return consumer


def committed(consumer: Any, topic: str) -> int | None:
    found: int | None = consumer.committed(TopicPartition(topic, 0), timeout_ms=20_000)
    return found


def commit_as(broker: Broker, topic: str, group: str, membership: Any, offset: int) -> None:
    """One transaction that only moves the group's offset."""
    producer = TransactionalProducer(settings(broker, f"tx-{uuid.uuid4().hex[:8]}"))
    producer.replace()
    try:
        producer.begin()
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        producer.add_offsets(offsets, membership)
        producer.commit()
    finally:
        producer.close()


def test_a_zombies_commit_is_refused(kafka_broker: Broker, kafka_topic: TopicMaker) -> None:
    topic, group = kafka_topic("zombie"), f"g-{uuid.uuid4().hex[:8]}"
    first = join(kafka_broker, topic, group)
    before = captured(first.group_metadata())
    assert before is not None
    first.close(autocommit=False)
    owner = join(kafka_broker, topic, group)
    after = first_metadata = ConsumerGroupMetadata(group)  # what an evicted member says of itself
    assert captured(first_metadata) is None
    with pytest.raises(KafkaError):  # the remedy: what was captured is fenced
        commit_as(kafka_broker, topic, group, before, 7)
    assert committed(owner, topic) is None
    commit_as(kafka_broker, topic, group, after, 7)  # the trap: the broker takes it
    assert committed(owner, topic) == 7
    owner.close(autocommit=False)


def test_a_failed_producer_is_replaced(kafka_broker: Broker, kafka_topic: TopicMaker) -> None:
    topic, group = kafka_topic("stale"), f"g-{uuid.uuid4().hex[:8]}"
    owner = join(kafka_broker, topic, group)
    wrong = ConsumerGroupMetadata(group, 99, "nobody", None)
    right = captured(owner.group_metadata())
    tp = TopicPartition(topic, 0)
    ours = TransactionalProducer(settings(kafka_broker, f"tx-{uuid.uuid4().hex[:8]}"))
    ours.replace()
    ours.begin()
    with pytest.raises(KafkaError):
        ours.add_offsets({tp: OffsetAndMetadata(5, "stale", -1)}, wrong)
    ours.replace()  # the remedy
    ours.begin()
    ours.publish([(topic, Outgoing(b"x"))])
    ours.add_offsets({tp: OffsetAndMetadata(1, "right", -1)}, right)
    ours.commit()
    ours.close()
    assert committed(owner, topic) == 1

    theirs = KafkaProducer(**settings(kafka_broker, f"tx-{uuid.uuid4().hex[:8]}"))
    theirs.init_transactions()
    theirs.begin_transaction()
    with pytest.raises(KafkaError):
        theirs.send_offsets_to_transaction({tp: OffsetAndMetadata(5, "stale", -1)}, wrong)
    theirs.abort_transaction()
    manager = theirs._transaction_manager
    assert manager._pending_txn_offset_commits, "mended: offsets no longer leak (trap B)"
    theirs.close(timeout=1)
    owner.close(autocommit=False)


def test_a_message_that_was_not_taken_fails_the_commit(
    kafka_broker: Broker, kafka_topic: TopicMaker
) -> None:
    topic = kafka_topic("small", max_message_bytes="2000")
    large = Outgoing(b"x" * 50_000)
    ours = TransactionalProducer(settings(kafka_broker, f"tx-{uuid.uuid4().hex[:8]}"))
    ours.replace()
    ours.begin()
    with pytest.raises((CommitInDoubt, KafkaError)):  # the remedy: every outcome is looked at
        ours.publish([(topic, Outgoing(b"fine")), (topic, large)])
    ours.close()

    theirs = KafkaProducer(**settings(kafka_broker, f"tx-{uuid.uuid4().hex[:8]}"))
    theirs.init_transactions()
    theirs.begin_transaction()
    failed = theirs.send(topic, large.value)  # the trap: neither send nor flush raises
    theirs.flush(timeout=20)
    assert failed.failed()
    theirs.close(timeout=1)
    assert read_all(kafka_broker.servers, topic) == {0: []}


def test_a_consumer_that_hangs_in_a_join_is_asked_to_join_anew() -> None:
    class Stuck:
        """A consumer that stays in a join until it is asked to join anew."""

        def __init__(self) -> None:
            self.asked = 0
            self._coordinator = self

        def group_metadata(self) -> ConsumerGroupMetadata:
            state = "<stable>" if self.asked else "<rebalancing>"
            return ConsumerGroupMetadata("g", 1, "m", None, state)

        def request_rejoin(self) -> None:
            self.asked += 1

    stuck = Stuck()
    watch = JoinWatch(stuck, patience=0.05)
    deadline = time.monotonic() + 5
    while not watch.look():
        assert time.monotonic() < deadline
    assert stuck.asked == 1
    assert not watch.look()


def test_rejoining_gives_the_partitions_back(kafka_broker: Broker, kafka_topic: TopicMaker) -> None:
    topic, group = kafka_topic("rejoin"), f"g-{uuid.uuid4().hex[:8]}"
    consumer = join(kafka_broker, topic, group)
    before = consumer.group_metadata().generation_id
    consumer._coordinator.request_rejoin()
    deadline = time.monotonic() + 20
    while consumer.group_metadata().generation_id == before or not consumer.assignment():
        consumer.poll(timeout_ms=200)
        assert time.monotonic() < deadline
    consumer.close(autocommit=False)


def test_a_call_without_an_answer_has_an_end() -> None:
    with pytest.raises(CommitInDoubt, match=r"had no answer in 0\.05 s"):
        within(0.05, threading.Event().wait)
    assert within(5.0, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(5.0, lambda: 1 / 0)


def test_the_sender_does_not_lose_a_request_when_a_node_is_away(kafka_broker: Broker) -> None:
    producer = KafkaProducer(**settings(kafka_broker, f"tx-{uuid.uuid4().hex[:8]}"))
    client = producer._sender._client

    def away(node: Any, timeout_ms: int = 0) -> bool:
        raise KafkaConnectionError("not ready")

    client.await_ready = away
    with pytest.raises(KafkaConnectionError):  # the trap
        client.await_ready(0)
    mend_sender(producer)
    assert client.await_ready(0) is False  # the remedy: it is tried again
    producer.close(timeout=1)
