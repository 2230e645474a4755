"""How the labels of a batch relate to its rows: what is learned late, and what each is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from streamforest.runtime.labels.entries import Refinable, Waiting

Entry = Waiting | Refinable
Judged = tuple[int, Any, Entry | None]
"""A row's number (-1: none), its true label, and the event, if it was predicted earlier."""


@dataclass
class Refinement:
    """The class of an event that was learned with a coarse label; it counts before row `row`."""

    row: int
    y: Any
    entry: Refinable
    done: bool = False
    """Whether a model could still learn it."""


@dataclass
class LateBatch:
    """How the labels of a batch relate to its rows."""

    predicted: list[int] = field(default_factory=list)
    """Rows that are predicted; the others are only learned."""
    asked: list[tuple[int, Entry]] = field(default_factory=list)
    """Rows whose prediction is kept with the event while it waits for a label."""
    judged: list[Judged] = field(default_factory=list)
    judged_coarse: list[Judged] = field(default_factory=list)
    coarse_rows: list[tuple[int, Refinable]] = field(default_factory=list)
    """Rows that are learned with a coarse label alone."""
    refinements: list[Refinement] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    """Seconds from each event's record to that of its label."""
    labels: int = 0
    """Records that were labels."""

    def settle(self, guesses: Sequence[Any], model: int) -> tuple[list[Any], list[Any]]:
        """True labels, and the prediction made of each event at its time, in order."""
        for row, entry in self.asked:
            entry.guesses.append(guesses[row])
        truth = [y for _, y, _ in self.judged]
        said = [
            guesses[row] if entry is None else entry.guesses[model] for row, _, entry in self.judged
        ]
        return truth, said

    def settle_coarse(self, guesses: Sequence[Any], model: int) -> list[tuple[Any, Any]]:
        """The same for categories, as pairs."""
        for row, entry in self.asked:
            if isinstance(entry, Waiting):
                entry.coarse_guesses.append(guesses[row])
        return [
            (name, guesses[row] if entry is None else _guess(entry, model))
            for row, name, entry in self.judged_coarse
        ]


def _guess(entry: Entry, model: int) -> Any:
    """The category that a model said; none in snapshots from before models knew categories."""
    known = entry.coarse_guesses if isinstance(entry, Waiting) else []
    return known[model] if model < len(known) else None
