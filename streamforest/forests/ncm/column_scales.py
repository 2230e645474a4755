"""The columns of an NCM forest: where features are in a row of the memory, and statistics of each column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.features import FeatureTable
from streamforest.forests.core.serialization import demand
from streamforest.forests.ncm import width as ncm_width
from streamforest.kernels.core.array_table import grown, widened, zeros
from streamforest.kernels.core.simd_distance import CAP, GAP, SCALE
from streamforest.kernels.ncm.blending import count_categories
from streamforest.kernels.ncm.layout import Columns
from streamforest.kernels.ncm.neighbours import update_scales
from streamforest.kernels.ncm.row_memory import (
    CATEGORY_COLUMNS,
    MEAN,
    SEEN,
    SHIFT,
    VARIANCE,
    padded,
    to_columns,
)

Take = Callable[..., NDArray[Any]]
"""`take(name, dtype, size)` gives an array of a snapshot, or refuses it."""


class FirstValue(NamedTuple):
    """The first value of a feature that has no column yet."""

    row: int
    feature: int
    columns: int  # that the feature needs


class ColumnTable:
    """Columns by feature, with their statistics.

    New columns are written from the row that brings them, and count from the end of its epoch on: until
    then trees and class means ignore them.
    """

    def __init__(self) -> None:
        self.arrays: Columns = zeros(Columns, features=0, width=padded(0))
        self.n = 0  # columns in use
        self.counting = 0  # of them those that count, as of the last epoch
        self.open = False  # whether a feature has no column yet
        self.has_categories = False

    @property
    def width(self) -> int:
        """Of a row, padded."""
        return len(self.arrays.fill)

    @property
    def in_matrix(self) -> int:
        """Columns of a whole covariance or metric: once there are too many, no new ones."""
        return self.n if self.n <= ncm_width.FULL_WIDTH else self.counting

    @property
    def in_trees(self) -> int:
        """Columns that splits can use: once there are very many, those that count already."""
        return self.counting if self.n > ncm_width.WIDE else self.n

    @property
    def nbytes(self) -> int:
        """Of all arrays as allocated."""
        return sum(array.nbytes for array in self.arrays)

    # ---- rows

    def rows(
        self, X: NDArray[np.float64], op: NDArray[np.uint8], features: FeatureTable
    ) -> NDArray[np.float32]:
        """Rows as the memory keeps them."""
        return to_columns(X, op, self.arrays, features.categorical)

    def count_categories(
        self, X: NDArray[np.float64], op: NDArray[np.uint8], features: FeatureTable
    ) -> None:
        """Count the categories of rows that were learned."""
        count_categories(X, op, features.categorical, self.arrays.categories)

    # ---- new columns

    def need_place(self, features: FeatureTable) -> bool:
        """Whether a feature has no column yet."""
        return self.open or len(self.arrays.first) < len(features)

    def first_values(
        self, X: NDArray[np.float64], learns: NDArray[np.bool_], features: FeatureTable
    ) -> list[FirstValue]:
        """First values among these rows, in the order of the rows, then of the features."""
        first = self._first(features)
        out = []
        for j in np.flatnonzero(first < 0).tolist():
            if j < X.shape[1]:
                rows = np.flatnonzero(learns & ~np.isnan(X[:, j]))
                if len(rows):
                    size = CATEGORY_COLUMNS if features.categorical[j] else 1
                    out.append(FirstValue(int(rows[0]), j, size))
        return sorted(out)

    def _first(self, features: FeatureTable) -> NDArray[np.int32]:
        first = np.full(len(features), -1, np.int32)
        first[: len(self.arrays.first)] = self.arrays.first
        return first

    def place(
        self, values: list[FirstValue], X: NDArray[np.float64], features: FeatureTable
    ) -> None:
        """Give each of these features its columns; the arrays are wide enough."""
        first = self._first(features)
        for value in values:
            first[value.feature] = self.n
            if not (features.categorical[value.feature] or features.zero):  # sparse rows stay so
                self.arrays.stats[SHIFT, self.n] = X[value.row, value.feature]
            self.n += value.columns
        categories = widened(self.arrays.categories, (len(first),))
        self.arrays = self.arrays._replace(first=first, categories=categories)
        self.note_features(features)

    def numbers(self, features: FeatureTable, begin: int, end: int) -> NDArray[np.int32]:
        """The columns of the features `begin` to `end` that are numbers and have one."""
        first: NDArray[np.int32] = self.arrays.first[begin:end]
        is_number = features.categorical[begin : begin + len(first)] == 0
        found: NDArray[np.int32] = first[(first >= 0) & is_number]
        return found

    def note_features(self, features: FeatureTable) -> None:
        """Remember what is asked of the features with every event."""
        self.open = bool((self.arrays.first < 0).any())
        self.has_categories = bool(features.categorical.any())

    def widen(self, width: int) -> None:
        """Room for more columns."""
        self.arrays = grown(self.arrays, width=width)

    # ---- the end of an epoch

    def end_epoch(self) -> None:
        """Missing values and distances follow the statistics as they are now."""
        self.arrays.fill[:] = self.arrays.stats[MEAN]
        update_scales(self.arrays.stats, self.arrays.scales)

    def weights(self, begin: int) -> NDArray[np.float32]:
        """The weights of columns from `begin` on in a tree that was grown before they came."""
        variance = self.arrays.stats[VARIANCE, : self.n]
        level = variance[variance > 0].mean() if (variance > 0).any() else 1.0
        return (1.0 / np.maximum(variance[begin:] + 0.01 * level, 1e-20)).astype(np.float32)

    # ---- snapshots

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        arrays, n = self.arrays, self.n
        return {
            "columns.of_features": arrays.first.copy(),
            "columns.counting": np.array([self.counting]),
            "columns.statistics": arrays.stats[:, :n],
            "columns.fill": arrays.fill[:n],
            "columns.scale": arrays.scales[:, SCALE, :n],
            "columns.gap": arrays.scales[:, GAP, :n],
        }

    def restore(self, take: Take, features: FeatureTable, learned: int) -> None:
        """The state that `dump` described, checked."""
        first = take("columns.of_features", np.int32)
        self.n = n = _columns_of(first, features)
        categories = [features.n_codes(j) for j in range(len(first))]
        self.arrays = zeros(Columns, features=len(first), width=padded(n))._replace(
            first=first, categories=np.where(first >= 0, categories, 0).astype(np.int32)
        )
        counting = take("columns.counting", np.int64, 1)
        demand((counting >= 0) & (counting <= n), "columns.counting")
        self.counting = int(counting[0])
        stats = take("columns.statistics", np.float64, 4 * n).reshape(4, n)
        demand(np.isfinite(stats) & (np.abs(stats) < 1e100), "columns.statistics")
        demand(stats[[SEEN, VARIANCE]] >= 0, "columns.statistics")
        self.arrays.stats[:, :n] = stats
        fill = take("columns.fill", np.float32, n)
        demand(np.isfinite(fill), "columns.fill")
        self.arrays.fill[:n] = fill
        for row, name in ((SCALE, "columns.scale"), (GAP, "columns.gap")):
            values = take(name, np.float32, 2 * n).reshape(2, n)
            demand(np.isfinite(values) & (values >= 0), name)
            self.arrays.scales[:, row, :n] = values
        if learned > 0:
            self.arrays.scales[:, CAP] = np.inf


def _columns_of(first: NDArray[np.int32], features: FeatureTable) -> int:
    """The number of columns, if features have them one after the other."""
    demand(len(first) <= len(features), "columns.of_features")
    n = 0
    for j in np.argsort(first, kind="stable").tolist():
        if first[j] >= 0:
            demand(first[j] == n, "columns.of_features")
            demand(features.kinds[j] > 0, "columns.of_features")
            n += CATEGORY_COLUMNS if features.categorical[j] else 1
        else:
            demand(first[j] == -1, "columns.of_features")
    return n
