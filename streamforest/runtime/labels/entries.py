"""The entries of the label store, and how many bytes each counts for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import msgspec

from streamforest.text import KEPT, kept_bytes

_FIXED = 200  # bytes that an event counts for besides its features and its id

Place = tuple[str, int, int]
"""Topic, partition and offset."""
_One = TypeVar("_One", "Waiting", "Held", "Known", "Refinable")


@dataclass(slots=True)
class Waiting:
    """An event that waits for its label. `since` is the stream time at which it began to wait, None until
    that time is known.
    """

    x: bytes
    at: int
    since: int | None
    guesses: list[Any] = field(default_factory=list)
    coarse_guesses: list[Any] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes it counts for, besides its id."""
        return len(self.x) + _FIXED - KEPT

    def features(self) -> Any:
        """The features as the event had them."""
        return msgspec.msgpack.decode(self.x)


@dataclass(slots=True)
class Held:
    """A label that waits for its event."""

    y: Any
    at: int
    since: int | None
    place: Place
    coarse: Any = None

    @property
    def size(self) -> int:
        """Bytes it counts for, besides its id."""
        return sum(kept_bytes(one) for one in (self.y, self.coarse) if one is not None)


@dataclass(slots=True)
class Refinable:
    """An event that was learned with only a coarse label: its class may still come."""

    coarse: Any
    numbers: list[int] = field(default_factory=list)
    """The number of its row in each model."""
    guesses: list[Any] = field(default_factory=list)
    """The class that each model predicted."""
    size: ClassVar[int] = _FIXED - KEPT


@dataclass(slots=True)
class Known:
    """An id whose event was labelled, or else has expired."""

    labelled: bool
    since: int | None
    coarse: bool = False
    """Whether only its category is known, and its row can no longer be found."""
    size: ClassVar[int] = 0
    """Only its id counts."""


class Kept(dict[Any, _One]):
    """Entries by id, the oldest first; `bytes` is what all of them count for."""

    bytes = 0

    def put(self, identity: Any, one: _One) -> None:
        """Add an entry as the youngest."""
        self.take(identity)
        self[identity] = one
        self.bytes += kept_bytes(identity) + one.size

    def take(self, identity: Any) -> _One | None:
        """Remove an entry and return it; None if there is none."""
        one = self.pop(identity, None)
        if one is not None:
            self.bytes -= kept_bytes(identity) + one.size
        return one

    def oldest(self) -> Any:
        """The id of the oldest entry."""
        return next(iter(self))


class LabelNumbers:
    """Predicted labels as numbers, in the order of their first use; 1, 1.0 and True stay distinct."""

    def __init__(self) -> None:
        self.labels: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def __call__(self, label: Any) -> int:
        number = self._numbers.setdefault((type(label), label), len(self.labels))
        if number == len(self.labels):
            self.labels.append(label)
        return number
