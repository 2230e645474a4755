"""Replay: sends a recorded set or file to a topic, as if it were happening now.

The same source and the same options give the same messages in the same partitions, bad ones
included. Only their times differ. Without a rate the rows are stamped 1 ms apart, whatever the speed at which
they are sent, so that a pipeline that merges partitions by record time gets the order of the file.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError, MessageSizeTooLargeError

from streamforest.errors import BrokerError
from streamforest.io.codec.events import Format, encode
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.clients import ask, connect
from streamforest.io.kafka.permissions import Need, lacking, refusal
from streamforest.io.kafka.topics import create_topic
from streamforest.io.sources.dataset import RecordedRow, Source

log = logging.getLogger(__name__)

_BATCH = 2_000  # messages between two checks of their outcome
_AHEAD_MS = 50 * 60_000  # a broker refuses timestamps more than an hour ahead


@dataclass(frozen=True)
class ReplayOptions:
    """How to replay.

    `rate` is in events a second (None: as fast as possible), `loops` how often the source is sent, `bad`
    the share of messages that are invalid on purpose. With a `label_delay` events are sent without their
    label, which follows that many events later, by id, on `labels_topic`.
    """

    topic: str
    partitions: int = 4
    rate: float | None = None
    loops: int = 1
    bad: float = 0.0
    seed: int = 0
    format: Format = "json"
    label_delay: int = 0
    labels_topic: str | None = None
    label_partitions: int | None = None
    """Partitions of the labels' topic, if they differ from the events'."""
    start: int = 0
    """Messages to skip, because an earlier replay with the same options has sent them."""
    vectors: bool = False
    """Send the features as an array, in the source's order, instead of by name."""
    label: str = "y"
    id: str = "id"
    """How the messages call label and id: as the rows of a table do, and the pipeline that reads them."""


@dataclass(frozen=True)
class Message:
    """One message of a replay; `number` is that of the row, and of the row after which a label is sent."""

    topic: str
    partition: int
    value: bytes
    number: int


def messages(source: Source, options: ReplayOptions) -> Iterator[Message]:
    """All messages of a replay, in order."""
    draw = random.Random(options.seed)
    waiting: deque[tuple[str, Any, int]] = deque()
    labels = options.labels_topic or f"{options.topic}.labels"
    number = 0
    for loop in range(options.loops):
        for row in source.rows(0):
            partition = number % options.partitions
            if options.bad and draw.random() < options.bad:
                yield Message(options.topic, partition, bad_value(draw), number)
                number += 1
                partition = number % options.partitions
            fields = _fields(row, f"{loop}-{row.offset}", options)
            if options.label_delay and fields is not None:
                late = fields[options.id], fields.pop(options.label, None), partition
                waiting.append(late)
            value = (row.value or b"") if fields is None else encode(fields, options.format)
            yield Message(options.topic, partition, value, number)
            if len(waiting) > options.label_delay:
                yield _label(labels, waiting.popleft(), options, number)
            number += 1
    for after, late in enumerate(waiting):
        yield _label(labels, late, options, number + after)


def _fields(row: RecordedRow, identity: str, options: ReplayOptions) -> dict[str, Any] | None:
    """The fields to send, with an id; None for a line of a file, which is sent as it is."""
    if row.record is not None:
        fields = {options.id: identity, **row.record}
        return _as_vector(fields, options) if options.vectors else fields
    if row.event is None:
        return None
    fields = {"id": identity, **row.fields()}
    if options.vectors and isinstance(fields["x"], dict):
        fields["x"] = list(fields["x"].values())
    for name, own in (("y", options.label), ("id", options.id)):
        if name in fields and name != own:
            fields[own] = fields.pop(name)
    return fields


def _as_vector(fields: dict[str, Any], options: ReplayOptions) -> dict[str, Any]:
    """A table's row with its features as an array."""
    own = {name: fields.pop(name) for name in (options.id, options.label) if name in fields}
    return {**own, "x": list(fields.values())}


def _label(topic: str, late: tuple[str, Any, int], options: ReplayOptions, number: int) -> Message:
    """A label, in the partition with the number of its event's."""
    identity, y, partition = late
    partition %= options.label_partitions or options.partitions
    value = encode({options.id: identity, options.label: y}, options.format)
    return Message(topic, partition, value, number)


def bad_value(draw: random.Random) -> bytes:
    """An invalid event: one of the ways in which producers go wrong."""
    return draw.choice(
        [
            draw.randbytes(draw.randrange(1, 60)),
            b'{"x": {"a": 1.0}, "y": "cut sho',
            b'{"y": "no features"}',
            b'{"x": null, "y": "b"}',
            b'{"x": [1, "two", 3]}',
            b'{"x": {"a": 1}, "y": {"not": "a label"}}',
            b'{"x": {"a": 1}, "v": 99}',
            b"",
        ]
    )


def replay(
    connection: str | Connection,
    source: Source,
    options: ReplayOptions,
    progress: Callable[[int], None] = lambda sent: None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Create the topic if it is missing and send everything; returns how many messages the broker took."""
    wanted = {options.topic: options.partitions}
    if options.label_delay:
        wanted[options.labels_topic or f"{options.topic}.labels"] = options.partitions
    partitions = prepare(connection, wanted)
    existing = partitions[options.topic]
    options = replace(options, label_partitions=list(partitions.values())[-1])
    if existing != options.partitions:
        log.info("%s exists with %d partitions: these are used", options.topic, existing)
        options = replace(options, partitions=existing)
    first = None
    if options.rate is None:
        first = _first_timestamp(
            connection, partitions, source.total * options.loops, options.start
        )
    producer = connect(KafkaProducer, connection, acks="all", linger_ms=20, batch_size=256 * 1024)
    sent, futures = 0, []
    begun = time.monotonic()
    try:
        for message in islice(messages(source, options), options.start, None):
            if stop():
                break
            if options.rate is not None:
                _wait_until(begun + sent / options.rate, stop)
            at = None if first is None else first + message.number
            futures.append(
                producer.send(
                    message.topic, message.value, partition=message.partition, timestamp_ms=at
                )
            )
            sent += 1
            if len(futures) >= _BATCH:
                _check(producer, futures)
                progress(sent)
        _check(producer, futures)
        progress(sent)
    except MessageSizeTooLargeError as error:
        raise BrokerError(
            f"replay stopped after {sent:,} messages: the next one is larger than the broker takes "
            "(1 MB by default); shorten it, or remove it"
        ) from error
    except KafkaError as error:
        raise BrokerError(
            f"replay stopped after {sent:,} messages: {type(error).__name__}: {error}"
        ) from error
    finally:
        producer.close(timeout=5)
    return sent


def prepare(connection: str | Connection, topics: Mapping[str, int]) -> dict[str, int]:
    """Create the topics that are missing, with so many partitions, and check that we may write to all.

    Returns how many partitions each topic has.
    """
    counts = dict(topics)

    def ensure(client: Any) -> None:
        missing = lacking(client, [Need("Write", "topic", name) for name in topics])
        if missing:
            raise refusal(Connection.to(connection), missing)
        for topic in client.describe_topics(list(topics)):
            if not topic["partitions"]:
                create_topic(client, topic["name"], topics[topic["name"]])
            else:
                counts[topic["name"]] = len(topic["partitions"])

    ask(connection, ensure)
    return counts


def _first_timestamp(
    connection: str | Connection, topics: Mapping[str, int], rows: int, start: int
) -> int:
    """The time of row 0 if rows are 1 ms apart: the last one is of now. Later where the topics already hold
    records of that time: those came first.
    """
    now = int(time.time() * 1000)
    first, last = now - rows, -1
    specs = {
        TopicPartition(topic, partition): OffsetSpec.MAX_TIMESTAMP
        for topic, count in topics.items()
        for partition in range(count)
    }
    try:
        found = ask(connection, lambda client: client.list_partition_offsets(specs))
        last = max((offset.timestamp for offset in found.values()), default=-1)
    except BrokerError as error:
        log.info("the broker does not tell the time of the last record: %s", error)
    follows = last + 1 - start
    return follows if first < follows <= now + _AHEAD_MS - rows else first


def _wait_until(due: float, stop: Callable[[], bool]) -> None:
    while (wait := due - time.monotonic()) > 0 and not stop():
        time.sleep(min(wait, 0.2))


def _check(producer: Any, futures: list[Any]) -> None:
    """Wait until the broker has taken every message; raises what it refused one with."""
    producer.flush(timeout=60)
    for future in futures:
        future.get(timeout=1)
    futures.clear()
