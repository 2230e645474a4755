"""One answer of two levels: what the coarse forest says of categories, and the fine one of their classes.

With F the posterior of the fine forest and C that of the coarse one, two levels are
P(class) = C(category) · F(class | category). They are mixed with F alone: the coarse forest has a share g of
the say on categories, P(category) = (1 - g)·F(category) + g·C(category). Five shares are judged by every
labelled row, and the one in use is their mean, weighted by what they got right lately; it changes when an
epoch ends.

A part of each category is kept for classes that are not known yet: the share of its labelled rows whose class
has come only once (Good and Turing's estimate of what is unseen). A category without a class that F would
answer is all such remainder. So a category's probability is the sum of its classes and its remainder, and
the remainder is never an answer at the fine level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import demand

_SHARES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
_DECAY = 0.999
_RATE = 0.5
_UNIT = float(1 << 52)
_ROUNDING = 1 + 1e-9
_FIRST_SHARE = 0.5


class TwoLevels(NamedTuple):
    """Probabilities of classes and of categories."""

    fine: NDArray[np.float64]
    coarse: NDArray[np.float64]


class LevelMix:
    """The coarse forest's share of the say, and what it follows from."""

    def __init__(self) -> None:
        self.hits = np.zeros(len(_SHARES))
        self.fresh = np.zeros(len(_SHARES), np.int64)  # counted when the epoch ends
        self.share = _FIRST_SHARE

    def judge(
        self,
        alone: TwoLevels,
        two: TwoLevels,
        y: NDArray[np.int64],
        category: NDArray[np.int64],
    ) -> None:
        """Count which shares would have been right: by the class if there is one, else by the category."""
        for index, one, other in ((y, alone.fine, two.fine), (category, alone.coarse, two.coarse)):
            rows = (
                np.flatnonzero(index >= 0) if index is y else np.flatnonzero((y < 0) & (index >= 0))
            )
            if len(rows) == 0 or one.shape[1] == 0:
                continue
            truth = index[rows]
            first, last = one[rows].argmax(axis=1), other[rows].argmax(axis=1)
            same = first == last  # then every share between them gives that answer
            self.fresh += int(np.count_nonzero(same & (first == truth)))
            apart = ~same
            for s, share in enumerate(_SHARES.tolist()):
                if apart.any():
                    at = rows[apart]
                    best = ((1 - share) * one[at] + share * other[at]).argmax(axis=1)
                    self.fresh[s] += int(np.count_nonzero(best == truth[apart]))

    def end_epoch(self, events: int) -> None:
        """Let the hits of the last `events` events count."""
        self.hits *= _DECAY**events
        self.hits += self.fresh
        self.fresh[:] = 0
        self._settle()

    def _settle(self) -> None:
        weight = np.exp(_RATE * (self.hits - self.hits.max()))
        self.share = float((weight * _SHARES).sum() / weight.sum())

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        return {"mix.hits": self.hits.copy(), "mix.fresh": self.fresh.copy()}

    def restore(self, take: Callable[..., NDArray[Any]]) -> None:
        """The same back, checked."""
        hits = take("mix.hits", np.float64, len(_SHARES))
        demand((hits >= 0) & (hits <= (EPOCH + 1 / (1 - _DECAY)) * _ROUNDING), "mix.hits")
        fresh = take("mix.fresh", np.int64, len(_SHARES))
        demand((fresh >= 0) & (fresh < EPOCH), "mix.fresh")
        self.hits[:], self.fresh[:] = hits, fresh
        self._settle()


def combine(
    fine: NDArray[np.float64],
    coarse: NDArray[np.float64] | None,
    category: NDArray[np.int64],
    share: float,
    unseen: NDArray[np.float64],
    hidden: NDArray[np.bool_] | None = None,
) -> TwoLevels:
    """Probabilities of classes and categories from those of the two forests.

    Parameters
    ----------
    fine, coarse
        Posteriors of the fine and of the coarse forest; None: there is no coarse forest.
    category
        Of each class; negative: none is known.
    share
        The coarse forest's share of the say on categories.
    unseen
        Of each category, the part that is kept for classes that are not known yet.
    hidden
        Classes that stand for rows of a category whose class is not told. What they have is the category's,
        and is shared by its other classes as they stand.

    Sums over classes are of whole numbers, so that they do not depend on how many rows are looked at.
    """
    own, uncategorised = _by_category(fine, category, len(unseen))
    target = own
    if coarse is not None:
        answers = coarse.sum(axis=1) > 0
        knows_classes = fine.any(axis=1)
        g = np.where(answers, np.where(knows_classes, share, 1.0), 0.0)[:, None]
        target = (1 - g) * own + g * (1 - uncategorised)[:, None] * coarse
    if fine.shape[1] == 0 or len(unseen) == 0:
        return TwoLevels(fine, target)
    if hidden is not None:
        fine = np.where(hidden, 0.0, fine)
        own, _ = _by_category(fine, category, len(unseen))
    factor = np.divide(target, own, out=np.zeros_like(target), where=own > 0) * (1 - unseen)
    scale = np.ones_like(fine)
    has = category >= 0
    scale[:, has] = factor[:, category[has]]
    return TwoLevels(np.minimum(fine * scale, 1.0), np.minimum(target, 1.0))


def _by_category(
    fine: NDArray[np.float64], category: NDArray[np.int64], n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What each category's classes have together, and the classes without one."""
    out = np.zeros((len(fine), n + 1), np.int64)
    if fine.shape[1] and len(fine):
        groups = np.where(category < 0, n, category)
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        units = np.rint(np.nan_to_num(fine) * _UNIT).astype(np.int64)
        out[:, ordered[starts]] = np.add.reduceat(units[:, order], starts, axis=1)
    sums = out / _UNIT
    return sums[:, :n], sums[:, n]


def unseen_shares(
    rows_of_class: NDArray[np.int64], category: NDArray[np.int64], n: int
) -> NDArray[np.float64]:
    """The part of each of `n` categories that is kept for unknown classes beside known ones.

    >>> unseen_shares(np.array([1, 8]), np.array([0, 0]), 2)
    array([0.1, 0. ])
    """
    has = category >= 0
    rows = np.bincount(category[has], weights=rows_of_class[has], minlength=n)
    once = np.bincount(category[has], weights=rows_of_class[has] == 1, minlength=n)
    shares: NDArray[np.float64] = once / (rows + 1)
    return shares
