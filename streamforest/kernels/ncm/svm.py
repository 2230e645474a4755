"""Splits by a plane: a linear SVM between two groups of classes (Ristin 2016, section 3.2).

Every class of a node gets a random side, and a plane between the sides is fitted by stochastic gradient
descent on the hinge loss with a penalty on its length; a row counts as often as the bag has it. Of
several such planes the one with the largest information gain is taken.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.entropy import xlogx
from streamforest.kernels.core.simd_dot import add_times, dot
from streamforest.kernels.ncm.layout import NodeRows, Record, Tree, clipped, clipped_float32

_STEPS = (100, 1_000)  # of descent for each pass asked for: as many as there are rows, within these
_RATE = np.float32(0.5)  # first step over the mean square length of a row; falls to a quarter
_LEAST_SCALE = 1e-3


@kernel
def rate_of(u: NDArray[np.float32]) -> float:
    """The first step of descent: over the mean square length of the rows."""
    total = 0.0
    n = min(u.shape[0], 64)
    for a in range(n):
        total += dot(u, a, u, a)
    return float(_RATE / max(total / n, 1e-12))


@routine
def descend_hinge(
    u: NDArray[np.float32],
    sign: NDArray[np.float32],
    times: NDArray[np.int32],
    steps: int,
    penalty: float,
    start: np.uint64,
    plane: NDArray[np.float32],
    bias: float,
) -> float:
    """Fit `plane` (one row) to rows `u` with their signs, and return the bias.

    Stochastic gradient descent on Σ times·max(0, 1 − sign·(w·u + b)) / Σ times + λ·|w|² / 2, from the given
    plane and bias on; λ is `penalty` times the mean square length of a row. Rows are drawn at random among
    those with a weight.
    """
    width = u.shape[1]
    inside = np.empty(u.shape[0], np.int32)
    n = 0
    for a in range(u.shape[0]):
        if times[a] > 0:
            inside[n] = a
            n += 1
    b = np.float32(bias)
    if n == 0:
        return float(b)
    rate = rate_of(u)
    scale = 1.0  # w is the plane times this: shrinking it is one product a step
    for s in range(steps):
        a = inside[rng.below(start, s, n)]
        fall = 1.0 + 3.0 * s / steps
        margin = sign[a] * (np.float32(scale) * dot(u, a, plane, 0) + b)
        scale *= 1.0 - float(_RATE) * penalty / fall
        if margin < np.float32(1.0):
            step = np.float32(rate / fall) * sign[a] * np.float32(times[a])
            part = step / np.float32(scale)
            for f in range(width):
                plane[0, f] += part * u[a, f]
            b += step
        if scale < _LEAST_SCALE:
            for f in range(width):
                plane[0, f] *= np.float32(scale)
            scale = 1.0
    for f in range(width):
        plane[0, f] *= np.float32(scale)
    return float(b)


@kernel
def split_value(
    right: NDArray[np.int32],
    which: NDArray[np.int32],
    times: NDArray[np.int32],
    low: int,
    n_left: NDArray[np.int32],
    total: NDArray[np.int32],
    table: NDArray[np.int64],
) -> tuple[int, int]:
    """Rows on the left, and the entropy of both sides (`search_sides` counts the same way)."""
    n_left[:] = 0
    left = 0
    rows = 0
    for b in range(right.shape[0]):
        w = times[low + b]
        if w > 0:
            rows += w
            if right[b] == 0:
                n_left[which[low + b]] += w
                left += w
    value = xlogx(left, table) + xlogx(rows - left, table)
    for c in range(n_left.shape[0]):
        value -= xlogx(n_left[c], table) + xlogx(total[c] - n_left[c], table)
    return left, value


@routine
def scaled_rows(
    tree: Tree, z: NDArray[np.float32], order: NDArray[np.int32], low: int, high: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The rows of a node less their mean, in the tree's metric, and that mean (one row)."""
    width = tree.cen.shape[1]
    mean = np.zeros((1, width), np.float32)
    for b in range(low, high):
        add_times(mean, 0, z, order[b], np.float32(1.0))
    share = np.float32(1.0) / np.float32(high - low)
    for f in range(width):
        mean[0, f] *= share
    u = np.empty((high - low, width), np.float32)
    for b in range(low, high):
        for f in range(width):
            u[b - low, f] = (z[order[b], f] - mean[0, f]) * np.sqrt(tree.metric[0, f])
    return u, mean


@kernel
def steps_of(n: int, p: Record) -> int:
    """Steps of descent for so many rows."""
    return int(p.svm_passes * min(max(n, _STEPS[0]), _STEPS[1]))


@kernel
def write_plane(
    tree: Tree, row: int, plane: NDArray[np.float32], bias: float, mean: NDArray[np.float32]
) -> None:
    """Store a plane of scaled rows as one of unscaled rows: left is where x·cen > half."""
    width = tree.cen.shape[1]
    for f in range(width):
        tree.cen[row, f] = clipped(plane[0, f] * np.sqrt(tree.metric[0, f]))
    tree.half[row] = clipped_float32(dot(mean, 0, tree.cen, row) - bias)
    tree.side[row] = 0
    tree.label[row] = -1


@routine
def split_plane(
    tree: Tree,
    i: int,
    rows: NodeRows,
    low: int,
    high: int,
    seen: int,
    total: int,
    k: int,
    n_centroids: int,
    p: Record,
    start: np.uint64,
    table: NDArray[np.int64],
) -> bool:
    """Try to split node `i` by a plane; `rows.cell` gets the side of each row."""
    z, order, which, times, cell = rows.z, rows.order, rows.which, rows.times, rows.cell
    info = tree.info[0]
    n = high - low
    width = tree.cen.shape[1]
    u, mean = scaled_rows(tree, z, order, low, high)
    weight = times[low:high]
    steps = steps_of(n, p)
    of_class = np.zeros(seen, np.int32)
    for b in range(low, high):
        if times[b] > 0:
            of_class[which[b]] += times[b]
    least = xlogx(total, table)
    for c in range(seen):
        least -= xlogx(of_class[c], table)
    side = np.empty(seen, np.float32)
    sign = np.zeros(n, np.float32)
    plane = np.empty((1, width), np.float32)
    right = np.empty(n, np.int32)
    n_left = np.zeros(seen, np.int32)
    row = info.n_rows
    found = False
    for a in range(p.candidates):
        key = rng.mix(start + np.uint64(a + 1) * rng.GOLDEN)
        _draw_signs(key, side)
        for b in range(n):
            sign[b] = side[which[low + b]] if weight[b] > 0 else np.float32(0.0)
        plane[:] = 0
        bias = descend_hinge(u, sign, weight, steps, p.svm_penalty, rng.mix(key), plane, 0.0)
        for b in range(n):
            right[b] = 0 if dot(u, b, plane, 0) + np.float32(bias) > 0 else 1
        left, value = split_value(right, which, times, low, n_left, of_class, table)
        if left > p.mu and total - left > p.mu and value < least:
            least = value
            found = True
            write_plane(tree, row, plane, bias, mean)
    if not found:
        return False
    # the stored plane decides where rows go: rounding may put one on the other side
    for b in range(low, high):
        cell[b] = 0 if dot(z, order[b], tree.cen, row) > tree.half[row] else 1
    left, value = split_value(cell[low:high], which, times, low, n_left, of_class, table)
    if left <= p.mu or total - left <= p.mu:
        return False
    tree.node[i].first = row
    tree.node[i].k = 1
    info.n_rows += 1
    return True


@kernel
def _draw_signs(key: np.uint64, side: NDArray[np.float32]) -> None:
    """A random side for every class, both sides with at least one."""
    n = side.shape[0]
    up = 0
    for c in range(n):
        side[c] = np.float32(1.0) if rng.uniform(key, c) < 0.5 else np.float32(-1.0)
        up += side[c] > 0
    if up == 0:
        side[rng.below(key, n, n)] = np.float32(1.0)
    elif up == n:
        side[rng.below(key, n, n)] = np.float32(-1.0)
