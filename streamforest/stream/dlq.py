"""Dead letters after the fact: list them, and send them back once the cause is mended."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import AuthorizationError, KafkaError

from streamforest.errors import BrokerError
from streamforest.stream.dead_letters import Letter, read_letter
from streamforest.stream.kafka_clients import admin, connect
from streamforest.stream.kafka_permissions import (
    Need,
    explain,
    lacking,
    needs_of_dlq_replay,
    refusal,
)
from streamforest.stream.kafka_topics import Topics
from streamforest.stream.security import Connection

_AT_ONCE = 1_000  # letters sent back in one transaction


def _consumer(where: str | Connection, **settings: Any) -> Any:
    return connect(
        KafkaConsumer,
        where,
        isolation_level="read_committed",
        enable_auto_commit=False,
        **settings,
    )


def _records(consumer: Any, tp: TopicPartition, start: int) -> Iterator[Any]:
    """The records of a partition from an offset to where it ends now."""
    end = consumer.end_offsets([tp])[tp]
    consumer.assign([tp])
    consumer.seek(tp, max(start, consumer.beginning_offsets([tp])[tp]))
    deadline = time.monotonic() + 30
    while consumer.position(tp) < end:
        if time.monotonic() > deadline:
            raise BrokerError(f"{tp.topic} cannot be read to its end")
        for records in consumer.poll(timeout_ms=300, max_records=500).values():
            deadline = time.monotonic() + 30
            yield from (record for record in records if record.offset < end)


def letters(where: str | Connection, topic: str, most: int) -> Iterator[Letter]:
    """The dead letters of a topic, oldest first, at most so many."""
    _check(where, topic, [Need("Read", "topic", topic)])
    consumer = _consumer(where)
    try:
        for number in sorted(consumer.partitions_for_topic(topic)):
            for record in _records(consumer, TopicPartition(topic, number), 0):
                letter = read_letter(record)
                if letter is not None:
                    yield letter
                    most -= 1
                    if not most:
                        return
    finally:
        consumer.close(autocommit=False)


def _check(where: str | Connection, topic: str, needs: list[Need]) -> None:
    """BrokerError if the topic is not there, or something is not allowed."""
    connection = Connection.to(where)
    client = admin(connection)
    try:
        missing = lacking(client, needs)
        if missing:
            raise refusal(connection, missing)
        if not client.describe_topics([topic])[0]["partitions"]:
            raise BrokerError(
                f"the broker at {connection.servers} has no topic '{topic}': a run makes it with "
                "--create-topics"
            )
    finally:
        client.close()


def send_back(
    where: str | Connection, topics: Topics, reason: str | None = None
) -> tuple[int, int]:
    """Send dead letters back to where they came from, each once; (sent, left out).

    A transaction holds some messages and how far the dead letters were read, so that a second call
    goes on where the first ended, and a crash in between sends nothing twice. A letter whose value
    was too large to be carried is read where it came from, if it is still there. Where a letter says
    it came from is a header that anybody can write: one that names another topic, or a place that
    does not exist, is left out.
    """
    needs = needs_of_dlq_replay(topics)
    _check(where, topics.dead_letters, needs)
    group = f"{topics.dead_letters}.replay"
    consumer = _consumer(where, group_id=group)
    producer = connect(
        KafkaProducer, where, transactional_id=group, acks="all", max_request_size=32 << 20
    )
    sent = left = 0
    try:
        producer.init_transactions()
        lanes = {name: producer.partitions_for(name) for name in topics.inputs}
        for number in sorted(consumer.partitions_for_topic(topics.dead_letters)):
            tp = TopicPartition(topics.dead_letters, number)
            records = _records(consumer, tp, consumer.committed(tp, timeout_ms=20_000) or 0)
            while batch := list(islice(records, _AT_ONCE)):
                back = [
                    whole
                    for letter in map(read_letter, batch)
                    if letter is not None and _wanted(letter, lanes, reason)
                    if (whole := _whole(where, letter)) is not None
                ]
                producer.begin_transaction()
                futures = [
                    producer.send(to.topic, to.value, to.key, to.headers, to.partition)
                    for to in back
                ]
                producer.flush(timeout=60)
                for future in futures:
                    future.get(timeout=1)
                end = OffsetAndMetadata(batch[-1].offset + 1, "", -1)
                producer.send_offsets_to_transaction({tp: end}, group)
                producer.commit_transaction()
                sent += len(back)
                left += len(batch) - len(back)
    except AuthorizationError as error:
        with closing(admin(where)) as client:
            raise explain(client, Connection.to(where), needs, error) from error
    except KafkaError as error:
        raise BrokerError(f"dlq replay: {type(error).__name__}: {error}") from error
    finally:
        producer.close(timeout=5)
        consumer.close(autocommit=False)
    return sent, left


def _wanted(letter: Letter, lanes: Mapping[str, Collection[int]], reason: str | None) -> bool:
    return (
        letter.partition in lanes.get(letter.topic, ())
        and letter.offset >= 0
        and (reason is None or letter.reason == reason)
    )


def _whole(where: str | Connection, letter: Letter) -> Letter | None:
    """The letter with its original key and value, read at the source where it carries only the
    beginning of them; None where they are gone, or it has neither.
    """
    if letter.truncated is None:
        return None if letter.value is None and letter.key is None else letter
    consumer = _consumer(where, max_partition_fetch_bytes=64 << 20)
    tp = TopicPartition(letter.topic, letter.partition)
    try:
        consumer.assign([tp])
        consumer.seek(tp, letter.offset)
        for records in consumer.poll(timeout_ms=10_000, max_records=1).values():
            if records[0].offset == letter.offset:
                return replace(letter, key=records[0].key, value=records[0].value)
    finally:
        consumer.close(autocommit=False)
    return None
