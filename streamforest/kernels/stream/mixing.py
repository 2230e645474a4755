"""How a forest mixes its experts: candidate mixtures, weighted by their recent errors.

An expert that is never right by itself can still make a better one better, so what is judged is not
experts but mixtures of them: each alone, and every two with one, two or three quarters of the first. A
mixture's weight is the exponential of its fading number of errors. Since every mixture is linear in the
experts, so is the whole, and predicting needs one weight an expert.

Experts answer before the label is known and mixtures are judged after it, event by event in the order
of the stream: every label counts here.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import VOTE_UNIT
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.operations import LEARN

_MEMORY = 0.9995  # of errors, an event
_RATE = 1.0


def _mixtures(experts: int) -> NDArray[np.float64]:
    """Rows: shares of the experts in each mixture."""
    alone = [np.eye(experts)[e] for e in range(experts)]
    pairs = [
        share * alone[a] + (1 - share) * alone[b]
        for a in range(experts)
        for b in range(a + 1, experts)
        for share in (0.25, 0.5, 0.75)
    ]
    return np.array(alone + pairs)


EXPERTS = 4
MIXTURES = _mixtures(EXPERTS)
MIXTURES.flags.writeable = False


@kernel
def weigh(loss: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
    """The weight of each expert, from the fading errors of the mixtures; they sum to one."""
    least = np.inf
    for m in range(MIXTURES.shape[0]):
        least = min(least, loss[m])
    weight[:] = 0.0
    total = 0.0
    for m in range(MIXTURES.shape[0]):
        w = math.exp(-_RATE * (loss[m] - least))
        total += w
        for e in range(EXPERTS):
            weight[e] += w * MIXTURES[m, e]
    for e in range(EXPERTS):
        weight[e] /= total


@kernel
def _mix_row(
    votes: NDArray[np.int64],
    r: int,
    weight: NDArray[np.float64],
    share: NDArray[np.float64],
    out: NDArray[np.int64],
) -> None:
    """Votes on row `r` as distributions in `share`, and their mixture; who has no votes is left out."""
    heard = 0.0
    for e in range(EXPERTS):
        total = 0
        for k in range(votes.shape[2]):
            total += votes[r, e, k]
        unit = 0.0
        if total > 0:
            unit = 1.0 / total
            heard += weight[e]
        for k in range(votes.shape[2]):
            share[e, k] = unit * votes[r, e, k]
    unit = VOTE_UNIT / heard if heard > 0.0 else 0.0
    for k in range(votes.shape[2]):
        mixed = 0.0
        for e in range(EXPERTS):
            mixed += weight[e] * share[e, k]
        out[r, k] = np.int64(np.rint(unit * mixed))


@kernel
def _judge(share: NDArray[np.float64], y: int, loss: NDArray[np.float64]) -> None:
    """Note which mixtures were wrong."""
    for m in range(MIXTURES.shape[0]):
        best = -1
        largest = 0.0
        for k in range(share.shape[1]):
            mixed = 0.0
            for e in range(EXPERTS):
                mixed += MIXTURES[m, e] * share[e, k]
            if mixed > largest:
                largest = mixed
                best = k
        loss[m] = _MEMORY * loss[m] + (0.0 if best == y else 1.0)


@routine
def mix(votes: NDArray[np.int64], loss: NDArray[np.float64], out: NDArray[np.int64]) -> None:
    """One score per row and class, by the weights as they stand.

    In whole units again: sums of integers do not depend on how many classes stand beside them.
    """
    share = np.zeros((EXPERTS, votes.shape[2]))
    weight = np.zeros(EXPERTS)
    weigh(loss, weight)
    for r in range(votes.shape[0]):
        _mix_row(votes, r, weight, share, out)


@routine
def mix_and_judge(
    votes: NDArray[np.int64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    loss: NDArray[np.float64],
    out: NDArray[np.int64],
) -> None:
    """The same, with each row's label noted before the next row is mixed."""
    share = np.zeros((EXPERTS, votes.shape[2]))
    weight = np.zeros(EXPERTS)
    for r in range(votes.shape[0]):
        weigh(loss, weight)
        _mix_row(votes, r, weight, share, out)
        if op[r] & LEARN:
            _judge(share, y[r], loss)
