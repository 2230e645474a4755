"""How voices become one answer: candidate blends of two, weighted by what they got right lately.

A blend gives the second of two voices a share g of the say and the first the rest. Seven shares from 0 to 1
are judged by every learned row: would this blend have had its class? Their hits fade, and the share in use is
the mean of the seven, weighted by exp(hits / 2 - 3 g). So a voice that is behind for a few hundred events
falls silent by itself, and two that make different mistakes are heard together. The last term is a lead of
six hits for the first one: on streams of few events, where hits decide nothing yet, it lessens what the
second one costs (measured: phishing .0029 to .0019 below the stream forest, 3 seeds).

It is done twice: for the two forests, and for both of them and the recent neighbours. Between the two, young
classes get a *lift*: forests are slow to believe in a class of a few rows, so its votes count once to sixteen
times, by what was right lately for classes of fewer than 5, 20 and 80 rows. Where classes keep coming that is
worth 1 to 2 points of accuracy, and 3 to 20 points of the first ten events of a class; elsewhere nothing is
young. Hits of an epoch are whole numbers and take effect when it ends, so that it does not matter how rows
are cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import demand
from streamforest.kernels.auto.blending import AGES, GROWN_UP, LIFTS, SHARES, VOICES, blend
from streamforest.kernels.core.array_table import widened

_RATE = 0.5
_LEAD = 3.0
_LIFT_DECAY = 0.9998  # rows that concern young classes are few
_LOG_LIFTS = np.log(LIFTS)
_ROUNDING = 1 + 1e-9
_BLENDS = VOICES - 1


class Blend:
    """The shares in use, and what they are made of.

    Parameters
    ----------
    decay
        What is left after one more event of a hit of the two forests' blends.
    recent_decay
        The same for the blends with the recent neighbours.
    """

    def __init__(self, decay: float, recent_decay: float) -> None:
        self.decay = np.array([decay, recent_decay])
        self.hits = np.zeros((_BLENDS, len(SHARES)))
        self.fresh = np.zeros((_BLENDS, len(SHARES)), np.int64)  # counted when the epoch ends
        self.share = np.zeros(_BLENDS)
        self.rows = np.zeros(8, np.int64)  # learned of each class, up to GROWN_UP
        self.lift_hits = np.zeros((len(AGES), len(LIFTS)))
        self.lift_fresh = np.zeros(self.lift_hits.shape, np.int64)
        self.lift = np.ones(len(AGES))  # of each age
        self._settle()

    def _settle(self) -> None:
        score = _RATE * self.hits - _LEAD * SHARES
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        self.share[:] = (weight * SHARES).sum(axis=1) / weight.sum(axis=1)
        score = _RATE * self.lift_hits - _LOG_LIFTS
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        self.lift[:] = np.exp((weight * _LOG_LIFTS).sum(axis=1) / weight.sum(axis=1))

    def mix(
        self, votes: NDArray[np.int64], y: NDArray[np.int64], op: NDArray[np.uint8], ncm: bool
    ) -> NDArray[np.int64]:
        """One score per row and class; hits of rows that are learned are counted.

        Without the NCM forest the stream forest has its share, and the two are not judged.
        """
        out = np.empty((len(votes), votes.shape[2]), np.int64)
        if votes.shape[2] >= len(self.rows):  # one event's votes are of before its class was known
            self.rows = widened(self.rows, (2 * votes.shape[2],))
        share = self.share if ncm else np.array([0.0, self.share[1]])
        fresh = self.fresh if ncm else self.fresh.copy()
        blend(votes, y, op, share, fresh, self.rows, self.lift, self.lift_fresh, out)
        self.fresh[1] = fresh[1]
        return out

    def voices(self) -> list[float]:
        """What each voice has of the say."""
        ncm, recent = self.share.tolist()
        return [(1 - ncm) * (1 - recent), ncm * (1 - recent), recent]

    def worth(self) -> float:
        """Hits by which the best blend with the NCM forest is ahead of the stream forest alone."""
        return float(self.hits[0, 1:].max() - self.hits[0, 0])

    def end_epoch(self, events: int, ncm: bool) -> None:
        """Let the hits of the last `events` events count; without `ncm` those of the forests stay."""
        first = 0 if ncm else 1
        self.hits[first:] *= (self.decay[first:] ** events)[:, None]
        self.hits += self.fresh
        self.fresh[:] = 0
        self.lift_hits *= _LIFT_DECAY**events
        self.lift_hits += self.lift_fresh
        self.lift_fresh[:] = 0
        self._settle()

    def dump(self, classes: int) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        rows = np.zeros(classes, np.int64)
        known = min(classes, len(self.rows))
        rows[:known] = self.rows[:known]
        return {
            "blend.hits": self.hits.ravel(),
            "blend.fresh": self.fresh.ravel(),
            "blend.class_rows": rows,
            "blend.lift_hits": self.lift_hits.ravel(),
            "blend.lift_fresh": self.lift_fresh.ravel(),
        }

    def restore(
        self, take: Callable[..., NDArray[Any]], events: int, classes: int, revision: int
    ) -> None:
        """The same back; `events` are those of the epoch so far. In revision 1 no class was young."""
        # in a long run as many as fade in an epoch, and what comes at once at its end
        most = (EPOCH + 1 / (1 - self.decay)) * _ROUNDING
        self.hits[:] = _hits(take, "blend.hits", self.hits, most[:, None])
        self.fresh[:] = _fresh(take, "blend.fresh", self.fresh, events)
        self.rows = np.full(classes + 8, GROWN_UP)
        self.rows[classes:] = 0
        if revision > 1:
            rows = take("blend.class_rows", np.int64, classes)
            demand((rows >= 0) & (rows <= GROWN_UP), "blend.class_rows")
            self.rows[:classes] = rows
            most = np.array((EPOCH + 1 / (1 - _LIFT_DECAY)) * _ROUNDING)
            self.lift_hits[:] = _hits(take, "blend.lift_hits", self.lift_hits, most)
            self.lift_fresh[:] = _fresh(take, "blend.lift_fresh", self.lift_fresh, events)
        self._settle()


def _hits(
    take: Callable[..., NDArray[Any]],
    name: str,
    like: NDArray[np.float64],
    most: NDArray[np.float64],
) -> NDArray[Any]:
    hits = take(name, np.float64, like.size).reshape(like.shape)
    demand((hits >= 0) & (hits <= most), name)
    return hits


def _fresh(
    take: Callable[..., NDArray[Any]], name: str, like: NDArray[np.int64], events: int
) -> NDArray[Any]:
    fresh = take(name, np.int64, like.size).reshape(like.shape)
    demand((fresh >= 0) & (fresh <= events), name)
    return fresh
