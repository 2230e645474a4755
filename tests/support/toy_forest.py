"""A whole forest in one file: each tree counts the classes of its share of the events.

It shows what a forest has to provide, and proves that a line in the registry is all that it takes to be
saved, run in a pipeline and measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.base import Forest
from streamforest.forests.core.batch import Batch
from streamforest.forests.core.registry import Entry
from streamforest.forests.core.serialization import LARGEST, demand
from streamforest.kernels.core.operations import LEARN, PREDICT

TOY = Entry("toy", "support.toy_forest:ToyForestClassifier")
_UNIT = 1 << 32


class ToyForestClassifier(Forest):
    """Answers with the classes' shares in the events that its trees have counted.

    Parameters
    ----------
    share
        How many of 10 events a tree counts.
    """

    def __init__(
        self,
        n_trees: int = 10,
        share: int = 7,
        max_classes: int = 1_000,
        max_features: int = 1_000,
        max_categories: int = 1_000,
        max_text_bytes: int = 1 << 24,
        nonfinite: str = "error",
        n_jobs: int = 1,
        seed: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.share = share
        self.max_classes = max_classes
        self.max_features = max_features
        self.max_categories = max_categories
        self.max_text_bytes = max_text_bytes
        self.nonfinite = nonfinite
        self.n_jobs = n_jobs
        self.seed = seed
        self._start()

    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        self._seeds = seeds
        self._counts = np.zeros((len(seeds), 2), np.int64)
        self._seen = np.zeros(len(seeds), np.int64)

    def _call(
        self,
        first: int,
        last: int,
        want: NDArray[np.int64],
        batch: Batch,
        votes: NDArray[np.int64],
    ) -> bool:
        y, op = batch.y, batch.op
        for t in range(first, last):
            counts = self._counts[t]
            for r in range(self._progress[t], len(y)):
                if op[r] & LEARN and y[r] >= len(counts):
                    want[0] = y[r] + 1
                    return False
                if op[r] & PREDICT and counts.any():
                    n = min(len(counts), votes.shape[1])
                    votes[r, :n] += counts[:n] * _UNIT // counts.sum()
                if op[r] & LEARN:
                    if (int(self._seeds[t]) + 7 * int(self._seen[t])) % 10 < self.share:
                        counts[y[r]] += 1
                    self._seen[t] += 1
                self._progress[t] = r + 1
        self._progress[first:last] = 0
        return True

    def _enlarge(self, want: NDArray[np.int64]) -> None:
        counts = np.zeros((self.n_trees, max(2, 2 * int(want[0]))), np.int64)
        counts[:, : self._counts.shape[1]] = self._counts
        self._counts = counts

    def _dump(self) -> dict[str, NDArray[Any]]:
        counts = np.zeros((self.n_trees, len(self._labels)), np.int64)
        n = min(counts.shape[1], self._counts.shape[1])
        counts[:, :n] = self._counts[:, :n]
        return {"tree.seed": self._seeds, "tree.counts": counts.ravel()}

    def _restore(self, take: Callable[..., NDArray[Any]]) -> None:
        classes = len(self._labels)
        self._seeds = take("tree.seed", np.uint64, self.n_trees)
        counts = take("tree.counts", np.int64, self.n_trees * classes)
        demand((counts >= 0) & (counts <= LARGEST // (classes + 1)), "tree.counts")
        self._counts = np.zeros((self.n_trees, max(2, classes)), np.int64)
        self._counts[:, :classes] = counts.reshape(self.n_trees, classes)
        self._seen = np.full(self.n_trees, self._n_learned)

    def summary(self) -> dict[str, Any]:
        """Size of the forest."""
        return {"trees": self.n_trees, "events": self._n_learned, "classes": len(self._labels)}
