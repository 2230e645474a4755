"""The recent neighbours of an auto forest: their arrays, and what a snapshot holds of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.auto.families import compile_beside
from streamforest.forests.core.batch import Batch
from streamforest.forests.core.capacity import CATEGORY
from streamforest.forests.core.features import FeatureTable
from streamforest.forests.core.serialization import LARGEST, demand
from streamforest.kernels.auto import recent
from streamforest.kernels.auto.recent import INVERSE, SEEN, SLOTS, VARIANCE, VIEWS, Recent
from streamforest.kernels.core.notice import Announced

_LEAST_ROWS = 32
_MOST_VALUES = 32_768
"""Values that an event is compared with: fewer rows are looked at where there are many features."""
_ROUNDING = 1 + 1e-9
_LARGEST_SQUARE = 1e40  # values are at most 1e15


class RecentNeighbours:
    """The newest rows of the stream; see `kernels/auto/recent.py`.

    They take 2,048 bytes a feature.
    """

    _kernel = Announced(recent.advance, "auto forest", first=compile_beside)

    def __init__(self) -> None:
        self.arrays = _allocate(8)
        self._know(0)

    def _know(self, features: int) -> None:
        self.features = features  # as of the last epoch
        self.rows = min(SLOTS, max(_LEAST_ROWS, _MOST_VALUES // max(1, features)))
        """Rows that are looked at."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)

    def process(
        self,
        batch: Batch,
        learned: int,
        categorical: NDArray[np.uint8],
        votes: NDArray[np.int64],
        voice: int,
    ) -> None:
        """Answer these rows in `votes`, and learn those that are to be learned."""
        if batch.X.shape[1] > self.arrays.rows.shape[0]:
            self._widen(batch.X.shape[1])
        self._kernel.run(
            self.arrays,
            learned,
            self.rows,
            batch.X,
            batch.y,
            batch.op,
            categorical,
            batch.reuse,
            votes,
            voice,
        )

    def _widen(self, columns: int) -> None:
        old, have = self.arrays, self.arrays.rows.shape[0]
        self.arrays = _allocate(max(columns, 2 * have))
        self.arrays.rows[:have] = old.rows
        self.arrays.labels[:] = old.labels
        self.arrays.hits[:] = old.hits
        self.arrays.columns[:, :have] = old.columns

    def end_epoch(self, features: int) -> None:
        """Measure distances by the variances of now; `features` are known."""
        recent.settle(self.arrays.columns)
        self._know(features)

    # ---- snapshots

    def dump(self, learned: int, features: int) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot, the ring oldest row first."""
        kept = min(learned, SLOTS)
        at = np.arange(learned - kept, learned) % SLOTS
        rows = np.full((features, kept), np.nan, np.float32)
        columns = np.zeros((4, features))
        have = min(features, self.arrays.rows.shape[0])
        rows[:have] = self.arrays.rows[:have, at]
        columns[:, :have] = self.arrays.columns[:, :have]
        return {
            "recent.rows": rows.ravel(),
            "recent.labels": self.arrays.labels[at],
            "recent.hits": self.arrays.hits.copy(),
            "recent.columns": columns.ravel(),
            "recent.features": np.array([self.features]),
        }

    def restore(
        self, take: Callable[..., NDArray[Any]], learned: int, table: FeatureTable, classes: int
    ) -> None:
        """The same back; `take(name, dtype, size)` gives an array or refuses it."""
        kept, features = min(learned, SLOTS), len(table)
        at = np.arange(learned - kept, learned) % SLOTS
        rows = take("recent.rows", np.float32, features * kept).reshape(features, kept)
        demand(~np.isinf(rows), "recent.rows")
        for f, kind in enumerate(table.kinds):
            if kind == CATEGORY:
                codes = rows[f][~np.isnan(rows[f])]
                demand((codes >= 0) & (codes < table.n_codes(f)), "recent.rows")
        labels = take("recent.labels", np.int32, kept)
        demand((labels >= 0) & (labels < classes), "recent.labels")
        hits = take("recent.hits", np.float64, VIEWS)
        demand((hits >= 0) & (hits <= recent.MOST_HITS * _ROUNDING), "recent.hits")
        columns = take("recent.columns", np.float64, 4 * features).reshape(4, features)
        demand(np.abs(columns[: VARIANCE + 1]) <= _LARGEST_SQUARE, "recent.columns")
        demand(columns[[SEEN, VARIANCE, INVERSE]] >= 0, "recent.columns")
        demand(columns[SEEN] <= min(learned, LARGEST), "recent.columns")
        demand(columns[INVERSE] <= 1e200, "recent.columns")
        known = int(take("recent.features", np.int64, 1)[0])
        demand(0 <= known <= features, "recent.features")
        self.arrays = _allocate(max(8, features))
        self.arrays.rows[:features, at] = rows
        self.arrays.labels[at] = labels
        self.arrays.hits[:] = hits
        self.arrays.columns[:, :features] = columns
        self._know(known)


def _allocate(columns: int) -> Recent:
    return Recent(
        rows=np.full((columns, SLOTS), np.nan, np.float32),
        labels=np.zeros(SLOTS, np.int32),
        hits=np.zeros(VIEWS),
        columns=np.zeros((4, columns)),
        best=np.full(VIEWS, -1, np.int64),
    )
