"""The nearest class mean as a voter beside the trees, and what it knows of each class.

It answers before the first tree stands, and for classes with so few rows that no leaf is theirs. It is a
tree of its own in the sense of the kernel contract: it moves through the rows in order and nobody else
writes what it reads.

Distances are taken in a *lens*: the inverse covariance within the classes, drawn towards a multiple of the
identity (PLAIN) or towards its own diagonal (SCALED), which is streaming linear discriminant analysis;
beyond FULL_WIDTH columns the covariance is its diagonal and the two are Euclid's and the standardised
distance. Both are judged, and the better one speaks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import VOTE_UNIT
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.simd_distance import lane_distance
from streamforest.kernels.core.simd_dot import dot, dot4, through
from streamforest.kernels.ncm.neighbours import STANDARDISED

PLAIN, SCALED = range(2)
LENSES = 2
FULL_WIDTH = 320
"""Columns up to which the covariance within the classes is kept whole."""


_LOOK_BACK = 10_000.0  # events that the covariance looks back on
_GAP_RATE = 0.01
_FAR = np.float32(1e38)  # a score that cannot be told counts as this far away
_SHARPNESS = 3.0  # a class that is behind by the usual gap has e to the minus this


class Means(NamedTuple):
    """Class means and the lenses they are seen through."""

    mean: NDArray[np.float32]  # [classes, width]
    n: NDArray[np.int64]  # events of each class
    spread: NDArray[np.float64]  # [classes] squared distance of events from their mean, on average
    scatter: NDArray[np.float64]  # [width or 1, width] sum of products of what is off the mean
    weight: NDArray[np.float64]  # [1] events in that sum, fading
    lens: NDArray[np.float32]  # [LENSES, width or 1, width], as of some epoch
    seen: NDArray[np.float32]  # [LENSES·classes, width] means through each lens, lens by lens
    half: NDArray[np.float32]  # [LENSES·classes] ½·mean·lens·mean
    gap: NDArray[np.float64]  # [LENSES] running lead of the nearest mean over the second


@kernel
def look(means: Means, lens: int, k: int) -> None:
    """See the mean of class `k` through a lens anew."""
    width = means.mean.shape[1]
    at = lens * means.mean.shape[0] + k
    if means.lens.shape[1] == 1:
        for f in range(width):
            means.seen[at, f] = means.lens[lens, 0, f] * means.mean[k, f]
    else:
        through(means.mean, k, 1, means.lens[lens], means.seen, at)
    means.half[at] = np.float32(0.5) * dot(means.mean, k, means.seen, at)


@routine
def look_again(means: Means) -> None:
    """See every mean through every lens anew: lenses or widths have changed."""
    for lens in range(LENSES):
        for k in range(means.n.shape[0]):
            if means.n[k] > 0:
                look(means, lens, k)


@kernel
def answer_of_means(
    means: Means,
    lens: int,
    x: NDArray[np.float32],
    r: int,
    classes: int,
    score: NDArray[np.float32],
) -> tuple[int, float]:
    """Scores of all classes for row `r`; the best class (-1: none yet) and its lead over the second."""
    base = lens * means.mean.shape[0]
    best = -1
    most = np.float32(-np.inf)
    second = np.float32(-np.inf)
    k = 0
    while k + 4 <= classes:
        score[k], score[k + 1], score[k + 2], score[k + 3] = dot4(x, r, means.seen, base + k)
        k += 4
    while k < classes:
        score[k] = dot(x, r, means.seen, base + k)
        k += 1
    for k in range(classes):
        if means.n[k] > 0:
            s = score[k] - means.half[base + k]
            if not abs(s) <= _FAR:
                s = -_FAR
            score[k] = s
            if best < 0 or s > most:
                second = most
                most = s
                best = k
            elif s > second:
                second = s
    lead = float(most - second)
    return best, lead if lead < np.inf else 0.0


@kernel
def vote_of_means(
    means: Means,
    lens: int,
    best: int,
    score: NDArray[np.float32],
    votes: NDArray[np.int64],
    r: int,
) -> None:
    """Add the answer with these scores to `votes[r, 1]`."""
    sharp = _SHARPNESS / max(means.gap[lens], 1e-30)
    most = score[best]
    total = 0.0
    for k in range(score.shape[0]):
        if means.n[k] > 0:
            score[k] = np.float32(math.exp(max(-80.0, (score[k] - most) * sharp)))
            total += score[k]
    unit = VOTE_UNIT / total
    for k in range(score.shape[0]):
        if means.n[k] > 0:
            votes[r, 1, k] += np.int64(np.rint(score[k] * unit))


@kernel
def _scatter(means: Means, off: NDArray[np.float32]) -> None:
    """Add the products of what is off a mean to the covariance; its lower half is kept."""
    width = off.shape[1]
    means.weight[0] += 1.0
    if means.scatter.shape[0] == 1:
        for f in range(width):
            means.scatter[0, f] += off[0, f] * off[0, f]
        return
    for f in range(width):
        o = off[0, f]
        if o != 0.0:
            for g in range(f + 1):
                means.scatter[f, g] += o * off[0, g]


@kernel
def learn_mean(
    means: Means,
    x: NDArray[np.float32],
    r: int,
    y: int,
    near: NDArray[np.float32],
    lenses: int,
    off: NDArray[np.float32],
) -> None:
    """Row `r` moves the mean of its class, and with `lenses` what is off it adds to the covariance."""
    width = x.shape[1]
    n = means.n[y]
    if n > 0:
        own = float(lane_distance(means.mean, y, x, r, near, STANDARDISED))
        if own < np.inf:
            means.spread[y] += (own - means.spread[y]) / n
        if lenses:
            for f in range(width):
                off[0, f] = x[r, f] - means.mean[y, f]
            _scatter(means, off)
    means.n[y] = n + 1
    share = np.float32(1.0 / (n + 1))
    for f in range(width):
        means.mean[y, f] += (x[r, f] - means.mean[y, f]) * share
    if lenses:
        for lens in range(LENSES):
            look(means, lens, y)


@kernel
def note_gap(means: Means, lens: int, lead: float, number: int) -> None:
    """Remember by how much the nearest mean was ahead."""
    rate = max(_GAP_RATE, 1.0 / (number + 1.0))
    means.gap[lens] += (lead - means.gap[lens]) * rate


@routine
def fade(means: Means, events: int) -> None:
    """Let the covariance forget, at the end of an epoch of so many events."""
    keep = (1.0 - 1.0 / _LOOK_BACK) ** events
    for f in range(means.scatter.shape[0]):
        for g in range(means.scatter.shape[1]):
            means.scatter[f, g] *= keep
    means.weight[0] *= keep


@routine
def grind(means: Means, columns: int) -> None:
    """New lenses from the covariance as it stands."""
    weight = max(means.weight[0], 1.0)
    width = means.mean.shape[1]
    full = means.scatter.shape[0] > 1
    diagonal = np.zeros(width)
    total = 0.0
    moving = 0
    for f in range(width):
        diagonal[f] = (means.scatter[f, f] if full else means.scatter[0, f]) / weight
        total += diagonal[f]
        moving += diagonal[f] > 0.0
    level = max(total / moving, 1e-20) if moving > 0 else 1.0
    means.lens[:] = 0
    shrink = min(1.0, 0.05 + columns / (columns + weight))
    for lens in range(LENSES):
        if not full:
            for f in range(columns):
                if lens == PLAIN:
                    means.lens[lens, 0, f] = np.float32(1.0 / level)
                else:
                    means.lens[lens, 0, f] = np.float32(1.0 / (diagonal[f] + 0.01 * level))
            continue
        cov = np.zeros((columns, columns))
        for f in range(columns):
            for g in range(f):
                cov[f, g] = (1.0 - shrink) * means.scatter[f, g] / weight
            target = level if lens == PLAIN else diagonal[f] + 0.01 * level
            cov[f, f] = (1.0 - shrink) * diagonal[f] + shrink * target
        inverse = invert(cov)
        for f in range(columns):
            for g in range(columns):
                means.lens[lens, f, g] = np.float32(inverse[max(f, g), min(f, g)])


@kernel
def _take_times(out: NDArray[np.float64], row: NDArray[np.float64], w: float) -> None:
    """Take `w` times a row from another."""
    for j in range(out.shape[0]):
        out[j] -= w * row[j]


@routine
def invert(a: NDArray[np.float64]) -> NDArray[np.float64]:
    """The lower half of the inverse of a positive definite matrix, given its lower half."""
    n = a.shape[0]
    # Inner loops run over rows of two arrays, from 0 on, and sum nothing up: that makes them vector
    # instructions. Every number is still the sum over k in its order.
    up = np.zeros((n, n))  # Cholesky: a = upᵀ·up
    for i in range(n):
        for j in range(i + 1):
            up[j, i] = a[i, j]
    pivot = np.empty(n)
    for k in range(n):
        up[k, k] = math.sqrt(up[k, k])
        for j in range(k + 1, n):
            up[k, j] /= up[k, k]
        pivot[:] = up[k]
        for i in range(k + 1, n):
            _take_times(up[i, i:], pivot[i:], pivot[i])
    inv = np.zeros((n, n))  # inverse of upᵀ
    for i in range(n):
        for k in range(i):
            _take_times(inv[i, : k + 1], inv[k, : k + 1], up[k, i])
        for j in range(i):
            inv[i, j] /= up[i, i]
        inv[i, i] = 1.0 / up[i, i]
    out = np.zeros((n, n))
    for k in range(n):
        for i in range(k + 1):
            _take_times(out[i, : i + 1], inv[k, : i + 1], -inv[k, i])
    return out
