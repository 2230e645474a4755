"""What a store of late labels keeps by id, and how many bytes each of them counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import msgspec

from streamforest.text import KEPT, kept_bytes

_FIXED = 200  # bytes that an event takes beside its features and its id

Place = tuple[str, int, int]
"""Topic, partition and offset."""
_One = TypeVar("_One", "Waiting", "Held", "Known")


@dataclass(slots=True)
class Waiting:
    """An event that waits for its label. `since` is stream time, None until the clock is sure of it."""

    x: bytes
    at: int
    since: int | None
    guesses: list[Any] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes that it is counted with, beside its id."""
        return len(self.x) + _FIXED - KEPT

    def features(self) -> Any:
        """As they came with the event."""
        return msgspec.msgpack.decode(self.x)


@dataclass(slots=True)
class Held:
    """A label that waits for its event."""

    y: Any
    at: int
    since: int | None
    place: Place

    @property
    def size(self) -> int:
        """Bytes that it is counted with, beside its id."""
        return kept_bytes(self.y)


@dataclass(slots=True)
class Known:
    """An id that is done with: labelled, or else expired."""

    labelled: bool
    since: int | None
    size: ClassVar[int] = 0
    """It is its id, and nothing else."""


class Kept(dict[Any, _One]):
    """By id, the oldest first; `bytes` is what all of them are counted with."""

    bytes = 0

    def put(self, identity: Any, one: _One) -> None:
        """A new one, as the youngest."""
        self.take(identity)
        self[identity] = one
        self.bytes += kept_bytes(identity) + one.size

    def take(self, identity: Any) -> _One | None:
        """One that is there no longer, if it was."""
        one = self.pop(identity, None)
        if one is not None:
            self.bytes -= kept_bytes(identity) + one.size
        return one

    def oldest(self) -> Any:
        """Its id."""
        return next(iter(self))


class Said:
    """Guesses as numbers, in the order first met; 1, 1.0 and True are told apart."""

    def __init__(self) -> None:
        self.labels: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def __call__(self, label: Any) -> int:
        number = self._numbers.setdefault((type(label), label), len(self.labels))
        if number == len(self.labels):
            self.labels.append(label)
        return number
