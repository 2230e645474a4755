"""Labels that clients send: published to the pipeline's topic at least once, with the place that each got.

A pipeline with late labels takes a label by itself (`id` and `y`); any other takes an event that carries its
label. Each message is judged as the pipeline will judge it, so that what could never be learned is refused
here. What was accepted has been written to all replicas of its partition; a client that got no answer sends
it again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from kafka import KafkaProducer
from kafka.errors import KafkaError

from streamforest.errors import BrokerError, EventError, InputError
from streamforest.io.codec.events import is_label
from streamforest.io.kafka.clients import connect
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.processing.intake import reason_of
from streamforest.serve.answering import Kind, Message, Refusal, View
from streamforest.serve.batching import Model
from streamforest.serve.problems import Told, unavailable

_AT_ONCE = 8  # requests that are being published
_SECONDS = 20.0


class Published(msgspec.Struct, frozen=True):
    """Where a label is."""

    topic: str
    partition: int
    offset: int


class LabelPublisher:
    """Publishes to the topic that the pipeline reads its labels from."""

    def __init__(self, pipeline: Pipeline, partition: int | None) -> None:
        config = pipeline.config
        assert config.kafka is not None
        self.topic = config.topics.labels or config.topics.events
        self.own_topic = config.topics.labels is not None
        self.late = config.labels is not None
        foreign = pipeline.decoder is not None or config.events_format not in ("json", "msgpack")
        self.kind: Kind = "own" if foreign else config.events_format  # type: ignore[assignment]
        self._partition = partition
        self._producer: Any = connect(
            KafkaProducer,
            config.kafka.connection,
            acks="all",
            linger_ms=2,
            request_timeout_ms=10_000,
            delivery_timeout_ms=int(1000 * _SECONDS),
            max_block_ms=10_000,
            max_request_size=config.bounds.max_bytes + (1 << 16),
        )
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def publish(self, model: Model, values: list[bytes]) -> list[Published | Refusal]:
        """Publish each message that is a label; where it is, or why it is none. Problem if the broker takes
        none.
        """
        if self._room.locked():
            raise unavailable("busy", f"{_AT_ONCE} requests are being published; try again")
        async with self._room:
            return await asyncio.to_thread(self._publish, model, values)

    def _publish(self, model: Model, values: list[bytes]) -> list[Published | Refusal]:
        decode = model.decoders.get(self.kind)
        told: list[Any] = []
        with model.reading() as view:
            for value in values:
                try:
                    self._check(view, value, decode)
                    told.append(None)
                except InputError as error:
                    told.append(Refusal(Told(reason_of(error), str(error))))
        try:
            for place, value in enumerate(values):
                if told[place] is None:
                    sent = self._producer.send(self.topic, value, partition=self._partition)
                    told[place] = sent
            for place, sent in enumerate(told):
                if not isinstance(sent, Refusal):
                    found = sent.get(timeout=_SECONDS)
                    told[place] = Published(found.topic, found.partition, found.offset)
        except (KafkaError, BrokerError) as error:
            raise unavailable(
                "not_published",
                f"the broker did not take all of it ({type(error).__name__}): send it again",
            ) from error
        return told

    def _check(self, view: View, value: bytes, decode: Any) -> None:
        record = Message(value)
        if self.own_topic:
            label = view.reader.read_label(record, decode)
            if label.id is None or (label.y is None and label.coarse is None):
                raise EventError("invalid label: it needs both an id and a label", "invalid")
            return
        event = view.reader.read(record, decode)
        if event.y is None and event.coarse is None:
            raise EventError("invalid label: the message has none", "invalid")
        if is_label(event) and not self.late:
            raise EventError(
                "invalid label: it has no event with it, and the pipeline takes no labels by themselves "
                "([labels])",
                "invalid",
            )

    def close(self) -> None:
        """Close the producer, after what is under way."""
        self._producer.close(timeout=_SECONDS)
