"""Events from a recorded set: each has a number, and reading can begin at any of them.

The events of a source are a pure function of its settings, so a run can stop and resume at any event.
`describe()` says which events they are, down to a checksum. Snapshots store it, so that a run never
continues with other data than it began with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streamforest import datasets
from streamforest.datasets import Label, Stream
from streamforest.errors import ConfigError
from streamforest.io.codec.events import Event, encode


@dataclass(frozen=True)
class ClassSchedule:
    """When classes appear: `first` of them at the start, then one more every `every` events."""

    order: str | Sequence[Label] = "recorded"
    first: int = 2
    every: int = 400
    seed: int = 0

    def described(self) -> dict[str, Any]:
        """As JSON values, for a source's description."""
        return {
            "schedule.order": self.order if isinstance(self.order, str) else list(self.order),
            "schedule.first": self.first,
            "schedule.every": self.every,
            "schedule.seed": self.seed,
        }


class RecordedRow:
    """A row as a record of partition 0: an event, the fields of a table's row, or the bytes of a line."""

    __slots__ = ("_value", "event", "offset", "problem", "record")
    is_row = True
    timestamp = 0
    key = None
    headers: Any = ()

    def __init__(
        self,
        offset: int,
        event: Event | None = None,
        value: bytes | None = None,
        problem: str | None = None,
        record: dict[str, Any] | None = None,
    ) -> None:
        self.offset = offset
        self.problem = problem
        """Why it is invalid, if the source knows already; the codec then does not read it."""
        self.event = event
        self.record = record
        self._value = value

    @property
    def value(self) -> bytes | None:
        """The bytes; encoded on demand, for a dead letter or a replay."""
        if self._value is None and (self.event is not None or self.record is not None):
            return encode(self.fields())
        return self._value

    def at(self, offset: int) -> RecordedRow:
        """The same row with another offset."""
        return RecordedRow(offset, self.event, self._value, self.problem, self.record)

    def fields(self) -> dict[str, Any]:
        """The fields of its message."""
        if self.record is not None:
            return self.record
        event = self.event
        assert event is not None
        fields: dict[str, Any] = {"x": event.x}
        for name in ("y", "id", "ts", "coarse"):
            if getattr(event, name) is not None:
                fields[name] = getattr(event, name)
        return fields


class Source(Protocol):
    """Recorded events in order."""

    topic: str
    total: int

    def describe(self) -> dict[str, Any]:
        """JSON values that are equal only for the same events in the same order."""

    def rows(self, start: int) -> Iterator[RecordedRow]:
        """The events from number `start` on."""


class RecordedSource:
    """A stream of the `datasets` package.

    >>> source = RecordedSource.open("bananas", events=100)
    >>> source.total, [(row.offset, row.event.y) for row in source.rows(98)]
    (100, [(98, False), (99, False)])
    """

    def __init__(self, stream: Stream, settings: dict[str, Any] | None = None) -> None:
        self._stream = stream
        self._labels: list[Label | None] = stream.y.tolist()
        self._settings = settings or {"dataset": stream.name}
        self._checksum = _checksum(stream)
        self.topic = stream.name
        self.total = len(stream)

    @staticmethod
    def names() -> list[str]:
        """The sets that `open` knows."""
        return [
            *datasets.names(),
            *datasets.names(held_out=True),
            *datasets.names(scheduled=True),
            *datasets.names(long=True),
            *datasets.names(text=True),
            *datasets.names(example=True),
        ]

    @classmethod
    def open(
        cls, dataset: str, events: int | None = None, classes: ClassSchedule | None = None
    ) -> RecordedSource:
        """The set called `dataset`, or its first `events`, with or without a class schedule."""
        stream = datasets.load(dataset, events)
        settings: dict[str, Any] = {"dataset": dataset, "events": len(stream)}
        if classes is not None:
            order = classes.order if isinstance(classes.order, str) else list(classes.order)
            stream = datasets.schedule(stream, order, classes.first, classes.every, classes.seed)
            settings |= classes.described()
        return cls(stream, settings)

    def describe(self) -> dict[str, Any]:
        """Settings and checksum as JSON values."""
        return {**self._settings, "checksum": self._checksum}

    def rows(self, start: int) -> Iterator[RecordedRow]:
        """The events from number `start` on."""
        if not 0 <= start <= self.total:
            raise ConfigError(f"event {start} lies outside the {self.total} events of the source")
        for number in range(start, self.total):
            x = self._stream.event(number)
            yield RecordedRow(number, Event(x, self._labels[number]))  # type: ignore[arg-type]


def _checksum(stream: Stream) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update("\n".join((*stream.features, stream.y.dtype.str)).encode())
    digest.update(stream.X.data)
    digest.update(stream.y.tobytes())
    if stream.texts is not None:
        digest.update("\n".join(stream.texts.tolist()).encode())
    return digest.hexdigest()
