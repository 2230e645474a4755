"""How two families become one answer: candidate blends, weighted by what they got right lately.

A blend gives the second family a share g of the say and the first the rest. Seven shares from 0 to 1 are
judged by every learned row: would this blend have had its class? Their hits fade, and the share in use is
the mean of the seven, weighted by exp(hits / 2 - 3 g). So a family that is behind for a few hundred events
falls silent by itself, and two that make different mistakes are heard together. The last term is a lead of
six hits for the first family, the steadier one: on streams of few events, where hits decide nothing yet, it
halves what the second one costs (measured: phishing .0029 to .0019 below the stream forest, 3 seeds).

Hits of an epoch are whole numbers and take effect when it ends, so that it does not matter how rows are cut
into batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.serialization import demand

SHARES: NDArray[np.float64] = np.array([0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0])
SHARES.flags.writeable = False
_RATE = 0.5
_LEAD = 3.0
_UNIT = float(1 << 32)
_ROUNDING = 1 + 1e-9


class Blend:
    """The share of the second of two families, and what it is made of.

    Parameters
    ----------
    decay
        What is left of a hit after one more event.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.hits = np.zeros(len(SHARES))
        self.recent = np.zeros(len(SHARES), np.int64)  # in this epoch: counted when it ends
        self.share = 0.0
        self._settle()

    def _settle(self) -> None:
        score = _RATE * self.hits - _LEAD * SHARES
        weight = np.exp(score - score.max())
        self.share = float((weight * SHARES).sum() / weight.sum())

    def mix(self, votes: NDArray[np.int64]) -> NDArray[np.int64]:
        """One score per row and class of votes [rows, 2, classes].

        In whole units: sums of integers do not depend on how many classes stand beside them.
        """
        return np.rint(_mixed(votes, _units(votes), self.share)).astype(np.int64)

    def mix_one(self, votes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same for the votes [2, classes] on one row, without the cost of a batch."""
        first, second = votes
        own = (1.0 - self.share) * (_UNIT / max(int(first.sum()), 1))
        other = self.share * (_UNIT / max(int(second.sum()), 1))
        mixed: NDArray[np.float64] = own * first + other * second
        return np.rint(mixed).astype(np.int64)

    def judge(self, votes: NDArray[np.int64], y: NDArray[np.int64]) -> None:
        """Note which blends would have had the classes of these rows."""
        if not votes.size:
            return
        best = votes.argmax(axis=2)
        best[~votes.any(axis=2)] = -1  # no answer is no hit
        alike = best[:, 0] == best[:, 1]  # then it is the answer of every blend
        self.recent += np.count_nonzero(alike & (best[:, 0] == y))
        if not alike.all():
            self._judge_apart(votes[~alike], y[~alike])

    def judge_one(self, votes: NDArray[np.int64], y: NDArray[np.int64]) -> None:
        """The same for votes [1, 2, classes] on one row, without the cost of a batch."""
        if not votes.size:
            return
        first, second = votes[0]
        best = int(first.argmax())
        if best == second.argmax() and first[best] and second[best]:
            if best == y[0]:
                self.recent += 1
        else:
            self.judge(votes, y)

    def _judge_apart(self, votes: NDArray[np.int64], y: NDArray[np.int64]) -> None:
        """The same for rows on which the families differ."""
        units, rows = _units(votes), np.arange(len(votes))
        for k, share in enumerate(SHARES.tolist()):
            mixed = _mixed(votes, units, share)
            chosen = mixed.argmax(axis=1)
            said = mixed[rows, chosen] > 0
            self.recent[k] += np.count_nonzero(said & (chosen == y))

    def end_epoch(self, events: int) -> None:
        """Let the hits of the last `events` events count."""
        self.hits *= self.decay**events
        self.hits += self.recent
        self.recent[:] = 0
        self._settle()

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        return {"blend.hits": self.hits.copy(), "blend.recent": self.recent.copy()}

    def restore(self, take: Callable[..., NDArray[Any]], events: int) -> None:
        """The same back; `events` are those of the epoch so far."""
        hits = take("blend.hits", np.float64, len(SHARES))
        # in a long run, as many as fade in an epoch; and what comes at once at its end
        most = (64 + 1 / (1 - self.decay)) * _ROUNDING
        demand((hits >= 0) & (hits <= most), "blend.hits")
        recent = take("blend.recent", np.int64, len(SHARES))
        demand((recent >= 0) & (recent <= events), "blend.recent")
        self.hits, self.recent = hits.copy(), recent.copy()
        self._settle()


def _units(votes: NDArray[np.int64]) -> NDArray[np.float64]:
    """What a vote of each family counts in each row, so that all of them sum to one unit."""
    out: NDArray[np.float64] = _UNIT / np.maximum(votes.sum(axis=2), 1)
    return out


def _mixed(
    votes: NDArray[np.int64], units: NDArray[np.float64], share: float
) -> NDArray[np.float64]:
    own, other = (1.0 - share) * units[:, :1], share * units[:, 1:]
    out: NDArray[np.float64] = own * votes[:, 0] + other * votes[:, 1]
    return out
