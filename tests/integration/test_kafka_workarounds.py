"""kafka-python's traps: each test holds with our remedy, and shows the trap without it.

When a release mends one, the half that shows the trap fails, and the remedy can go.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from integration.oracle import read_all
from integration.waiting import until
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.record.default_records import DefaultRecordBatch
from kafka.structs import ConsumerGroupMetadata

from streamforest.errors import BrokerError
from streamforest.io.kafka.clients import admin
from streamforest.io.kafka.compat.workarounds import (
    JoinWatch,
    call_with_timeout,
    committed_now,
    patch_sender,
    unpark,
    valid_membership,
)
from streamforest.io.kafka.log import KafkaSettings, kafka_log
from streamforest.io.kafka.membership import TopicAssignment, acquire_alone
from streamforest.io.kafka.partition_membership import GroupMember
from streamforest.io.kafka.producer import TransactionalProducer
from streamforest.io.kafka.topics import Topics, create_topic
from streamforest.io.log import CommitInDoubt, OutputRecord
from streamforest.testing.broker.server import Broker
from streamforest.testing.plugin import TopicMaker


def settings(broker: Broker, name: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.servers,
        "transactional_id": name,
        "max_block_ms": 10_000,
        "transaction_timeout_ms": 10_000,
    }


def guarded(broker: Broker, deadline: float = 15.0, **more: Any) -> TransactionalProducer:
    told = settings(broker, f"tx-{uuid.uuid4().hex[:8]}") | more
    return TransactionalProducer(lambda: told, deadline)


def join(broker: Broker, topic: str, group: str, wait: bool = True, **settings: Any) -> Any:
    """A member of a group that owns all partitions of a topic."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **{"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300, **settings},
    )
    consumer.subscribe([topic])
    consumer.partitions_for_topic(topic)
    deadline = time.monotonic() + 30
    while wait and not consumer.assignment():
        consumer.poll(timeout_ms=200)
        assert time.monotonic() < deadline
    return consumer


@contextmanager
def stopped(broker: Broker) -> Iterator[None]:
    """The broker hangs: SIGSTOP, and SIGCONT at the end."""
    pid = broker.status().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: {state(task) for task in Path(f"/proc/{pid}/task").iterdir()} == {"T"})
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def state(task: Path) -> str:
    """R, S, T and so on: what a thread is doing."""
    return (task / "stat").read_text().rsplit(")", 1)[1].split()[0]


def committed(consumer: Any, topic: str, partition: int = 0) -> int | None:
    found: int | None = consumer.committed(TopicPartition(topic, partition), timeout_ms=20_000)
    return found


def commit_as(broker: Broker, topic: str, group: str, membership: Any, offset: int) -> None:
    """One transaction that only moves the group's offset."""
    producer = guarded(broker)
    producer.replace()
    try:
        producer.begin()
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        producer.add_offsets(offsets, membership)
        producer.commit()
    finally:
        producer.close()


def test_a_zombies_commit_is_refused(kafka_broker: Broker, kafka_topic: TopicMaker) -> None:
    """Trap A: a member that stopped polling was thrown out, and does not know it."""
    topic, group = kafka_topic("zombie"), f"g-{uuid.uuid4().hex[:8]}"
    zombie = join(kafka_broker, topic, group, session_timeout_ms=1_500, max_poll_interval_ms=2_000)
    before = valid_membership(zombie.group_metadata())
    assert before is not None
    until(lambda: zombie.group_metadata().generation_id < 0)  # it does not poll any more
    owner = join(kafka_broker, topic, group)
    after = zombie.group_metadata()
    assert valid_membership(after) is None
    with pytest.raises(KafkaError):  # the remedy: what was captured is fenced
        commit_as(kafka_broker, topic, group, before, 7)
    assert committed(owner, topic) is None
    commit_as(kafka_broker, topic, group, after, 7)  # the trap: the broker takes it
    assert committed(owner, topic) == 7
    owner.close(autocommit=False)
    zombie.close(autocommit=False)


@pytest.mark.parametrize("remedy", [True, False])
def test_offsets_of_a_refused_transaction_do_not_leak_into_the_next(
    kafka_broker: Broker, kafka_topic: TopicMaker, remedy: bool
) -> None:
    """Trap B: the next transaction of the same producer commits them all the same."""
    topic, group = kafka_topic("stale", partitions=2), f"g-{uuid.uuid4().hex[:8]}"
    owner = join(kafka_broker, topic, group)
    wrong = ConsumerGroupMetadata(group, 99, "nobody", None)
    right = valid_membership(owner.group_metadata())
    stale, fine = ({TopicPartition(topic, p): OffsetAndMetadata(5, "", -1)} for p in (0, 1))
    ours = guarded(kafka_broker)
    ours.replace()
    ours.begin()
    with pytest.raises(KafkaError):
        ours.add_offsets(stale, wrong)
    if remedy:
        ours.replace()
    else:
        ours._producer.abort_transaction()  # what a client would do that trusts its library
    ours.begin()
    ours.add_offsets(fine, right)
    ours.commit()
    ours.close()
    assert committed(owner, topic, 1) == 5
    assert committed(owner, topic, 0) == (None if remedy else 5)
    owner.close(autocommit=False)


def test_a_message_without_an_answer_fails_the_commit(
    kafka_broker: Broker, kafka_topic: TopicMaker
) -> None:
    """Trap C: the broker hangs for longer than a message may take; the transaction knows nothing."""
    topic = kafka_topic("silent")
    short = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 1_500}
    ours = guarded(kafka_broker, deadline=10.0, **short)
    ours.replace()
    ours.begin()
    assert ours.publish({topic: [OutputRecord(b"fine")]}) == 0
    with stopped(kafka_broker), pytest.raises((CommitInDoubt, KafkaError)):  # the remedy
        ours.publish({topic: [OutputRecord(b"late")]})
    ours.close()

    theirs = KafkaProducer(**settings(kafka_broker, f"tx-{uuid.uuid4().hex[:8]}"), **short)
    theirs.init_transactions()
    theirs.begin_transaction()
    theirs.send(topic, b"fine").get(timeout=10)
    with stopped(kafka_broker):
        late = theirs.send(topic, b"late")
        until(lambda: bool(late.is_done))
    assert late.failed()
    theirs.commit_transaction()  # the trap: it is committed as if nothing had happened
    theirs.close(timeout=1)


def test_a_message_that_was_refused_fails_the_commit(
    kafka_broker: Broker, kafka_topic: TopicMaker
) -> None:
    topic = kafka_topic("small", max_message_bytes="2000")
    ours = guarded(kafka_broker)
    ours.replace()
    ours.begin()
    with pytest.raises((CommitInDoubt, KafkaError)):
        ours.publish({topic: [OutputRecord(b"fine"), OutputRecord(b"x" * 50_000)]})
    ours.close()
    assert read_all(kafka_broker.servers, topic) == {0: []}


def test_batches_shrink_to_what_a_topic_takes(
    kafka_broker: Broker, kafka_topic: TopicMaker
) -> None:
    """Beside trap C: kafka-python would split them, after which its flush never succeeds."""
    topic = kafka_topic("narrow", max_message_bytes="20000")
    messages = [OutputRecord(b"%05d" % i + b"." * 200) for i in range(1_000)]
    ours = guarded(kafka_broker)
    refused, last = 0, -1
    while last < 0:
        ours.replace()
        ours.begin()
        try:
            last = ours.publish({topic: messages})
        except (CommitInDoubt, KafkaError):
            refused += 1
            assert refused < 6
    ours.commit()
    ours.close()
    assert refused > 0
    found = read_all(kafka_broker.servers, topic)[0]
    assert [record.value for record in found] == [message.value for message in messages]
    assert found[-1].offset == last


@pytest.mark.parametrize("remedy", [True, False])
def test_a_consumer_that_hangs_in_a_join_is_asked_to_join_anew(
    kafka_broker: Broker, kafka_topic: TopicMaker, remedy: bool
) -> None:
    """Trap D: a real consumer in the state in which a join that nobody waits for leaves it."""
    topic, group = kafka_topic("hang"), f"g-{uuid.uuid4().hex[:8]}"
    first = join(kafka_broker, topic, group)  # does not poll: the second one's join has to wait
    second = join(kafka_broker, topic, group, wait=False)
    client = admin(kafka_broker.servers)
    # the broker holds the second one's join back, until the first one joins anew or leaves
    until(
        lambda: (
            second.poll(timeout_ms=20) == {}
            and rebalancing(second)
            and "PreparingRebalance" in str(client.describe_groups([group]))
        )
    )
    client.close()
    second._coordinator.rejoin_needed = False
    first.close(autocommit=False)
    watch = JoinWatch(second, unstable_seconds=1.0)
    deadline = time.monotonic() + (30 if remedy else 4)
    while not second.assignment() and time.monotonic() < deadline:
        second.poll(timeout_ms=200)
        if remedy:
            watch.look()
    assert bool(second.assignment()) == remedy
    assert rebalancing(second) != remedy
    second.close(autocommit=False)


@pytest.mark.parametrize("scope", ["topic", "partition"])
def test_a_consumer_that_cannot_join_is_replaced(
    kafka_broker: Broker, kafka_topic: TopicMaker, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    """Trap D: the consumer's metadata are no longer refreshed, so it never finds its coordinator."""
    topics = Topics(kafka_topic("deaf"), "p", "d", "j")
    settings = KafkaSettings(kafka_broker.servers, topics, f"g-{uuid.uuid4().hex[:8]}")
    assignment, member = TopicAssignment(settings), GroupMember(settings)
    joining: TopicAssignment | GroupMember = assignment if scope == "topic" else member

    def consumer() -> Any:
        return assignment.consumer if scope == "topic" else member._consumer

    def settled() -> bool:
        if scope == "topic":
            assignment.join()
            return assignment.await_partitions() is None
        member.look(0.1)
        return member.given is not None

    joining.join()
    first = consumer()
    joining._watch = JoinWatch(first, unstable_seconds=0.3)
    monkeypatch.setattr(first._coordinator, "poll", lambda **_: False)
    until(settled)
    assert consumer() is not first
    assignment.leave()
    member.close()


def rebalancing(consumer: Any) -> bool:
    return bool(consumer.group_metadata().state == "<rebalancing>")


@pytest.mark.parametrize("remedy", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_call_made_while_the_broker_is_down_is_not_lost(
    kafka_broker: Broker, remedy: bool
) -> None:
    """Trap E: without the mended sender the call never returns, even long after the broker is back."""
    with Broker() as broker:
        client = admin(broker.servers)
        create_topic(client, "down", 1)
        client.close()
        owner = join(broker, "down", "g")
        membership = valid_membership(owner.group_metadata())
        producer = KafkaProducer(**settings(broker, "tx"))
        if remedy:
            patch_sender(producer)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("down", b"one").get(timeout=10)
        broker.kill()
        offsets = {TopicPartition("down", 0): OffsetAndMetadata(5, "", -1)}
        done = threading.Event()

        def call() -> None:
            with suppress(KafkaError):
                producer.send_offsets_to_transaction(offsets, membership)
            done.set()

        threading.Thread(target=call, daemon=True).start()
        assert not done.wait(2)
        broker.start()
        assert done.wait(30 if remedy else 8) == remedy
        if not remedy:
            with pytest.raises(CommitInDoubt, match=r"had no answer in 1 s"):  # the other remedy
                call_with_timeout(1, done.wait)
        broker.kill()  # nothing to be kept, so it need not stop in peace
        with suppress(KafkaError):
            producer.close(timeout=0)
        owner.close(autocommit=False, timeout_ms=1_000)


def test_a_consumer_that_gets_no_answer_is_replaced(
    kafka_broker: Broker, kafka_topic: TopicMaker
) -> None:
    """Trap E on the reading side: a question that was lost is waited for again and again."""
    topics = Topics(*(kafka_topic(name) for name in ("events", "predictions", "dlq", "journal")))
    settings = KafkaSettings(kafka_broker.servers, topics, f"g-{uuid.uuid4().hex[:8]}")
    with closing(kafka_log(settings)) as log:
        acquire_alone(log.membership)
        assignment = log.membership.assignment  # type: ignore[attr-defined]
        first = assignment.consumer

        async def lost(*args: Any, **kwargs: Any) -> None:
            raise KafkaTimeoutError

        first._coordinator.fetch_committed_offsets_async = lost
        assert acquire_alone(log.membership).new_partitions == {(topics.events, 0): 0}
        assert assignment.consumer is not first


def test_a_call_without_an_answer_has_an_end() -> None:
    with pytest.raises(CommitInDoubt, match=r"had no answer in 0\.05 s"):
        call_with_timeout(0.05, threading.Event().wait)
    assert call_with_timeout(5.0, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        call_with_timeout(5.0, lambda: 1 / 0)


def test_f_committed_offsets_are_asked_for_anew(
    kafka_broker: Broker, kafka_topic: TopicMaker
) -> None:
    tp = TopicPartition(kafka_topic("asked"), 0)
    common = {"bootstrap_servers": kafka_broker.servers, "enable_auto_commit": False}
    other = KafkaConsumer(group_id=tp.topic, **common)
    other.assign([tp])

    def commit(offset: int) -> None:
        other.commit({tp: OffsetAndMetadata(offset, "", -1)}, timeout_ms=10_000)

    commit(1)
    consumer = KafkaConsumer(group_id=tp.topic, auto_offset_reset="none", **common)
    consumer.assign([tp])
    futures = consumer._coordinator._offset_fetch_futures
    until(
        lambda: consumer.poll(timeout_ms=0) == {} and bool(futures)
    )  # it asked, and gave up waiting
    until(lambda: all(future.is_done for future in futures.values()))
    commit(2)
    stale = dict(futures)
    assert committed_now(consumer, tp).offset == 2
    futures.update(stale)
    assert consumer.committed(tp, timeout_ms=10_000) == 1  # the trap
    for one in (consumer, other):
        one.close(autocommit=False)


@pytest.mark.parametrize("remedy", [True, False])
def test_records_of_a_paused_partition_come_back(
    kafka_broker: Broker, kafka_topic: TopicMaker, remedy: bool
) -> None:
    topic = kafka_topic("parked", partitions=2)
    producer = KafkaProducer(bootstrap_servers=kafka_broker.servers)
    for i in range(200):
        producer.send(topic, b"%d" % i, partition=i % 2)
    producer.flush(timeout=30)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=kafka_broker.servers, group_id=None)
    both = [TopicPartition(topic, p) for p in range(2)]
    consumer.assign(both)
    for tp in both:
        consumer.seek(tp, 0)
    read = dict.fromkeys(both, 0)

    def poll() -> None:
        if remedy:
            unpark(consumer)
        for tp, records in consumer.poll(timeout_ms=100, max_records=10).items():
            read[tp] += len(records)

    until(lambda: poll() or any(read.values()))  # type: ignore[func-returns-value]
    (first,) = (tp for tp in both if read[tp])
    (other,) = (tp for tp in both if tp != first)
    consumer.pause(first)
    until(lambda: poll() or read[other] == 100)  # type: ignore[func-returns-value]
    poll()
    consumer.resume(first)
    if remedy:
        until(lambda: poll() or read[first] == 100)  # type: ignore[func-returns-value]
    else:
        for _ in range(20):
            poll()
        assert read[first] < 100
    consumer.close(autocommit=False)


@pytest.mark.parametrize("lasting", [False, True])
def test_a_damaged_batch_is_fetched_anew(
    kafka_broker: Broker,
    kafka_topic: TopicMaker,
    monkeypatch: pytest.MonkeyPatch,
    lasting: bool,
) -> None:
    """One more beside the six: kafka-python's next poll would never come back."""
    topics = Topics(*(kafka_topic(name) for name in ("events", "predictions", "dlq", "journal")))
    with closing(KafkaProducer(bootstrap_servers=kafka_broker.servers)) as producer:
        for number in range(6):
            producer.send(topics.events, b"%d" % number).get(timeout=10)
    usual, refused = DefaultRecordBatch.validate_crc, []

    def validate(batch: Any) -> bool:
        if batch.base_offset == 3 and (lasting or not refused):
            refused.append(batch)
            return False
        return bool(usual(batch))

    settings = KafkaSettings(kafka_broker.servers, topics, f"g-{uuid.uuid4().hex[:8]}")
    with closing(kafka_log(settings)) as log:
        log.source.seek(acquire_alone(log.membership).new_partitions, {})
        monkeypatch.setattr(DefaultRecordBatch, "validate_crc", validate)
        found: list[bytes] = []

        def read_on() -> bool:
            polled = log.source.poll(100, 0.2)
            assert polled is not None
            found.extend(record.value for record in polled.records)
            return len(found) == 6

        if lasting:
            with pytest.raises(BrokerError, match=f"{topics.events}-0 at offset 3: wrong checksum"):
                until(read_on)
            assert len(found) == 3
        else:
            until(read_on)
            assert refused
        assert found == [b"%d" % number for number in range(len(found))]
