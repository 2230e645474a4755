"""Classes of few rows, and the support classes that each of them borrows its prior from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import demand
from streamforest.forests.few.memory import RowMemory, Take
from streamforest.kernels.core.array_table import grown, zeros
from streamforest.kernels.few.layout import MOST_SUPPORT, Helped
from streamforest.kernels.few.prior import class_means


class Support:
    """The helped classes: those announced first, then the newest of few rows.

    Parameters
    ----------
    n_support
        Nearest class means that an unannounced class takes; 0: none.
    few_rows
        Rows up to which a class is helped.
    most
        Classes helped at a time.
    """

    def __init__(self, n_support: int, few_rows: int, most: int) -> None:
        self._n_support = n_support
        self._few_rows = few_rows
        self._most = most
        self.announced: dict[int, list[int]] = {}  # class to its support, while it has few rows
        self._nearest: dict[int, list[int]] = {}
        self.arrays = self._empty()

    def _empty(self) -> Helped:
        arrays = zeros(Helped, helped=self._most, members=EPOCH)
        arrays.label[:] = -1
        arrays.support[:] = -1
        return arrays

    def announce(self, label: int, support: list[int], counts: NDArray[np.int64]) -> None:
        """A class uses these support classes from now on; those with many rows by now use none."""
        self.announced[label] = support
        self.announced = {k: v for k, v in self.announced.items() if counts[k] <= self._few_rows}
        self._nearest.pop(label, None)
        newest = sorted(self._nearest, reverse=True)[: self._most - len(self.announced)]
        self._nearest = {k: self._nearest[k] for k in newest}

    def add_member(self, label: int, slot: int) -> None:
        """A row of a class was put into a slot."""
        for h in np.flatnonzero(self.arrays.label == label).tolist():
            n = int(self.arrays.n_members[h])
            if n == self.arrays.member.shape[1]:
                self.arrays = grown(self.arrays, members=2 * n)
            self.arrays.member[h, n] = slot
            self.arrays.n_members[h] += 1

    def update(
        self, memory: RowMemory, classes: int, learned: int, numeric: NDArray[np.int32]
    ) -> None:
        """Choose the helped classes and their support anew, at the end of an epoch.

        The nearest class means are looked for when a class of few rows got another one. A column's unit is
        its standard deviation; categories have no part in it.
        """
        counts = memory.counts(classes)
        few = (counts > 0) & (counts <= self._few_rows)
        self.announced = {
            k: support for k, support in self.announced.items() if counts[k] <= self._few_rows
        }
        new = [k for k in np.flatnonzero(few).tolist() if k not in self.announced]
        new = new[::-1][: self._most - len(self.announced)] if self._n_support else []
        self._nearest = {k: v for k, v in self._nearest.items() if k in new}
        slots = memory.slots
        recent = memory.arrays.number[slots] >= learned - EPOCH
        grew = set(memory.arrays.label[slots[recent]].tolist()) & set(new)
        if grew:
            self._nearest |= self._find(memory, slots, counts, sorted(grew), numeric)
        self.fill(memory)

    def find_nearest(self, memory: RowMemory, classes: int, numeric: NDArray[np.int32]) -> None:
        """The same for all classes of few rows at once, whenever it is called for."""
        counts = memory.counts(classes)
        few = np.flatnonzero((counts > 0) & (counts <= self._few_rows)).tolist()
        new = [k for k in few if k not in self.announced][::-1]
        new = new[: self._most - len(self.announced)] if self._n_support else []
        self._nearest = self._find(memory, memory.slots, counts, new, numeric)
        self.fill(memory)

    def _find(
        self,
        memory: RowMemory,
        slots: NDArray[np.int32],
        counts: NDArray[np.int64],
        labels: list[int],
        numeric: NDArray[np.int32],
    ) -> dict[int, list[int]]:
        """For each of these classes the nearest means of classes that have more rows."""
        mean, deviation = class_means(memory.arrays, slots, len(counts), numeric)
        unit = np.where(deviation > 0, 1.0 / np.where(deviation > 0, deviation, 1.0), 0.0)
        out = {}
        with np.errstate(over="ignore", invalid="ignore"):
            for k in labels:
                distance = (((mean - mean[k]) * unit) ** 2).sum(axis=1)
                distance[(counts <= counts[k]) | np.isnan(distance)] = np.inf
                order = np.argsort(distance, kind="stable")[: self._n_support]
                chosen = [c for c in order.tolist() if np.isfinite(distance[c])]
                if chosen:
                    out[k] = chosen
        return out

    def fill(self, memory: RowMemory) -> None:
        """Write what is known to the arrays that the kernels read."""
        self.arrays = self._empty()
        for h, (label, support) in enumerate(
            [*self.announced.items(), *sorted(self._nearest.items(), reverse=True)]
        ):
            self.arrays.label[h] = label
            self.arrays.support[h, : len(support)] = support
        slots = memory.slots
        for slot, label in zip(slots.tolist(), memory.arrays.label[slots].tolist()):
            if label in self.announced or label in self._nearest:
                self.add_member(label, slot)

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot: classes with their support, those announced first."""
        n = len(self.announced) + len(self._nearest)
        return {
            "few.announced": np.array([len(self.announced)], np.int64),
            "few.label": self.arrays.label[:n].copy(),
            "few.support": self.arrays.support[:n].ravel(),
        }

    def restore(self, take: Take, memory: RowMemory, classes: int) -> int:
        """The state that `dump` described, checked; returns the number of helped classes."""
        announced = int(take("few.announced", np.int64, 1)[0])
        label = take("few.label", np.int32)
        n = len(label)
        demand(0 <= announced <= n <= self._most, "few.announced")
        demand((label >= 0) & (label < classes), "few.label")
        demand(len(np.unique(label)) == n, "few.label")
        support = take("few.support", np.int32, n * MOST_SUPPORT).reshape(n, MOST_SUPPORT)
        demand((support >= -1) & (support < classes), "few.support")
        demand(support != label[:, None], "few.support")
        given = support >= 0
        demand(
            given[:, :1].all() and (np.diff(given.astype(np.int8), axis=1) <= 0).all(),
            "few.support",
        )
        demand(np.diff(label[announced:]) < 0, "few.label")
        known = {int(k): row[row >= 0].tolist() for k, row in zip(label, support)}
        demand(all(len(set(row)) == len(row) for row in known.values()), "few.support")
        names = list(known)
        self.announced = {k: known[k] for k in names[:announced]}
        self._nearest = {k: known[k] for k in names[announced:]}
        self.fill(memory)
        return n
