"""What all trees share: rows enter the ring, and at the end of an epoch scales, weights and mix change."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.compiling import routine
from streamforest.kernels.lanes import CAP, GAP, SCALE
from streamforest.kernels.ring_drift import ACCURACY_RATE

SEEN, MEAN, VARIANCE, LOW, HIGH = range(5)
"""Running statistics of a feature: rows of `stats`."""

BY_DEVIATION, BY_RANGE = range(2)
"""The metric of even and of odd trees."""

_MEMORY = 5000.0  # rows that mean and variance look back on
_MIX_MEMORY = 0.998  # of the errors that the mix of the two opinions is made of
_MIX_RATE = 0.5
_VOTE_POWER = 2.0  # most that vote weights may spread the trees
_WEIGHT_OF_CATEGORY = (2.0, 1.0)  # squared distance of two categories, by metric
_SMALLEST = 1e-30  # a deviation or range below this is none


@routine
def stage(
    rows: NDArray[np.float32],
    labels: NDArray[np.int32],
    stats: NDArray[np.float64],
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    learns: NDArray[np.bool_],
    number: int,
    slots: int,
) -> None:
    """Write the rows to be learned, the first of them row `number`, to the ring and the statistics.

    No tree reads them before it has learned them, and what they overwrite is no longer readable.
    """
    for r in range(x.shape[0]):
        if not learns[r]:
            continue
        slot = number % slots
        number += 1
        labels[slot] = y[r]
        for f in range(x.shape[1]):
            v = np.float32(x[r, f]) + np.float32(0.0)
            rows[slot, f] = v
            if v != v:
                continue
            if stats[SEEN, f] == 0.0:
                stats[LOW, f] = v
                stats[HIGH, f] = v
            stats[SEEN, f] += 1.0
            rate = 1.0 / min(stats[SEEN, f], _MEMORY)
            off = np.float64(v) - stats[MEAN, f]
            stats[MEAN, f] += rate * off
            stats[VARIANCE, f] += rate * (off * (v - stats[MEAN, f]) - stats[VARIANCE, f])
            stats[LOW, f] = min(stats[LOW, f], np.float64(v))
            stats[HIGH, f] = max(stats[HIGH, f], np.float64(v))


@routine
def settle_metric(
    stats: NDArray[np.float64], categorical: NDArray[np.uint8], metric: NDArray[np.float32]
) -> None:
    """Both metrics anew from the statistics."""
    for f in range(categorical.shape[0]):
        variance = stats[VARIANCE, f]
        spans = (math.sqrt(variance), stats[HIGH, f] - stats[LOW, f])
        for kind in range(2):
            span = spans[kind]
            if stats[SEEN, f] == 0.0:
                metric[kind, SCALE, f] = np.float32(0.0)
                metric[kind, CAP, f] = np.float32(np.inf)
                metric[kind, GAP, f] = np.float32(0.0)
            elif categorical[f]:
                metric[kind, SCALE, f] = np.float32(1.0)
                metric[kind, CAP, f] = np.float32(0.5)
                metric[kind, GAP, f] = np.float32(_WEIGHT_OF_CATEGORY[kind])
            else:
                scale = 1.0 / span if span > _SMALLEST else 0.0
                metric[kind, SCALE, f] = np.float32(scale)
                metric[kind, CAP, f] = np.float32(np.inf)
                metric[kind, GAP, f] = np.float32(2.0 * variance * scale * scale)


@routine
def vote_power(voter: NDArray[np.void]) -> float:
    """How far the trees' accuracies are to spread their votes, see `ring_drift.vote_weight`.

    Between 0, where the accuracies differ no more than chance makes running averages differ, and 2,
    where they differ far more: under drift, when some trees have been replaced and others not yet.
    """
    n = voter.shape[0]
    total = 0.0
    squares = 0.0
    for t in range(n):
        total += voter[t].accuracy
        squares += voter[t].accuracy * voter[t].accuracy
    mean = total / n
    observed = max(squares / n - mean * mean, 1e-12)
    expected = mean * (1.0 - mean) * ACCURACY_RATE / (2.0 - ACCURACY_RATE)
    return _VOTE_POWER * max(0.0, 1.0 - float(expected / observed))


@routine
def judge_opinions(
    votes: NDArray[np.int64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    learn: int,
    loss: NDArray[np.float64],
) -> None:
    """Note which of the forest's two opinions was wrong on each row that was learned."""
    for r in range(votes.shape[0]):
        if not op[r] & learn:
            continue
        for which in range(2):
            best = -1
            most = 0
            for k in range(votes.shape[2]):
                if votes[r, which, k] > most:
                    most = votes[r, which, k]
                    best = k
            loss[which] = _MIX_MEMORY * loss[which] + (0.0 if best == y[r] else 1.0)


@routine
def settle_mix(loss: NDArray[np.float64], mix: NDArray[np.float64]) -> None:
    """How the two opinions are mixed: by exponential weights of their fading errors."""
    least = min(loss[0], loss[1])
    for which in range(2):
        mix[which] = math.exp(-_MIX_RATE * (loss[which] - least))


@routine
def mix_votes(votes: NDArray[np.int64], mix: NDArray[np.float64]) -> NDArray[np.int64]:
    """One score per row and class, mixed in float64.

    In whole units again: sums of integers do not depend on how many classes stand beside them.
    """
    out = np.empty((votes.shape[0], votes.shape[2]), np.int64)
    for r in range(votes.shape[0]):
        for k in range(votes.shape[2]):
            mixed = mix[0] * votes[r, 0, k] + mix[1] * votes[r, 1, k]
            out[r, k] = np.int64(np.rint(mixed))
    return out


@routine
def fits_float32(x: NDArray[np.float64], largest: float) -> bool:
    """Whether the ring can hold every value of a row (NaN is missing, and fits)."""
    for r in range(x.shape[0]):
        for f in range(x.shape[1]):
            if x[r, f] > largest or x[r, f] < -largest:
                return False
    return True
