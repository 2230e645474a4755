"""The arrays of the two baselines: how they grow, and what of them a snapshot holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.capacity import CATEGORY, NUMBER
from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import demand
from streamforest.kernels.core.array_table import zeros
from streamforest.kernels.stream import baseline_epochs
from streamforest.kernels.stream.baseline_epochs import FADE_EVERY
from streamforest.kernels.stream.baseline_learning import (
    WANT_CLASSES,
    WANT_FEATURES,
    WANT_ROWS,
)
from streamforest.kernels.stream.baselines import (
    BIAS_SQUARES,
    BUCKETS,
    CLASSES,
    COUNT,
    EMPTY,
    FEATURES,
    FEW,
    INVERSE,
    LIVE,
    LOG,
    PLANES,
    SILENT,
    SQUARES,
    T_COUNT,
    T_SQUARES,
    T_WEIGHT,
    TABLES,
    TOP,
    VARIANCE,
    Baselines,
    N,
    settle,
)

Take = Callable[..., NDArray[Any]]
_SMALL = 8  # features there is room for at first
_LARGEST = 1e100  # values are float32: no product of theirs comes near this
_ROUNDING = 1e-12  # of a feature's largest square: more than rounding takes a variance below zero


def _allocate(features: int, classes: int, rows: int) -> Baselines:
    return zeros(Baselines, features=features, classes=classes, **{"table rows": rows})


def _bytes(features: int, classes: int, rows: int) -> int:
    """What planes and tables take; the rest is small beside it."""
    return 8 * classes * (PLANES * features + TABLES * rows)


class BaselineModels:
    """Naive Bayes and the linear rule over the whole stream, within a bound on their bytes."""

    def __init__(self, max_bytes: int, zero: bool) -> None:
        self.max_bytes = max_bytes
        self.zero = zero  # rows are sparse
        self.want = np.zeros(3, np.int64)
        self.arrays = _allocate(_SMALL, 4, _SMALL * FEW)
        self.arrays.size[SILENT] = self.max_bytes == 0

    @property
    def silent(self) -> bool:
        """Whether the bound was passed."""
        return bool(self.arrays.size[SILENT])

    @property
    def nbytes(self) -> int:
        """What the arrays take as allocated."""
        return sum(array.nbytes for array in self.arrays)

    def enlarge(self) -> None:
        """Room for what the kernel wants, twice as much where the bound allows it; tables packed."""
        _, features, classes = self.arrays.plane.shape
        live = int(self.arrays.size[LIVE])
        rows = live + int(self.want[WANT_ROWS] - self.arrays.size[TOP])
        exact = int(self.want[WANT_FEATURES]), int(self.want[WANT_CLASSES]), rows
        ample = (
            features if exact[0] <= features else max(2 * features, exact[0]),
            classes if exact[1] <= classes else max(2 * classes, exact[1]),
            max(2 * rows, _SMALL * FEW),
        )
        self._pack(*(ample if _bytes(*ample) <= self.max_bytes else exact))

    def _pack(self, features: int, classes: int, rows: int) -> None:
        old = self.arrays
        new = _allocate(features, classes, rows)
        n, c = int(old.size[FEATURES]), int(old.size[CLASSES])
        new.size[:] = old.size
        new.plane[:, :n, :c] = old.plane[:, :n, :c]
        new.share[:, :c] = old.share[:, :c]
        new.present[:c] = old.present[:c]
        new.room[:n] = old.room[:n]
        new.met[:n] = old.met[:n]
        new.value[:n] = old.value[:n]
        rows_of = _rows_of_tables(old)
        new.table[:, : len(rows_of), :c] = old.table[:, rows_of, :c]
        new.first[:n] = np.cumsum(old.room[:n]) - old.room[:n]
        new.size[TOP] = len(rows_of)
        self.arrays = new

    # ---- epochs

    def end_epoch(
        self, n: int, mean: NDArray[Any], variance: NDArray[Any], spread: NDArray[Any]
    ) -> None:
        """After `n` learned events: the spread of the features as it is now, and fading."""
        arrays = self.arrays
        if arrays.size[SILENT]:
            if arrays.plane.shape[1] > _SMALL:
                self._fall_silent()
            return
        fades = n % FADE_EVERY == 0
        if fades:
            baseline_epochs.fade(arrays)
        everything = fades or n <= EPOCH
        baseline_epochs.settle_spread(arrays, mean, variance, spread, everything, int(self.zero))
        if arrays.table.shape[1] > 4 * max(_SMALL * FEW, int(arrays.size[LIVE])):
            _, features, classes = arrays.plane.shape
            self._pack(features, classes, 2 * int(arrays.size[LIVE]))

    def _fall_silent(self) -> None:
        """Give the memory back."""
        self.arrays = _allocate(_SMALL, 1, 0)
        self.arrays.size[SILENT] = 1

    # ---- snapshots

    def dump(self) -> dict[str, NDArray[Any]]:
        """Everything but what follows from it, without slack."""
        a = self.arrays
        if a.size[SILENT]:
            return {"baselines.silent": np.ones(1, np.uint8)}
        features, classes = int(a.size[FEATURES]), int(a.size[CLASSES])
        numbers = np.flatnonzero(a.room[:features] == FEW)
        rows = _rows_of_tables(a)
        of_category = rows[np.repeat(a.room == BUCKETS, a.room)]
        sparse = {"baselines.present": a.present[:classes].copy()} if self.zero else {}
        return sparse | {
            "baselines.silent": np.zeros(1, np.uint8),
            "baselines.classes": np.array([classes]),
            "baselines.met": a.met[:features].copy(),
            "baselines.value": a.value[numbers].ravel(),
            "baselines.plane": a.plane[:, :features, :classes].ravel(),
            "baselines.share": a.share[:, :classes].ravel(),
            "baselines.count": a.table[T_COUNT, rows, :classes].ravel(),
            "baselines.weight": a.table[T_WEIGHT:, of_category, :classes].ravel(),
        }

    def restore(
        self,
        take: Take,
        kinds: Sequence[int],
        labels: int,
        spread: NDArray[np.float64],
        reach: NDArray[np.float64],
    ) -> None:
        """The state that `dump` described; anything that could not have come from it is refused.

        `spread` is that of the features, `reach` the largest absolute value of each.
        """
        silent = int(take("baselines.silent", np.uint8, 1)[0])
        demand(silent <= 1, "baselines.silent")
        demand(silent == 1 or self.max_bytes > 0, "baselines.silent")
        if silent:
            self._fall_silent()
            return
        classes = int(take("baselines.classes", np.int64, 1)[0])
        demand(0 <= classes <= labels, "baselines.classes")
        met = take("baselines.met", np.int32)
        features = len(met)
        demand(features <= len(kinds), "baselines.met")
        kind = np.array(kinds[:features], np.int64)
        demand((met >= 0) & ((met > 0) <= (kind > 0)), "baselines.met")
        demand(met[kind == NUMBER] <= FEW + 1, "baselines.met")
        demand(met[kind == CATEGORY] <= BUCKETS, "baselines.met")
        room = np.where(met == 0, 0, np.where(kind == CATEGORY, BUCKETS, FEW))
        room[(kind == NUMBER) & (met > FEW)] = 0
        live = int(room.sum())
        demand(_bytes(features, classes, live) <= self.max_bytes, "baselines.met")
        plane = take("baselines.plane", np.float64, PLANES * features * classes)
        plane = plane.reshape(PLANES, features, classes)
        rounded = _lift_variances(plane, reach[:features])
        share = take("baselines.share", np.float64, 4 * classes)
        count = take("baselines.count", np.float64, live * classes)
        of_category = np.repeat(room == BUCKETS, room)
        weight = take("baselines.weight", np.float64, 2 * int(of_category.sum()) * classes)
        value = take("baselines.value", np.float64, FEW * int((room == FEW).sum()))
        present = take("baselines.present", np.float64, classes) if self.zero else np.zeros(0)
        demand(present >= 0, "baselines.present")
        for name, array in (
            ("present", present),
            ("plane", plane),
            ("share", share),
            ("count", count),
            ("weight", weight),
            ("value", value),
        ):
            demand(np.abs(array) <= _LARGEST, f"baselines.{name}")

        a = _allocate(max(_SMALL, features), max(1, classes), max(live, _SMALL * FEW))
        a.plane[:, :features, :classes] = plane
        a.share[:, :classes] = share.reshape(4, classes)
        a.present[: len(present)] = present
        for row in (COUNT, VARIANCE, INVERSE, SQUARES):
            demand(a.plane[row] >= 0, "baselines.plane")
        demand(a.share[N, :classes] > 0, "baselines.share")
        demand(a.share[BIAS_SQUARES] >= 0, "baselines.share")
        a.table[T_COUNT, :live, :classes] = count.reshape(live, classes)
        demand(a.table[T_COUNT] >= 0, "baselines.count")
        rows = np.flatnonzero(of_category)
        a.table[T_WEIGHT:, rows, :classes] = weight.reshape(2, len(rows), classes)
        demand(a.table[T_SQUARES] >= 0, "baselines.weight")
        a.value[np.flatnonzero(room == FEW)] = value.reshape(-1, FEW)
        a.met[:features] = met
        a.room[:features] = room
        a.first[:features] = np.cumsum(room) - room
        empty = int((met == 0).sum())
        a.size[[CLASSES, FEATURES, EMPTY, LIVE, TOP]] = classes, features, empty, live, live
        baseline_epochs.take_logs(a)
        for f, c in rounded:
            settle(a, spread, f, c)
        self.arrays = a


def _lift_variances(
    plane: NDArray[np.float64], reach: NDArray[np.float64]
) -> list[tuple[int, int]]:
    """Variances that were rounded below zero become zero; returns features and classes they are of.

    A class' first value used to leave a variance of some rounding error, of either sign, and files hold
    such. What naive Bayes made of a negative one has to be computed again.
    """
    below = plane[VARIANCE] < 0
    demand(plane[VARIANCE] >= -_ROUNDING * (reach**2)[:, None], "baselines.plane")
    for row in (VARIANCE, INVERSE, LOG):
        plane[row][below] = 0.0
    return [(int(f), int(c)) for f, c in np.argwhere(below)]


def _rows_of_tables(a: Baselines) -> NDArray[np.int64]:
    """The rows of all tables, in the order of their features."""
    within = np.arange(int(a.room.sum())) - np.repeat(np.cumsum(a.room) - a.room, a.room)
    rows: NDArray[np.int64] = np.repeat(a.first, a.room) + within
    return rows
