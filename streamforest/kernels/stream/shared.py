"""What all trees share: rows enter the ring, and at the end of an epoch scales and weights change."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import routine
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.core.simd_distance import CAP, GAP, SCALE
from streamforest.kernels.stream.drift import ACCURACY_RATE
from streamforest.kernels.stream.layout import TreeArrays

SEEN, MEAN, VARIANCE, LOW, HIGH = range(5)
"""Running statistics of a feature: rows of `stats`."""

BY_DEVIATION, BY_RANGE = range(2)
"""The metric of even and of odd trees."""

_MEMORY = 5000.0  # rows that mean and variance look back on
_RELEVANCE = (0.5, 1.0)  # how far the importance of a feature scales it, by metric
_IRRELEVANT = 0.1  # added to the importance of each feature, in shares of the average
_VOTE_POWER = 2.0  # most that vote weights may spread the trees
_WEIGHT_OF_CATEGORY = (2.0, 1.0)  # squared distance of two categories, by metric
_SMALLEST = 1e-30  # a deviation or range below this is none
_LARGEST = 3e38  # a metric is float32: no stretch carries it to infinity


@routine
def stage(
    rows: NDArray[np.float32],
    labels: NDArray[np.int32],
    stats: NDArray[np.float64],
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    number: int,
    slots: int,
) -> None:
    """Write the rows to be learned, the first of them row `number`, to the ring and the statistics.

    No tree reads them before it has learned them, and what they overwrite is no longer readable.
    """
    for r in range(x.shape[0]):
        if not op[r] & LEARN:
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
def sum_gains(g: TreeArrays, gain: NDArray[np.float64]) -> None:
    """The information gain of each feature in the splits of the trees that vote."""
    gain[:] = 0.0
    for t in range(g.voter.shape[0]):
        s = 2 * t + g.voter[t].active
        for i in range(g.tree_slot[s].n_nodes):
            f = g.node[s, i].feature
            if f >= 0:
                gain[f] += np.float64(g.stat[s, i].gain)


@routine
def settle_metric(
    stats: NDArray[np.float64],
    gain: NDArray[np.float64],
    known: int,
    stretching: float,
    categorical: NDArray[np.uint8],
    metric: NDArray[np.float32],
) -> None:
    """Both metrics anew: spans from the statistics, stretched by what features have told apart.

    A feature that splits gain nothing from only blurs distances. Gains are a matter of structure, so
    that no label of a structure event reaches the answers of a tree that stands.
    """
    total = 0.0
    for f in range(known):
        total += gain[f]
    for f in range(known):
        variance = stats[VARIANCE, f]
        spans = (math.sqrt(variance), stats[HIGH, f] - stats[LOW, f])
        relevance = 1.0
        if total > 0.0:
            relevance = (known * gain[f] / total + _IRRELEVANT) / (1.0 + _IRRELEVANT)
        for kind in range(2):
            span = spans[kind]
            stretch = math.pow(relevance, stretching * _RELEVANCE[kind])
            if stats[SEEN, f] == 0.0:
                metric[kind, SCALE, f] = np.float32(0.0)
                metric[kind, CAP, f] = np.float32(np.inf)
                metric[kind, GAP, f] = np.float32(0.0)
            elif categorical[f]:
                metric[kind, SCALE, f] = np.float32(1.0)
                metric[kind, CAP, f] = np.float32(0.5)
                gap = _WEIGHT_OF_CATEGORY[kind] * stretch * stretch
                metric[kind, GAP, f] = np.float32(min(gap, _LARGEST))
            else:
                scale = stretch / span if span > _SMALLEST else 0.0
                gap = 2.0 * variance * scale * scale
                metric[kind, SCALE, f] = np.float32(min(scale, _LARGEST))
                metric[kind, CAP, f] = np.float32(np.inf)
                metric[kind, GAP, f] = np.float32(min(gap, _LARGEST))


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
