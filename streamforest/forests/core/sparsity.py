"""Whether rows are sparse: many features, of which an event has few.

There the keys that an event lacks are no gaps but zeros (a bag of words, counts of items), and a forest that
takes them as missing learns next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

LOOKED_AT = 256
"""Events after which a model has an opinion."""
_MANY = 100  # features below which rows are never called sparse
_FEW = 0.1  # share of the features that an event of sparse rows has, at most


def is_sparse(values: int, events: int, features: int) -> bool:
    """Whether so many events with so many values in all make sparse rows of these features.

    >>> is_sparse(values=2_500, events=100, features=1_000), is_sparse(2_500, 100, 30)
    (True, False)
    """
    return features >= _MANY and values < _FEW * features * events


def sparse_advice(events: Iterable[Mapping[Any, Any]]) -> str | None:
    """What to say of a sample of events where they are sparse; None where they are not.

    >>> words = [{f"word {7 * i % 211}": 1, f"word {11 * i % 211}": 2} for i in range(300)]
    >>> print(sparse_advice(words))
    rows are sparse: an event has 2 of 211 features; if those it lacks are 0, set absent="zero"
    """
    names: set[Any] = set()
    values = count = 0
    for event in events:
        held = [name for name, value in event.items() if value is not None]
        names.update(held)
        values += len(held)
        count += 1
    return _advice(values, count, len(names)) if is_sparse(values, count, len(names)) else None


def _advice(values: int, events: int, features: int) -> str:
    return (
        f"rows are sparse: an event has {values / events:.0f} of {features:,} features; if those it lacks "
        'are 0, set absent="zero"'
    )


class SparsityWatch:
    """Looks at the first events that a model learns and says once if they are sparse."""

    def __init__(self, absent: str) -> None:
        self.left = LOOKED_AT if absent == "missing" else 0
        self.values = 0

    def see(self, values: int, features: int) -> list[str]:
        """An event with so many values was learned; what is to be told of it."""
        if self.left == 0:
            return []
        self.left -= 1
        self.values += values
        if self.left == 0 and is_sparse(self.values, LOOKED_AT, features):
            return [_advice(self.values, LOOKED_AT, features)]
        return []
