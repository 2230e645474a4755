"""Whether an estimated class is to be believed: by how often such estimates were right lately.

A row with a true class shows what its estimate would have been. The estimates of the last rows are counted
by how sure the forest was of them, p/(p + q) with p the probability of the estimated class and q the highest
of another class of the category. A coarse row is learned under its estimated class only where 19 of 20
estimates that were at least as sure were right. A row of a class that was not known counts as an estimate
that was wrong, so while new classes keep coming nothing is believed.

Learning all estimates costs more than it brings: a forest that learns its own mistakes makes more of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import demand

_BINS = 20
_RIGHT = 0.95
_DECAY = 0.999  # an event
_MOST = (EPOCH + 1 / (1 - _DECAY)) * (1 + 1e-9)


class Trust:
    """Estimates of the last rows by how sure they were, and from where on they are believed.

    >>> trust = Trust()
    >>> trust.believes(1.0)
    False
    >>> trust.judge(np.full(40, 0.99), np.full(40, True))
    >>> trust.end_epoch(40)
    >>> trust.believes(0.99), trust.believes(0.6)
    (True, True)
    >>> trust.judge(np.full(10, 0.6), np.full(10, False))
    >>> trust.end_epoch(10)
    >>> trust.believes(0.99), trust.believes(0.6)
    (True, False)
    """

    def __init__(self) -> None:
        self.right, self.all = np.zeros(_BINS), np.zeros(_BINS)
        self._fresh = np.zeros((2, _BINS), np.int64)  # the same, of this epoch
        self._least = _BINS

    @property
    def open(self) -> bool:
        """Whether any estimate is believed."""
        return self._least < _BINS

    def believes(self, sure: float) -> bool:
        """Whether an estimate as sure as this is believed."""
        return bool(_bins(sure) >= self._least)

    def judge(self, sure: NDArray[np.float64], right: NDArray[np.bool_]) -> None:
        """Estimates of rows whose class was told; they count when the epoch ends."""
        bins = _bins(sure)
        self._fresh[0] += np.bincount(bins[right], minlength=_BINS)
        self._fresh[1] += np.bincount(bins, minlength=_BINS)

    def end_epoch(self, events: int) -> None:
        """Let the estimates of the last `events` events count."""
        for counts, fresh in zip((self.right, self.all), self._fresh):
            counts *= _DECAY**events
            counts += fresh
        self._fresh[:] = 0
        self._settle()

    def _settle(self) -> None:
        right, rows = (np.cumsum(counts[::-1])[::-1] for counts in (self.right, self.all))
        enough = np.flatnonzero(right >= _RIGHT * (rows + 1))
        self._least = int(enough[0]) if len(enough) else _BINS

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        return {
            "trust.right": self.right.copy(),
            "trust.all": self.all.copy(),
            "trust.fresh_right": self._fresh[0].copy(),
            "trust.fresh_all": self._fresh[1].copy(),
        }

    def restore(self, take: Callable[..., NDArray[Any]]) -> None:
        """The same back, checked."""
        rows = take("trust.all", np.float64, _BINS)
        demand((rows >= 0) & (rows <= _MOST), "trust.all")
        right = take("trust.right", np.float64, _BINS)
        demand((right >= 0) & (right <= rows), "trust.right")
        fresh = take("trust.fresh_all", np.int64, _BINS)
        demand((fresh >= 0) & (fresh < EPOCH), "trust.fresh_all")
        hits = take("trust.fresh_right", np.int64, _BINS)
        demand((hits >= 0) & (hits <= fresh), "trust.fresh_right")
        self.right[:], self.all[:] = right, rows
        self._fresh[0], self._fresh[1] = hits, fresh
        self._settle()


def _bins(sure: Any) -> NDArray[np.int64]:
    """Steps of .025 from .5 on."""
    return np.clip((np.asarray(sure) - 0.5) * (2 * _BINS), 0, _BINS - 1).astype(np.int64)


def sureness(
    scores: NDArray[Any], among: NDArray[np.bool_], guess: NDArray[np.int64]
) -> NDArray[np.float64]:
    """p/(p + q) of the guessed class of each row, among the classes that count for it."""
    at = np.arange(len(guess))
    p = np.maximum(scores[at, guess], 0).astype(np.float64)
    others = np.where(among, scores, 0)
    others[at, guess] = 0
    total = p + np.maximum(others.max(axis=1), 0)
    sure: NDArray[np.float64] = np.divide(p, total, out=np.zeros(len(p)), where=total > 0)
    return sure
