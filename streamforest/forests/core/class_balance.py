"""Balanced answers: scores divided by what each class is due, by how often it has come as of each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.serialization import demand
from streamforest.kernels.core.array_table import widened
from streamforest.kernels.core.operations import LEARN

_FINER = 65_536.0  # so that a class of many events keeps its digits


class ClassBalance:
    """Events learned of each class, and scores divided by what follows from that.

    Parameters
    ----------
    passes_by
        The probability that a tree does not count an event in its answers. Scores are divided by the share
        of trees that have counted an event of the class, as expected: the others do not vote against it.
        None: they are divided by how often the class has come, which makes all equally frequent.
    """

    def __init__(self, passes_by: float | None = None) -> None:
        self._passes_by = passes_by
        self._counts = np.zeros(8, np.int64)

    def _divisor(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        met = np.maximum(1, counts).astype(np.float64)
        if self._passes_by is None:
            return met
        share: NDArray[np.float64] = 1.0 - self._passes_by**met
        return share

    def _room(self, classes: int) -> None:
        if classes > len(self._counts):
            self._counts = widened(self._counts, (max(classes, 2 * len(self._counts)),))

    def _divided(self, scores: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whole numbers, as scores are: their sum does not depend on how many classes a batch knows."""
        shares: NDArray[np.int64] = np.rint(scores * (_FINER / self._divisor(counts))).astype(
            np.int64
        )
        return shares

    def count(self, y: int) -> None:
        """One more event of a class."""
        self._room(y + 1)
        self._counts[y] += 1

    def balanced(self, scores: NDArray[Any]) -> NDArray[np.int64]:
        """Scores of rows [rows, classes], by the counts as they stand."""
        classes = scores.shape[-1]
        self._room(classes)
        return self._divided(scores, self._counts[:classes])

    def balanced_in_order(
        self, scores: NDArray[Any], y: NDArray[np.int64], op: NDArray[np.uint8]
    ) -> NDArray[np.int64]:
        """The same for rows that are learned on the way, each by the counts before it."""
        classes = scores.shape[1]
        self._room(classes)
        learned = np.zeros((len(y) + 1, classes), np.int64)
        rows = np.flatnonzero(op & LEARN)
        learned[rows + 1, y[rows]] = 1
        counts = self._counts[:classes] + np.cumsum(learned, axis=0)
        self._counts[:classes] = counts[-1]
        return self._divided(scores, counts[:-1])

    def dump(self, classes: int) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        self._room(classes)
        return {"classes.learned": self._counts[:classes].copy()}

    def restore(self, take: Callable[..., NDArray[Any]], classes: int, learned: int) -> None:
        """The state that `dump` described, checked."""
        counts = take("classes.learned", np.int64, classes)
        demand((counts >= 0) & (counts <= learned), "classes.learned")
        self._counts = counts.copy()
