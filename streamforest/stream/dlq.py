"""Dead letters after the fact: list them, and send them back once the cause is mended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from streamforest.errors import BrokerError
from streamforest.stream.dead_letters import Letter, read_letter
from streamforest.stream.kafka_topics import Topics


def _consumer(servers: str, **settings: Any) -> Any:
    try:
        return KafkaConsumer(
            bootstrap_servers=servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            **settings,
        )
    except KafkaError as error:
        raise BrokerError(f"no broker answers at {servers}: {type(error).__name__}") from error


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


def letters(servers: str, topic: str, most: int) -> Iterator[Letter]:
    """The dead letters of a topic, oldest first, at most so many."""
    consumer = _consumer(servers)
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


def send_back(servers: str, topics: Topics, reason: str | None = None) -> tuple[int, int]:
    """Send dead letters back to the topic they came from, each once; (sent, left out).

    One transaction holds the messages and how far the dead letters were read, so that a second call
    goes on where the first ended, and a crash in between sends nothing twice. A letter whose value
    was too large to be carried is read where it came from, if it is still there.
    """
    group = f"{topics.dead_letters}.replay"
    consumer = _consumer(servers, group_id=group)
    producer = KafkaProducer(
        bootstrap_servers=servers, transactional_id=group, acks="all", max_request_size=32 << 20
    )
    sent = left = 0
    try:
        producer.init_transactions()
        for number in sorted(consumer.partitions_for_topic(topics.dead_letters)):
            tp = TopicPartition(topics.dead_letters, number)
            start = consumer.committed(tp, timeout_ms=20_000) or 0
            batch = list(_records(consumer, tp, start))
            if not batch:
                continue
            producer.begin_transaction()
            futures = []
            for record in batch:
                letter = read_letter(record)
                wanted = letter is not None and (reason is None or letter.reason == reason)
                value = _whole(servers, letter) if letter is not None and wanted else None
                if letter is None or not wanted or (value is None and letter.key is None):
                    left += 1
                    continue
                futures.append(
                    producer.send(letter.topic, value, letter.key, letter.headers, letter.partition)
                )
                sent += 1
            producer.flush(timeout=60)
            for future in futures:
                future.get(timeout=1)
            end = batch[-1].offset + 1
            producer.send_offsets_to_transaction({tp: OffsetAndMetadata(end, "", -1)}, group)
            producer.commit_transaction()
    except KafkaError as error:
        raise BrokerError(f"dlq replay: {type(error).__name__}: {error}") from error
    finally:
        producer.close(timeout=5)
        consumer.close(autocommit=False)
    return sent, left


def _whole(servers: str, letter: Letter) -> bytes | None:
    """The original value, from its source where the letter carries only its beginning."""
    if letter.truncated is None:
        return letter.value
    consumer = _consumer(servers, max_partition_fetch_bytes=64 << 20)
    tp = TopicPartition(letter.topic, letter.partition)
    try:
        consumer.assign([tp])
        consumer.seek(tp, letter.offset)
        for records in consumer.poll(timeout_ms=10_000, max_records=1).values():
            if records[0].offset == letter.offset:
                return bytes(records[0].value)
    finally:
        consumer.close(autocommit=False)
    return None
