"""Which class a coarse row is taken for, among the known classes of its category.

"own": the one that the forest itself finds most probable. "mean": the one whose labelled rows have the
nearest mean. "nn": that of the nearest labelled row (Ristin et al. 2015, section 4.3). Distances are measured
by the columns as they are; a value that is missing on either side does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.serialization import demand

_MAX_ROWS = 4_096
_MAX_VALUES = 1 << 22  # 32 MB
_LARGEST = 1e100


class OwnEstimate:
    """By the forest's posterior; it remembers nothing."""

    needs_rows: ClassVar[bool] = False

    def learn(self, row: NDArray[np.float64], y: int) -> None:
        """Learn a row with a true class."""

    def best(
        self, scores: NDArray[Any], row: NDArray[np.float64], classes: NDArray[np.int64]
    ) -> int:
        """The class, of these, that a row is taken for; ties go to the one seen first."""
        return int(classes[scores[classes].argmax()])

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        return {}

    def restore(self, take: Callable[..., NDArray[Any]], classes: int, features: int) -> None:
        """The same back, checked."""


class MeanEstimate(OwnEstimate):
    """By the nearest mean of rows with a true class."""

    needs_rows: ClassVar[bool] = True

    def __init__(self) -> None:
        self.sums: NDArray[np.float64] = np.zeros((0, 0))
        self.counts: NDArray[np.int64] = np.zeros((0, 0), np.int64)

    def learn(self, row: NDArray[np.float64], y: int) -> None:
        there = np.isfinite(row)
        self._widen(y + 1, len(row))
        self.sums[y, : len(row)][there] += row[there]
        self.counts[y, : len(row)][there] += 1

    def best(
        self, scores: NDArray[Any], row: NDArray[np.float64], classes: NDArray[np.int64]
    ) -> int:
        self._widen(int(classes.max()) + 1, len(row))
        counts = self.counts[classes, : len(row)]
        means = self.sums[classes, : len(row)] / np.maximum(counts, 1)
        gaps = np.where((counts > 0) & np.isfinite(row), row - means, 0.0)
        distance = (gaps * gaps).sum(axis=1)
        distance[~counts.any(axis=1)] = np.inf  # only ever estimated
        return int(classes[distance.argmin()])

    def _widen(self, classes: int, features: int) -> None:
        have = self.sums.shape
        need = max(have[0], classes), max(have[1], features)
        if need != have:
            size = tuple(n if n == h else max(n, h + h // 2) for n, h in zip(need, have))
            sums, counts = np.zeros(size), np.zeros(size, np.int64)
            sums[: have[0], : have[1]], counts[: have[0], : have[1]] = self.sums, self.counts
            self.sums, self.counts = sums, counts

    def dump(self) -> dict[str, NDArray[Any]]:
        rows, columns = np.nonzero(self.counts)
        return {
            "means.class": rows.astype(np.int64),
            "means.feature": columns.astype(np.int64),
            "means.sum": self.sums[rows, columns],
            "means.count": self.counts[rows, columns],
        }

    def restore(self, take: Callable[..., NDArray[Any]], classes: int, features: int) -> None:
        rows = take("means.class", np.int64)
        columns = take("means.feature", np.int64, len(rows))
        demand((rows >= 0) & (rows < classes), "means.class")
        demand((columns >= 0) & (columns < features), "means.feature")
        sums = take("means.sum", np.float64, len(rows))
        counts = take("means.count", np.int64, len(rows))
        demand(np.abs(sums) < _LARGEST, "means.sum")
        demand(counts > 0, "means.count")
        self._widen(classes, features)
        self.sums[rows, columns], self.counts[rows, columns] = sums, counts


class NearestEstimate(OwnEstimate):
    """By the nearest of the last 4,096 rows with a true class (fewer of very many columns)."""

    needs_rows: ClassVar[bool] = True

    def __init__(self) -> None:
        self.rows: list[NDArray[np.float64]] = []  # the oldest first
        self.labels: list[int] = []
        self._matrix: NDArray[np.float64] | None = None

    def learn(self, row: NDArray[np.float64], y: int) -> None:
        self.rows.append(row.copy())
        self.labels.append(y)
        most = max(1, min(_MAX_ROWS, _MAX_VALUES // max(1, len(row))))
        del self.rows[:-most], self.labels[:-most]
        if self._matrix is not None:
            fits = self._matrix.shape[1] == len(row)
            self._matrix = np.vstack([self._matrix, row])[-len(self.rows) :] if fits else None

    def best(
        self, scores: NDArray[Any], row: NDArray[np.float64], classes: NDArray[np.int64]
    ) -> int:
        width = len(row)
        if self._matrix is None or self._matrix.shape[1] != width:
            self._matrix = np.full((len(self.rows), width), np.nan)
            for r, known in enumerate(self.rows):
                self._matrix[r, : len(known)] = known
        mine = np.flatnonzero(np.isin(self.labels, classes))
        if len(mine) == 0:
            return super().best(scores, row, classes)
        gaps = np.nan_to_num(self._matrix[mine] - row)
        return self.labels[int(mine[(gaps * gaps).sum(axis=1).argmin()])]

    def dump(self) -> dict[str, NDArray[Any]]:
        return {
            "nearest.label": np.array(self.labels, np.int64),
            "nearest.width": np.array([len(row) for row in self.rows], np.int64),
            "nearest.values": np.concatenate([*self.rows, np.zeros(0)]),
        }

    def restore(self, take: Callable[..., NDArray[Any]], classes: int, features: int) -> None:
        labels = take("nearest.label", np.int64)
        demand((labels >= 0) & (labels < classes) & (len(labels) <= _MAX_ROWS), "nearest.label")
        width = take("nearest.width", np.int64, len(labels))
        demand((width >= 0) & (width <= max(1, features)), "nearest.width")
        values = take("nearest.values", np.float64, int(width.sum()))
        demand(~np.isinf(values), "nearest.values")
        self.rows = np.split(values, np.cumsum(width)[:-1]) if len(width) else []
        self.labels = labels.tolist()


ESTIMATES: dict[str, type[OwnEstimate]] = {
    "own": OwnEstimate,
    "mean": MeanEstimate,
    "nn": NearestEstimate,
}
