"""Replay: a recorded set or file to a topic, as if it were happening now.

Deterministic: the same source and the same options give the same messages in the same partitions,
bad ones included. Only their times differ.
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

from kafka import KafkaProducer
from kafka.errors import KafkaError, MessageSizeTooLargeError

from streamforest.errors import BrokerError
from streamforest.io.codec.events import Format, encode
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.clients import asking, connect
from streamforest.io.kafka.permissions import Need, lacking, refusal
from streamforest.io.kafka.topics import create_topic
from streamforest.io.sources.dataset import RecordedRow, Source

log = logging.getLogger(__name__)

_AT_ONCE = 2_000  # messages between two looks at their outcome


@dataclass(frozen=True)
class ReplayOptions:
    """How to replay.

    `rate` is events a second (None: as fast as it goes), `loops` how often the source is sent, `bad`
    the share of messages that are no events. With a `label_delay` events go out without their label,
    which follows that many events later, by id, to `labels_topic`.
    """

    topic: str
    partitions: int = 4
    rate: float | None = None
    loops: int = 1
    bad: float = 0.0
    seed: int = 0
    form: Format = "json"
    label_delay: int = 0
    labels_topic: str | None = None
    label_lanes: int | None = None
    """Partitions of the labels' topic, where they differ from the events'."""
    start: int = 0
    """Messages to leave out, because an earlier replay with the same options has sent them."""
    vectors: bool = False
    """Send the features as an array, in the source's order, instead of by name."""


@dataclass(frozen=True)
class Message:
    """One message of a replay."""

    topic: str
    partition: int
    value: bytes


def messages(source: Source, options: ReplayOptions) -> Iterator[Message]:
    """All messages of a replay, in order."""
    draw = random.Random(options.seed)
    waiting: deque[tuple[str, Any, int]] = deque()
    labels = options.labels_topic or f"{options.topic}.labels"
    number = 0
    for loop in range(options.loops):
        for row in source.rows(0):
            lane = number % options.partitions
            if options.bad and draw.random() < options.bad:
                yield Message(options.topic, lane, bad_value(draw))
                number += 1
                lane = number % options.partitions
            fields = _fields(row, f"{loop}-{row.offset}", options)
            if options.label_delay and fields is not None:
                waiting.append((fields["id"], fields.pop("y", None), lane))
            value = (row.value or b"") if fields is None else encode(fields, options.form)
            yield Message(options.topic, lane, value)
            number += 1
            if len(waiting) > options.label_delay:
                yield _label(labels, waiting.popleft(), options)
    for late in waiting:
        yield _label(labels, late, options)


def _fields(row: RecordedRow, identity: str, options: ReplayOptions) -> dict[str, Any] | None:
    """The event to send; None for a line of a file, which goes out as it is."""
    if row.event is None:
        return None
    fields = {"id": identity, **row.fields()}
    if options.vectors and isinstance(fields["x"], dict):
        fields["x"] = list(fields["x"].values())
    return fields


def _label(topic: str, late: tuple[str, Any, int], options: ReplayOptions) -> Message:
    """A label, in the partition of the same number as its event's."""
    identity, y, lane = late
    lane %= options.label_lanes or options.partitions
    return Message(topic, lane, encode({"id": identity, "y": y}, options.form))


def bad_value(draw: random.Random) -> bytes:
    """Something that is no event: one of the ways in which producers go wrong."""
    return draw.choice(
        [
            draw.randbytes(draw.randrange(1, 60)),
            b'{"x": {"a": 1.0}, "y": "cut sho',
            b'{"y": "no features"}',
            b'{"x": {"a": {"nested": 1}}, "y": "b"}',
            b'{"x": [1, "two", 3]}',
            b'{"x": {"a": 1}, "y": {"not": "a label"}}',
            b'{"x": {"a": 1}, "v": 99}',
            b"",
        ]
    )


def replay(
    where: str | Connection,
    source: Source,
    options: ReplayOptions,
    progress: Callable[[int], None] = lambda sent: None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Make the topic if it is missing and send everything; how many messages the broker took."""
    wanted = {options.topic: options.partitions}
    if options.label_delay:
        wanted[options.labels_topic or f"{options.topic}.labels"] = options.partitions
    lanes = prepare(where, wanted)
    there = lanes[options.topic]
    options = replace(options, label_lanes=list(lanes.values())[-1])
    if there != options.partitions:
        log.info("%s has %d partitions already: these are used", options.topic, there)
        options = replace(options, partitions=there)
    producer = connect(KafkaProducer, where, acks="all", linger_ms=20, batch_size=256 * 1024)
    sent, futures = 0, []
    begun = time.monotonic()
    try:
        for message in islice(messages(source, options), options.start, None):
            if stop():
                break
            if options.rate is not None:
                _hold(begun + sent / options.rate, stop)
            futures.append(producer.send(message.topic, message.value, partition=message.partition))
            sent += 1
            if len(futures) >= _AT_ONCE:
                _check(producer, futures)
                progress(sent)
        _check(producer, futures)
        progress(sent)
    except MessageSizeTooLargeError as error:
        raise BrokerError(
            f"replay stopped after {sent:,} messages: the source has one that is larger than the broker "
            "takes (1 MB, if its settings are the usual ones); shorten it, or remove it"
        ) from error
    except KafkaError as error:
        raise BrokerError(
            f"replay stopped after {sent:,} messages: {type(error).__name__}: {error}"
        ) from error
    finally:
        producer.close(timeout=5)
    return sent


def prepare(where: str | Connection, topics: Mapping[str, int]) -> dict[str, int]:
    """Topics and their partitions: make those that are missing, and see that we may write; how many
    partitions each one has.
    """
    found = dict(topics)
    with asking(where) as client:
        missing = lacking(client, [Need("Write", "topic", name) for name in topics])
        if missing:
            raise refusal(Connection.to(where), missing)
        for topic in client.describe_topics(list(topics)):
            if not topic["partitions"]:
                create_topic(client, topic["name"], topics[topic["name"]])
            else:
                found[topic["name"]] = len(topic["partitions"])
    return found


def _hold(due: float, stop: Callable[[], bool]) -> None:
    while (wait := due - time.monotonic()) > 0 and not stop():
        time.sleep(min(wait, 0.2))


def _check(producer: Any, futures: list[Any]) -> None:
    """Wait for the broker's word on every message."""
    producer.flush(timeout=60)
    for future in futures:
        future.get(timeout=1)
    futures.clear()
