"""Dead letters after the fact: list them, and send them back once the cause is mended.

Which letters were sent back is known by offsets in a group of its own: up to the committed one all were
looked at. Its metadata says for single reasons how much further those of that reason were, so that the
others are still there for a later call.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import AuthorizationError, KafkaError

from streamforest.errors import BrokerError
from streamforest.io.codec.dead_letters import TRUNCATED, Letter, read_letter
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.clients import admin, connect
from streamforest.io.kafka.compat.records import use_quick_records
from streamforest.io.kafka.permissions import Need, explain, lacking, needs_of_dlq_replay, refusal
from streamforest.io.kafka.topics import Topics
from streamforest.text import shown

_AT_ONCE = 1_000  # letters sent back in one transaction
_BYTES_AT_ONCE = 16 << 20  # bytes of them
_PATIENCE = 30.0  # seconds for a broker that brings nothing
_MAX_METADATA = 4_096  # bytes; a broker takes no more with an offset


def _consumer(where: str | Connection, **settings: Any) -> Any:
    consumer = connect(
        KafkaConsumer,
        where,
        isolation_level="read_committed",
        enable_auto_commit=False,
        **settings,
    )
    use_quick_records(consumer)
    return consumer


def _records(consumer: Any, tp: TopicPartition, start: int) -> Iterator[Any]:
    """The records of a partition from an offset to where it ends now."""
    end = consumer.end_offsets([tp])[tp]
    consumer.assign([tp])
    consumer.seek(tp, max(start, consumer.beginning_offsets([tp])[tp]))
    deadline = time.monotonic() + _PATIENCE
    while consumer.position(tp) < end:
        if time.monotonic() > deadline:
            raise BrokerError(f"{tp.topic} cannot be read to its end")
        for records in consumer.poll(timeout_ms=300, max_records=500).values():
            deadline = time.monotonic() + _PATIENCE
            yield from (record for record in records if record.offset < end)


def letters(where: str | Connection, topic: str, most: int) -> Iterator[Letter]:
    """The dead letters of a topic, oldest first, at most so many."""
    try:
        _check(where, topic, [Need("Read", "topic", topic)])
        consumer = _consumer(where)
        try:
            yield from islice(_letters(consumer, topic), most)
        finally:
            consumer.close(autocommit=False)
    except KafkaError as error:
        raise BrokerError(f"dlq list: {type(error).__name__}: {error}") from error


def _letters(consumer: Any, topic: str) -> Iterator[Letter]:
    for tp in _partitions(consumer, topic):
        found = map(read_letter, _records(consumer, tp, 0))
        yield from (letter for letter in found if letter is not None)


def _partitions(consumer: Any, topic: str) -> list[TopicPartition]:
    numbers = consumer.partitions_for_topic(topic)
    if numbers is None:
        raise BrokerError(f"the broker does not tell the partitions of {topic!r}: try again")
    return [TopicPartition(topic, number) for number in sorted(numbers)]


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


@dataclass(frozen=True)
class _Done:
    """Which letters of a partition were sent back: all below `every`, and those of a reason below its own."""

    every: int
    of: Mapping[str, int]

    @classmethod
    def read(cls, committed: Any) -> _Done:
        if committed is None:
            return cls(0, {})
        try:
            of = {str(r): int(at) for r, at in json.loads(committed.metadata or "{}").items()}
        except (
            ValueError,
            AttributeError,
            TypeError,
            OverflowError,
            RecursionError,
        ) as error:
            raise BrokerError(
                f"dlq replay: its last commit says {shown(committed.metadata)}, which this version "
                "cannot read"
            ) from error
        return cls(committed.offset, of)

    def before(self, reason: str | None) -> int:
        """Where a call that asks for a reason, or for all, has to begin."""
        return self.every if reason is None else max(self.every, self.of.get(reason, 0))

    def has(self, letter: Letter, at: int) -> bool:
        """Whether the letter that stands there was sent back."""
        return at < self.before(letter.reason)

    def upto(self, reason: str | None, end: int) -> _Done:
        """After those up to an offset were looked at."""
        if reason is None:
            return _Done(end, {r: at for r, at in self.of.items() if at > end})
        return _Done(self.every, {**self.of, reason: end})

    def offset(self) -> OffsetAndMetadata:
        """As it is committed."""
        told = json.dumps(self.of, sort_keys=True) if self.of else ""
        if len(told.encode()) > _MAX_METADATA:
            raise BrokerError(
                "dlq replay: too many reasons were asked for one by one to remember them all: send "
                "the rest back without --reason first"
            )
        return OffsetAndMetadata(self.every, told, -1)


def send_back(
    where: str | Connection, topics: Topics, reason: str | None = None
) -> tuple[int, int]:
    """Send dead letters back to where they came from, each once; (sent, left out).

    A transaction holds some messages and how far the dead letters were read, so that a second call
    goes on where the first ended, and a crash in between sends nothing twice. Letters with another
    reason than the one asked for stay for a later call. A letter whose value was too large to be
    carried is read where it came from, if it is still there. Where a letter says it came from is a
    header that anybody can write: one that names another topic, or a place that does not exist, is
    left out.
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
        for tp in _partitions(consumer, topics.dead_letters):
            done = _Done.read(consumer.committed(tp, metadata=True, timeout_ms=20_000))
            records = _records(consumer, tp, done.before(reason))
            for batch in _batches(records):
                found = [(read_letter(record), record.offset) for record in batch]
                new = [one for one, at in found if one is None or not done.has(one, at)]
                back = [
                    whole
                    for letter in new
                    if letter is not None and _wanted(letter, lanes, reason)
                    if (whole := _whole(where, letter)) is not None
                ]
                done = done.upto(reason, batch[-1].offset + 1)
                offset = done.offset()
                producer.begin_transaction()
                futures = [
                    producer.send(to.topic, to.value, to.key, to.headers, to.partition)
                    for to in back
                ]
                producer.flush(timeout=60)
                for future in futures:
                    future.get(timeout=1)
                producer.send_offsets_to_transaction({tp: offset}, group)
                producer.commit_transaction()
                sent += len(back)
                left += len(new) - len(back)
    except AuthorizationError as error:
        with closing(admin(where)) as client:
            raise explain(client, Connection.to(where), needs, error) from error
    except KafkaError as error:
        raise BrokerError(f"dlq replay: {type(error).__name__}: {error}") from error
    finally:
        producer.close(timeout=5)
        consumer.close(autocommit=False)
    return sent, left


def _batches(records: Iterator[Any]) -> Iterator[list[Any]]:
    """Records as they go into one transaction: not too many, nor too large all together.

    One that says that its value is elsewhere ends a batch: how large that is, nobody knows before.
    """
    batch: list[Any] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.value or b"") + len(record.key or b"")
        cut = any(name == TRUNCATED for name, _ in record.headers or ())
        if len(batch) >= _AT_ONCE or size >= _BYTES_AT_ONCE or cut:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


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
        there = (
            consumer.beginning_offsets([tp])[tp] <= letter.offset < consumer.end_offsets([tp])[tp]
        )
        consumer.assign([tp])
        consumer.seek(tp, letter.offset)
        deadline = time.monotonic() + _PATIENCE
        # a place that was compacted away, or is a transaction's marker, is passed over
        while there and consumer.position(tp) == letter.offset:
            for records in consumer.poll(timeout_ms=500, max_records=1).values():
                if records[0].offset == letter.offset:
                    return replace(letter, key=records[0].key, value=records[0].value)
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"{letter.topic}-{letter.partition}@{letter.offset} is there and cannot be read: "
                    "call dlq replay again, it goes on with this letter"
                )
    finally:
        consumer.close(autocommit=False)
    return None
