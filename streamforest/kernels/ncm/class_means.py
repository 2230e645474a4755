"""The nearest class mean as an expert beside the trees, and what it knows of each class.

It answers before the first tree is grown, and for classes with so few rows that no leaf is theirs. In the
sense of the kernel contract it is a tree of its own: it goes through the rows in order, and nobody else
writes what it reads.

Distances are taken by the inverse of the covariance within the classes, shrunk towards a multiple of the
identity (IDENTITY) or towards its own diagonal (DIAGONAL): streaming linear discriminant analysis. With
very many columns the covariance is its diagonal, and the two are the Euclidean and the standardised
distance. Both are judged, and the better one is the *active metric*, which votes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import VOTE_UNIT
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.simd_distance import lane_distance
from streamforest.kernels.core.simd_dot import dot, dot4, through
from streamforest.kernels.ncm.layout import IDENTITY, MEANS, TARGETS, Means
from streamforest.kernels.ncm.neighbours import STANDARDISED

_LOOK_BACK = 10_000.0  # events that the covariance looks back on
_LEAD_RATE = 0.01
_FAR = np.float32(1e38)  # a score that is no number counts as this far away
_SHARPNESS = 3.0  # a class that is behind by the usual lead has e to the minus this


@kernel
def project(means: Means, target: int, k: int) -> None:
    """Multiply the mean of class `k` by the inverse of a shrunk covariance."""
    width = means.mean.shape[1]
    row = target * means.mean.shape[0] + k
    if means.inverse.shape[1] == 1:
        for f in range(width):
            means.projected[row, f] = means.inverse[target, 0, f] * means.mean[k, f]
    else:
        through(means.mean, k, 1, means.inverse[target], means.projected, row)
    means.half[row] = np.float32(0.5) * dot(means.mean, k, means.projected, row)


@routine
def project_all(means: Means) -> None:
    """The same for every class and target, after inverses or widths have changed."""
    for target in range(TARGETS):
        for k in range(means.n.shape[0]):
            if means.n[k] > 0:
                project(means, target, k)


@kernel
def answer_of_means(
    means: Means,
    target: int,
    x: NDArray[np.float32],
    r: int,
    classes: int,
    score: NDArray[np.float32],
) -> tuple[int, float]:
    """Scores of all classes for row `r`; the best class (-1: none yet) and its lead over the second."""
    base = target * means.mean.shape[0]
    best = -1
    highest = np.float32(-np.inf)
    second = np.float32(-np.inf)
    k = 0
    while k + 4 <= classes:
        score[k], score[k + 1], score[k + 2], score[k + 3] = dot4(x, r, means.projected, base + k)
        k += 4
    while k < classes:
        score[k] = dot(x, r, means.projected, base + k)
        k += 1
    for k in range(classes):
        if means.n[k] > 0:
            s = score[k] - means.half[base + k]
            if not abs(s) <= _FAR:
                s = -_FAR
            score[k] = s
            if best < 0 or s > highest:
                second = highest
                highest = s
                best = k
            elif s > second:
                second = s
    lead = float(highest - second)
    return best, lead if lead < np.inf else 0.0


@kernel
def vote_of_means(
    means: Means,
    target: int,
    best: int,
    score: NDArray[np.float32],
    votes: NDArray[np.int64],
    r: int,
) -> None:
    """Add the answer with these scores to `votes[r, MEANS]`."""
    sharp = _SHARPNESS / max(means.lead[target], 1e-30)
    highest = score[best]
    total = 0.0
    for k in range(score.shape[0]):
        if means.n[k] > 0:
            score[k] = np.float32(math.exp(max(-80.0, (score[k] - highest) * sharp)))
            total += score[k]
    unit = VOTE_UNIT / total
    for k in range(score.shape[0]):
        if means.n[k] > 0:
            votes[r, MEANS, k] += np.int64(np.rint(score[k] * unit))


@kernel
def _add_products(means: Means, off: NDArray[np.float32]) -> None:
    """Add the products of differences from a mean to the covariance, of which the lower half is kept."""
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
    scales: NDArray[np.float32],
    covariance: int,
    off: NDArray[np.float32],
) -> None:
    """Row `r` moves the mean of its class; with `covariance` its difference from it is counted too."""
    width = x.shape[1]
    n = means.n[y]
    if n > 0:
        own = float(lane_distance(means.mean, y, x, r, scales, STANDARDISED))
        if own < np.inf:
            means.spread[y] += (own - means.spread[y]) / n
        if covariance:
            for f in range(width):
                off[0, f] = x[r, f] - means.mean[y, f]
            _add_products(means, off)
    means.n[y] = n + 1
    share = np.float32(1.0 / (n + 1))
    for f in range(width):
        means.mean[y, f] += (x[r, f] - means.mean[y, f]) * share
    if covariance:
        for target in range(TARGETS):
            project(means, target, y)


@kernel
def update_lead(means: Means, target: int, lead: float, number: int) -> None:
    """Remember by how much the nearest mean was ahead."""
    rate = max(_LEAD_RATE, 1.0 / (number + 1.0))
    means.lead[target] += (lead - means.lead[target]) * rate


@routine
def fade(means: Means, events: int) -> None:
    """Let the covariance forget, at the end of an epoch of so many events."""
    keep = (1.0 - 1.0 / _LOOK_BACK) ** events
    for f in range(means.scatter.shape[0]):
        for g in range(means.scatter.shape[1]):
            means.scatter[f, g] *= keep
    means.weight[0] *= keep


@routine
def shrink(means: Means, columns: int) -> None:
    """Invert the shrunk covariances as they are now."""
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
    means.inverse[:] = 0
    amount = min(1.0, 0.05 + columns / (columns + weight))
    for target in range(TARGETS):
        if not full:
            for f in range(columns):
                if target == IDENTITY:
                    means.inverse[target, 0, f] = np.float32(1.0 / level)
                else:
                    means.inverse[target, 0, f] = np.float32(1.0 / (diagonal[f] + 0.01 * level))
            continue
        cov = np.zeros((columns, columns))
        for f in range(columns):
            for g in range(f):
                cov[f, g] = (1.0 - amount) * means.scatter[f, g] / weight
            towards = level if target == IDENTITY else diagonal[f] + 0.01 * level
            cov[f, f] = (1.0 - amount) * diagonal[f] + amount * towards
        inverse = invert(cov)
        for f in range(columns):
            for g in range(columns):
                means.inverse[target, f, g] = np.float32(inverse[max(f, g), min(f, g)])


@kernel
def _subtract_times(out: NDArray[np.float64], row: NDArray[np.float64], w: float) -> None:
    """Subtract `w` times a row from another."""
    for j in range(out.shape[0]):
        out[j] -= w * row[j]


@routine
def invert(a: NDArray[np.float64]) -> NDArray[np.float64]:
    """The lower half of the inverse of a positive definite matrix, given its lower half."""
    n = a.shape[0]
    # Inner loops run over rows of two arrays, from 0 on, without a sum: that makes them vector
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
        for j in range(n):
            pivot[j] = up[k, j]
        for i in range(k + 1, n):
            _subtract_times(up[i, i:], pivot[i:], pivot[i])
    inv = np.zeros((n, n))  # inverse of upᵀ
    for i in range(n):
        for k in range(i):
            _subtract_times(inv[i, : k + 1], inv[k, : k + 1], up[k, i])
        for j in range(i):
            inv[i, j] /= up[i, i]
        inv[i, i] = 1.0 / up[i, i]
    out = np.zeros((n, n))
    for k in range(n):
        for i in range(k + 1):
            _subtract_times(out[i, : i + 1], inv[k, : i + 1], -inv[k, i])
    return out
