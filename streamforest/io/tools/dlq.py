"""Dead letters after the fact: list them, and send them back once the cause is gone.

Which letters were sent back is recorded as committed offsets of a group of its own: all letters below the
committed offset were handled. The offset's metadata says for single reasons how much further the letters
of that reason were, so that the others remain for a later call.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import AuthorizationError, KafkaError

from streamforest.errors import BrokerError
from streamforest.io.codec.dead_letters import TRUNCATED, Letter, read_letter
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.clients import admin, ask, connect, persist
from streamforest.io.kafka.compat.records import use_quick_records
from streamforest.io.kafka.compat.workarounds import committed_now
from streamforest.io.kafka.permissions import Need, explain, lacking, needs_of_dlq_replay, refusal
from streamforest.io.kafka.producer import TransactionalProducer
from streamforest.io.kafka.topics import Topics
from streamforest.io.log import CommitInDoubt, OutputRecord, Partition
from streamforest.text import shown

_MAX_LETTERS = 1_000  # letters sent back in one transaction
_MAX_BYTES = 16 << 20  # and their bytes
_ATTEMPTS = 8  # to commit one transaction; each may have to write smaller batches than the last
_READ_SECONDS = 30.0  # for a broker that returns no records
_WRITE_SECONDS = 60.0  # for a broker that takes the messages of one transaction
_MAX_METADATA = 4_096  # bytes; a broker takes no more with an offset


def _consumer(connection: str | Connection, **settings: Any) -> Any:
    consumer = connect(
        KafkaConsumer,
        connection,
        isolation_level="read_committed",
        enable_auto_commit=False,
        **settings,
    )
    use_quick_records(consumer)
    return consumer


def _producer(connection: str | Connection, transactional_id: str) -> TransactionalProducer:
    def settings() -> dict[str, Any]:
        return {
            **Connection.to(connection).arguments(),
            "transactional_id": transactional_id,
            "transaction_timeout_ms": int(_WRITE_SECONDS * 1000),
            "acks": "all",
            "max_request_size": 32 << 20,
            "bootstrap_timeout_ms": 10_000,
        }

    return TransactionalProducer(settings, deadline=_WRITE_SECONDS)


def _records(
    connection: str | Connection, consumer: Any, tp: TopicPartition, start: int
) -> Iterator[Any]:
    """The records of a partition from an offset to where the partition ends now."""
    what = f"{tp.topic} cannot be read"
    end = persist(connection, what, lambda: consumer.end_offsets([tp])[tp])
    first = persist(connection, what, lambda: consumer.beginning_offsets([tp])[tp])
    consumer.assign([tp])
    consumer.seek(tp, max(start, first))
    patience = max(_READ_SECONDS, Connection.to(connection).retry_seconds)
    deadline = time.monotonic() + patience
    while consumer.position(tp) < end:
        if time.monotonic() > deadline:
            raise BrokerError(f"{tp.topic} cannot be read to its end")
        for records in consumer.poll(timeout_ms=300, max_records=500).values():
            yield from (record for record in records if record.offset < end)
            deadline = time.monotonic() + patience  # what the caller does with them takes time, too


def committed_records(
    connection: str | Connection, topic: str, each: int | None = None
) -> Iterator[tuple[Partition, Any]]:
    """The committed records of a topic up to its end now, with their partitions, one partition after the
    other; at most `each` of one.
    """
    try:
        _check(connection, topic, [Need("Read", "topic", topic)])
        consumer = _consumer(connection)
        try:
            for tp in _partitions(consumer, topic):
                for record in islice(_records(connection, consumer, tp, 0), each):
                    yield (tp.topic, tp.partition), record
        finally:
            consumer.close(autocommit=False)
    except KafkaError as error:
        raise BrokerError(f"{topic} cannot be read: {type(error).__name__}: {error}") from error


def letters(connection: str | Connection, topic: str, limit: int | None = None) -> Iterator[Letter]:
    """The dead letters of a topic, oldest first, at most `limit` of them."""
    try:
        _check(connection, topic, [Need("Read", "topic", topic)])
        consumer = _consumer(connection)
        try:
            yield from islice(_letters(connection, consumer, topic), limit)
        finally:
            consumer.close(autocommit=False)
    except KafkaError as error:
        raise BrokerError(f"dlq list: {type(error).__name__}: {error}") from error


def _letters(connection: str | Connection, consumer: Any, topic: str) -> Iterator[Letter]:
    for tp in _partitions(consumer, topic):
        read = map(read_letter, _records(connection, consumer, tp, 0))
        yield from (letter for letter in read if letter is not None)


def _partitions(consumer: Any, topic: str) -> list[TopicPartition]:
    numbers = consumer.partitions_for_topic(topic)
    if numbers is None:
        raise BrokerError(f"the broker does not list the partitions of {topic!r}: try again")
    return [TopicPartition(topic, number) for number in sorted(numbers)]


def _check(where: str | Connection, topic: str, needs: list[Need]) -> None:
    """BrokerError if the topic does not exist, or a permission is missing."""
    connection = Connection.to(where)

    def check(client: Any) -> None:
        missing = lacking(client, needs)
        if missing:
            raise refusal(connection, missing)
        if not client.describe_topics([topic])[0]["partitions"]:
            raise BrokerError(
                f"the broker at {connection.servers} has no topic '{topic}': create it by running "
                "the pipeline with --create-topics"
            )

    ask(connection, check)


@dataclass(frozen=True)
class _Done:
    """Which letters of a partition were handled."""

    every: int
    """All letters below this offset were."""
    of: Mapping[str, int]
    """Reason -> offset: the letters of that reason below it were."""

    @classmethod
    def read(cls, committed: Any) -> _Done:
        if committed is None:
            return cls(0, {})
        try:
            of = {str(r): int(end) for r, end in json.loads(committed.metadata or "{}").items()}
        except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
            raise BrokerError(
                f"dlq replay: its last commit has the metadata {shown(committed.metadata)}, which this "
                "version cannot read"
            ) from error
        return cls(committed.offset, of)

    def before(self, reason: str | None) -> int:
        """The offset at which a call for one reason, or for all (None), begins."""
        return self.every if reason is None else max(self.every, self.of.get(reason, 0))

    def has(self, letter: Letter, offset: int) -> bool:
        """Whether the letter at this offset was handled."""
        return offset < self.before(letter.reason)

    def upto(self, reason: str | None, end: int) -> _Done:
        """The same after the letters below `end` were handled."""
        if reason is None:
            return _Done(end, {r: other for r, other in self.of.items() if other > end})
        return _Done(self.every, {**self.of, reason: end})

    def offset(self) -> OffsetAndMetadata:
        """The offset and metadata to commit."""
        metadata = json.dumps(self.of, sort_keys=True) if self.of else ""
        if len(metadata.encode()) > _MAX_METADATA:
            raise BrokerError(
                "dlq replay: too many single reasons were replayed to record them all: replay the rest "
                "without --reason first"
            )
        return OffsetAndMetadata(self.every, metadata, -1)


def send_back(
    connection: str | Connection, topics: Topics, reason: str | None = None
) -> tuple[int, int]:
    """Send dead letters back to where they came from, each once; (sent, left out).

    A transaction holds some messages and how far the dead letters were read, so that a second call
    continues where the first ended, and a crash in between sends nothing twice. With a `reason`, letters
    of other reasons remain for a later call. A letter whose value was too large to be carried is
    read at its source, if it is still there. The source is a header that anybody can write: a letter
    that names another topic, or a partition that does not exist, is left out.
    """
    needs = needs_of_dlq_replay(topics)
    _check(connection, topics.dead_letters, needs)
    group = f"{topics.dead_letters}.replay"
    consumer = _consumer(connection, group_id=group)
    producer = _producer(connection, group)
    sent = left = 0
    try:
        persist(connection, "dlq replay", producer.replace)
        partitions = {name: range(producer.partitions(name)) for name in topics.inputs}
        for tp in _partitions(consumer, topics.dead_letters):
            done = _Done.read(
                persist(
                    connection,
                    "dlq replay",
                    lambda tp=tp: committed_now(consumer, tp, timeout_ms=20_000),  # type: ignore[misc]
                )
            )
            for batch in _batches(_records(connection, consumer, tp, done.before(reason))):
                read = [(read_letter(record), record.offset) for record in batch]
                new = [one for one, offset in read if one is None or not done.has(one, offset)]
                back = [
                    whole
                    for letter in new
                    if letter is not None and _wanted(letter, partitions, reason)
                    if (whole := _whole(connection, letter)) is not None
                ]
                done = done.upto(reason, batch[-1].offset + 1)
                _commit(producer, consumer, tp, group, back, done)
                sent += len(back)
                left += len(new) - len(back)
    except AuthorizationError as error:
        with closing(admin(connection)) as client:
            raise explain(client, Connection.to(connection), needs, error) from error
    except KafkaError as error:
        raise BrokerError(f"dlq replay: {type(error).__name__}: {error}") from error
    finally:
        producer.close()
        consumer.close(autocommit=False)
    return sent, left


def _commit(
    producer: TransactionalProducer,
    consumer: Any,
    tp: TopicPartition,
    group: str,
    back: list[Letter],
    done: _Done,
) -> None:
    """Send letters back and record it, in one transaction.

    After a doubtful outcome a new producer aborts what is unfinished; then the committed offset says
    whether the transaction took place, and it is made again only if it did not.
    """
    messages: dict[str, list[OutputRecord]] = {}
    for letter in back:
        message = OutputRecord(letter.value, letter.key, letter.headers, letter.partition)
        messages.setdefault(letter.topic, []).append(message)
    offsets = {tp: done.offset()}
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            producer.begin()
            if messages:
                producer.publish(messages)
            producer.add_offsets(offsets, group)
            producer.commit()
            return
        except CommitInDoubt as doubt:
            producer.replace()
            if _Done.read(committed_now(consumer, tp, timeout_ms=20_000)) == done:
                return
            if attempt == _ATTEMPTS:
                raise BrokerError(
                    f"dlq replay: {doubt}, {attempt} times in a row: call it again, it continues "
                    "with these letters"
                ) from doubt


def _batches(records: Iterator[Any]) -> Iterator[list[Any]]:
    """Records by transaction: limited in number and in bytes.

    A letter whose value is at its source ends a batch, because its size is not known before it is read.
    """
    batch: list[Any] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.value or b"") + len(record.key or b"")
        cut = any(name == TRUNCATED for name, _ in record.headers or ())
        if len(batch) >= _MAX_LETTERS or size >= _MAX_BYTES or cut:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _wanted(letter: Letter, partitions: Mapping[str, Collection[int]], reason: str | None) -> bool:
    return (
        letter.partition in partitions.get(letter.topic, ())
        and letter.offset >= 0
        and (reason is None or letter.reason == reason)
    )


def _whole(connection: str | Connection, letter: Letter) -> Letter | None:
    """The letter with its original key and value, read at its source if it carries only the beginning
    of them; None if they are gone, or if it has neither.
    """
    if letter.truncated is None:
        return None if letter.value is None and letter.key is None else letter
    consumer = _consumer(connection, max_partition_fetch_bytes=64 << 20)
    tp = TopicPartition(letter.topic, letter.partition)
    try:
        exists = (
            consumer.beginning_offsets([tp])[tp] <= letter.offset < consumer.end_offsets([tp])[tp]
        )
        consumer.assign([tp])
        consumer.seek(tp, letter.offset)
        deadline = time.monotonic() + _READ_SECONDS
        # the position moves past an offset that was compacted away or is a transaction's marker
        while exists and consumer.position(tp) == letter.offset:
            for records in consumer.poll(timeout_ms=500, max_records=1).values():
                if records[0].offset == letter.offset:
                    return replace(letter, key=records[0].key, value=records[0].value)
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"{letter.topic}-{letter.partition}@{letter.offset} exists but cannot be read: "
                    "call dlq replay again, it continues with this letter"
                )
    finally:
        consumer.close(autocommit=False)
    return None
