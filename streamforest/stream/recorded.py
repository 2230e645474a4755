"""Events from a recorded set: no broker, one partition, every event known by its number.

The events of a source are a pure function of its settings, so a run can be stopped and taken up at
any event. `describe()` says which events they are, down to a checksum: a snapshot keeps it, and a
run is never continued on other data than it began with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from streamforest import datasets
from streamforest.datasets import Label, Stream
from streamforest.errors import SnapshotError


@dataclass(frozen=True)
class ClassSchedule:
    """When classes appear: `first` of them at the start, then one more every `every` events."""

    order: str | Sequence[Label] = "recorded"
    first: int = 2
    every: int = 400
    seed: int = 0


@dataclass(frozen=True)
class Batch:
    """Events in order: number of the first, their features, their labels."""

    first: int
    x: pd.DataFrame
    y: list[Label | None]

    def __len__(self) -> int:
        return len(self.y)


class RecordedSource:
    """A recorded stream, read from `position` on.

    >>> source = RecordedSource.open("bananas", events=100)
    >>> batch = source.poll(3)
    >>> batch.first, batch.y, source.position, source.total
    (0, [False, False, False], 3, 100)
    """

    def __init__(self, stream: Stream, settings: dict[str, Any] | None = None) -> None:
        self._stream = stream
        self._labels: list[Label | None] = stream.y.tolist()
        self._columns = pd.Index(stream.features)
        self._settings = settings or {"dataset": stream.name}
        self._checksum = _checksum(stream)
        self.position = 0
        self.total = len(stream)

    @staticmethod
    def names() -> list[str]:
        """The sets that `open` knows."""
        return datasets.names()

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
            settings |= {
                "schedule.order": order,
                "schedule.first": classes.first,
                "schedule.every": classes.every,
                "schedule.seed": classes.seed,
            }
        return cls(stream, settings)

    def describe(self) -> dict[str, Any]:
        """Settings and checksum as plain data: equal only for the same events in the same order."""
        return {**self._settings, "checksum": self._checksum}

    def rows(self, first: int, last: int) -> Batch:
        """Events `first` to before `last`; the position stays."""
        return Batch(
            first,
            pd.DataFrame(self._stream.X[first:last], columns=self._columns, copy=False),
            self._labels[first:last],
        )

    def poll(self, most: int) -> Batch:
        """The next events, at most `most`; none at the end."""
        batch = self.rows(self.position, min(self.position + most, self.total))
        self.position += len(batch)
        return batch

    def seek(self, position: int) -> None:
        """Go on at event number `position`."""
        if not 0 <= position <= self.total:
            raise SnapshotError(
                f"position {position} lies outside the {self.total} events of the source; "
                "start over with --fresh"
            )
        self.position = position


def _checksum(stream: Stream) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update("\n".join((*stream.features, stream.y.dtype.str)).encode())
    digest.update(stream.X.data)
    digest.update(stream.y.tobytes())
    return digest.hexdigest()
