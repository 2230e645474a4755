"""The rows that a few-shot forest keeps, in slots that are used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import demand
from streamforest.kernels.core import rng
from streamforest.kernels.core.array_table import grown, zeros
from streamforest.kernels.few.layout import DRAW_EVICTED, Memory

Take = Callable[..., NDArray[Any]]


class RowMemory:
    """Rows by slot, the order in which they came, and the slots that are free.

    Parameters
    ----------
    seed
        Of the draws that choose which rows leave.
    """

    def __init__(self, seed: np.uint64) -> None:
        self.arrays = zeros(Memory, slots=EPOCH, width=1)
        self.arrays.number[:] = -1
        self.columns = 0  # that rows have; the arrays may be wider
        self._seed = seed
        self._order: list[int] = []  # slots by number
        self._free = list(range(EPOCH))[::-1]

    def __len__(self) -> int:
        return len(self._order)

    @property
    def slots(self) -> NDArray[np.int32]:
        """Of all rows, in the order of their numbers."""
        return np.array(self._order, np.int32)

    def counts(self, classes: int) -> NDArray[np.int64]:
        """Rows of each class."""
        return np.bincount(self.arrays.label[self.slots], minlength=classes).astype(np.int64)

    def make_room(self, n: int, absent: NDArray[np.float64], capacity: int) -> None:
        """Room for `n` rows more, with as many columns as `absent` has values: what rows have in new ones."""
        columns = len(absent)
        if columns > self.columns:
            if columns > self.arrays.rows.shape[1]:
                width = max(columns, min(2 * self.arrays.rows.shape[1], columns + 256))
                self.arrays = grown(self.arrays, width=width)
            self.arrays.rows[:, self.columns : columns] = absent[self.columns :]
            self.columns = columns
        missing = n - len(self._free)
        if missing > 0:
            old = len(self.arrays.label)
            new = max(old + missing, min(2 * old, capacity + EPOCH))
            self.arrays = grown(self.arrays, slots=new)
            self.arrays.number[old:] = -1
            self._free.extend(range(old, new)[::-1])

    def add(
        self, x: NDArray[np.float64], label: int, number: int, absent: NDArray[np.float64]
    ) -> int:
        """Keep a row whose first columns are `x`, the others those of `absent`. Returns its slot."""
        slot = self._free.pop()
        self.arrays.rows[slot, : len(x)] = x
        self.arrays.rows[slot, len(x) : self.columns] = absent[len(x) :]
        self.arrays.label[slot] = label
        self.arrays.number[slot] = number
        self._order.append(slot)
        return slot

    def choose_evicted(self, capacity: int, classes: int) -> NDArray[np.int32]:
        """Rows that must leave: each time a random one of the class with the most; they are still there."""
        n = len(self._order) - capacity
        if n <= 0:
            return np.zeros(0, np.int32)
        labels = self.arrays.label[self.slots]
        counts = self.counts(classes)
        start = rng.key(self._seed, DRAW_EVICTED, int(self.arrays.number[self._order[-1]]))
        gone: list[int] = []
        there = np.ones(len(labels), np.bool_)
        for k in range(n):
            largest = int(counts.argmax())
            rows = np.flatnonzero(there & (labels == largest))
            at = int(rows[rng.below(np.uint64(start), k, len(rows))])
            there[at] = False
            counts[largest] -= 1
            gone.append(self._order[at])
        return np.array(gone, np.int32)

    def release(self, slots: NDArray[np.int32]) -> None:
        """The slots of rows that have left are free."""
        gone = set(slots.tolist())
        self._order = [slot for slot in self._order if slot not in gone]
        self._free.extend(slots.tolist())

    def dump(self, columns: int) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot: rows by number."""
        slots = self.slots
        rows = np.full((len(slots), columns), np.nan)
        rows[:, : self.columns] = self.arrays.rows[slots, : self.columns]
        return {
            "memory.rows": rows.ravel(),
            "memory.label": self.arrays.label[slots],
            "memory.number": self.arrays.number[slots],
        }

    def restore(self, take: Take, columns: int, classes: int, learned: int, most: int) -> None:
        """The state that `dump` described, checked; the rows lie in the slots 0, 1, …"""
        label = take("memory.label", np.int32)
        n = len(label)
        demand(n <= learned and n < most + EPOCH, "memory.label")
        demand((label >= 0) & (label < classes), "memory.label")
        number = take("memory.number", np.int64, n)
        demand((number >= 0) & (number < learned), "memory.number")
        demand(np.diff(number) > 0, "memory.number")
        rows = take("memory.rows", np.float64, n * columns).reshape(n, columns)
        demand(~np.isinf(rows), "memory.rows")
        slots = max(EPOCH, n)
        self.arrays = zeros(Memory, slots=slots, width=max(1, columns))
        self.arrays.number[:] = -1
        self.arrays.rows[:n, :columns] = rows
        self.arrays.label[:n] = label
        self.arrays.number[:n] = number
        self.columns = columns
        self._order = list(range(n))
        self._free = list(range(n, slots))[::-1]
