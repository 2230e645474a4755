"""The rows that an NCM forest keeps, in slots that are used again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import demand
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.ncm.column_scales import Take
from streamforest.kernels.core.array_table import grown, widened
from streamforest.kernels.ncm.layout import Memory
from streamforest.kernels.ncm.row_memory import evict, padded

_MAX_CATEGORIES = 1 << 20


class Evicted(NamedTuple):
    """Rows that left the memory at the end of one epoch."""

    learned: int  # rows learned by then
    slots: NDArray[np.int32]
    labels: NDArray[np.int32]
    numbers: NDArray[np.int64]


def memory_seed(of_first_tree: np.uint64) -> np.uint64:
    """The seed of what all trees share, drawn from that of the first one: a snapshot holds only theirs."""
    return np.uint64(of_first_tree) ^ np.uint64(0x5DEECE66D)


class RowMemory:
    """Rows by slot, their order, and the slots that are free.

    A row that is evicted leaves its slot as it is until no job can read it any more: a job that retrains
    a tree reads the rows as they were when it was started.

    Parameters
    ----------
    capacity
        Rows to keep; fewer of very many columns.
    swap_after
        Events that a job may take, at most.
    seed
        Of the draws that choose which rows are evicted.
    """

    def __init__(self, capacity: int, swap_after: int, seed: np.uint64) -> None:
        self.capacity = capacity
        self.keeps_categories = False  # whether rows have codes of categories
        self.seed = seed
        self.swap_after = swap_after
        self.arrays = _empty(EPOCH, padded(0))
        self.of_class = np.zeros(8, np.int64)  # rows of each class
        self.n = 0  # rows
        self._order = np.zeros(EPOCH, np.int32)  # their slots, by the number of the row
        self._free = list(range(EPOCH))
        self.evicted: list[Evicted] = []  # whose slots a job may still read

    @property
    def slots(self) -> NDArray[np.int32]:
        """Of the rows in memory, in the order of their numbers."""
        return self._order[: self.n]

    @property
    def nbytes(self) -> int:
        """Of all arrays as allocated."""
        return sum(array.nbytes for array in (*self.arrays, self._order, self.of_class))

    # ---- room

    def make_room(self, n: int, classes: int) -> bool:
        """Room for `n` rows more and so many classes. True if there are more slots than before."""
        if classes > len(self.of_class):
            self.of_class = widened(self.of_class, (max(2 * len(self.of_class), classes),))
        if self.n + n > len(self._order):
            order = np.zeros(2 * (self.n + n), np.int32)
            order[: self.n] = self.slots
            self._order = order
        if n <= len(self._free):
            return False
        old = len(self.arrays.label)
        bound = self.capacity + self.swap_after + 4 * EPOCH
        new = max(min(2 * old, bound), old + n)
        self.arrays = grown(self.arrays, slots=new)
        self.arrays.number[old:] = -1
        self.arrays.upper[old:] = -1
        self._free.extend(range(old, new))
        return True

    def widen(self, width: int) -> None:
        """Room for more columns."""
        self.arrays = grown(self.arrays, width=width)

    def clear_columns(self, begin: int, end: int) -> None:
        """Rows that are there lack these columns, which are new."""
        # only rows that are there: pages of the others that nobody touches take no memory
        self.arrays.rows[self.slots, begin:end] = np.nan

    def zero_columns(self, columns: NDArray[np.int32]) -> None:
        """Rows that are there have 0 in these columns."""
        self.arrays.rows[self.slots[:, None], columns[None, :]] = 0.0

    # ---- rows that enter

    def take_slots(self, n: int) -> NDArray[np.int32]:
        """Slots for the next `n` rows, in their order; there is room."""
        slots = np.array([self._free.pop() for _ in range(n)], np.int32)
        self._order[self.n : self.n + n] = slots
        self.n += n
        return slots

    def take_slot(self) -> int:
        """The slot of the next row."""
        slot = self._free.pop()
        self._order[self.n] = slot
        self.n += 1
        return slot

    # ---- rows that leave

    def evict(self, columns: int, learned: int) -> Evicted | None:
        """Remove random rows of the largest classes until no more are left than may be."""
        capacity = ncm_width.rows_for(self.capacity, columns)
        slots, numbers = evict(self.arrays, self._order, self.n, capacity, self.of_class, self.seed)
        if len(slots) == 0:
            return None
        self.n -= len(slots)
        gone = Evicted(learned, slots, self.arrays.label[slots], numbers)
        self.evicted.append(gone)
        return gone

    def withdraw(self, numbers: list[int], learned: int) -> Evicted | None:
        """Remove the rows of these numbers that are still there."""
        return self._remove(np.isin(self.arrays.number[self.slots], numbers), learned)

    def _remove(self, chosen: NDArray[np.bool_], learned: int) -> Evicted | None:
        if not chosen.any():
            return None
        order = self.slots
        slots = order[chosen].copy()
        gone = Evicted(learned, slots, self.arrays.label[slots], self.arrays.number[slots])
        self.of_class -= np.bincount(gone.labels, minlength=len(self.of_class))
        self.arrays.number[slots] = -1
        rest = order[~chosen]
        self._order[: len(rest)] = rest
        self.n = len(rest)
        self.evicted.append(gone)
        return gone

    def forget_before(self, number: int, keep: int, learned: int) -> Evicted | None:
        """Remove rows before this number, but for the newest `keep` of each class."""
        order = self.slots
        labels = self.arrays.label[order]
        newest = np.argsort(labels[::-1], kind="stable")  # by class, newest first
        sorted_labels = labels[::-1][newest]
        first = np.searchsorted(sorted_labels, sorted_labels)  # where each class begins
        rank = np.empty(len(order), np.int64)
        rank[newest] = np.arange(len(order)) - first
        old = (self.arrays.number[order] < number) & (rank[::-1] >= keep)
        return self._remove(old, learned)

    def release(self, oldest: int) -> None:
        """Free the slots of rows that were evicted before the oldest job was started."""
        while self.evicted and self.evicted[0].learned <= oldest:
            self._free.extend(self.evicted.pop(0).slots.tolist())

    # ---- snapshots

    def dump(self, columns: int) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot: rows by number."""
        slots = self.slots
        return {
            "memory.rows": self.arrays.rows[slots][:, :columns],
            "memory.label": self.arrays.label[slots],
            "memory.number": self.arrays.number[slots],
            **({"memory.category": self.arrays.upper[slots]} if self.keeps_categories else {}),
        }

    def restore(self, take: Take, columns: int, classes: int, learned: int) -> None:
        """The state that `dump` described, checked."""
        label = take("memory.label", np.int32)
        self.n = n = len(label)
        demand(n <= self.capacity + EPOCH and n <= learned, "memory.label")
        demand((label >= 0) & (label < classes), "memory.label")
        number = take("memory.number", np.int64, n)
        demand((number >= 0) & (number < learned), "memory.number")
        demand(np.diff(number) > 0, "memory.number")
        rows = take("memory.rows", np.float32, n * columns).reshape(n, columns)
        demand(~np.isinf(rows), "memory.rows")
        upper = np.full(n, -1, np.int32)
        if self.keeps_categories:
            upper = take("memory.category", np.int32, n)
            demand(np.abs(upper) < _MAX_CATEGORIES, "memory.category")
        slots = max(EPOCH, n)
        self.arrays = _empty(slots, padded(columns))
        self.arrays.rows[:n, :columns] = rows
        self.arrays.label[:n] = label
        self.arrays.number[:n] = number
        self.arrays.upper[:n] = upper
        self._order = widened(np.arange(n, dtype=np.int32), (slots,))
        self._free = list(range(n, slots))
        self.of_class = np.bincount(label, minlength=max(8, classes)).astype(np.int64)


def _empty(slots: int, width: int) -> Memory:
    return Memory(
        rows=np.zeros((slots, width), np.float32),
        label=np.zeros(slots, np.int32),
        number=np.full(slots, -1, np.int64),
        upper=np.full(slots, -1, np.int32),
    )
