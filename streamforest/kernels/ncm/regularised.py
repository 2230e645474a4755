"""The split of a regularised NCM forest, with labels at two levels (Ristin et al. 2015, sections 3.2 and 4).

Many sets of class means are tried, of 2 to c·√classes each, and many assignments of sides for each set. The
score is U_fine + λ·U_coarse − λ_reg·|set|: information gains in nats over the rows that carry a label of that
level, less what a larger set costs. (The sign of the last term in equation 6 is a slip.) With λ > 0 the means
of categories are drawn from as well.

Means of all classes, and all products of rows and means, are computed once for a node: a set only looks them
up.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.array_table import unowned
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.entropy import UNIT, xlogx
from streamforest.kernels.core.simd_dot import add_times, dot, through
from streamforest.kernels.ncm.layout import NodeRows, Record, Tree, clipped, clipped_float32
from streamforest.kernels.ncm.side_search import (
    Cells,
    draw_sides,
    flip,
    gather_cells,
    start_of,
)

_NATS = math.log(2.0) * UNIT
_MAX_PRODUCTS = 1 << 25  # of rows and means: 128 MB; beyond it means are drawn first
_NO_GAIN = 1e-9


@kernel
def category_of(code: int) -> int:
    """The category in a row's code: as it is, -1 for none, or -2 - category of a row without a class."""
    return -2 - code if code < -1 else code


@kernel
def _entropy(cells: Cells, table: NDArray[np.int64]) -> int:
    """Of all rows together, in units of the table."""
    value = xlogx(cells.rows, table)
    for c in range(cells.total.shape[0]):
        value -= xlogx(cells.total[c], table)
    return value


@routine
def _centroids(
    mean: NDArray[np.float32], metric: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The means in a tree's metric, and what a nearest one is told by; as `grow.to_metric`."""
    n, width = mean.shape
    cen = np.zeros((n, width), np.float32)
    half = np.zeros(n, np.float32)
    if metric.shape[0] == 1:
        for j in range(n):
            for f in range(width):
                cen[j, f] = clipped(mean[j, f] * metric[0, f] + np.float32(0.0))
    else:
        through(mean, 0, n, metric, cen, 0)
        for j in range(n):
            for f in range(width):
                cen[j, f] = clipped(cen[j, f])
    for j in range(n):
        half[j] = clipped_float32(0.5 * dot(mean, j, cen, j))
    return cen, half


@routine
def search_both(
    fine: Cells,
    coarse: Cells,
    weight: float,
    assignments: int,
    starts: int,
    start: np.uint64,
    table: NDArray[np.int64],
    best: NDArray[np.uint8],
) -> float:
    """Fill `best` with the sides of the largest U_fine + `weight`·U_coarse, and return it.

    So many random `assignments` are tried, or all of them if there are no more; 0: single cells change sides
    as long as that is better, from `starts` random assignments.
    """
    k = best.shape[0]
    side = np.zeros(k, np.uint8)
    left_fine = np.zeros(fine.total.shape[0], np.int32)
    left_coarse = np.zeros(coarse.total.shape[0], np.int32)
    per_fine = _NATS / max(fine.rows, 1)
    per_coarse = weight * _NATS / max(coarse.rows, 1)
    whole_fine, whole_coarse = _entropy(fine, table), _entropy(coarse, table)
    most = -1.0
    every = k <= 16 and (1 << (k - 1)) - 1 <= max(assignments, 1)
    tries = (1 << (k - 1)) - 1 if every else max(assignments, starts)
    for a in range(tries):
        if every:
            for j in range(k):
                side[j] = np.uint8(((a + 1) >> j) & 1)
        else:
            draw_sides(start, a, side)
        n_fine, value_fine = start_of(fine, side, left_fine, table)
        n_coarse, value_coarse = start_of(coarse, side, left_coarse, table)
        gain = (whole_fine - value_fine) * per_fine + (whole_coarse - value_coarse) * per_coarse
        stale, j = 0, 0
        for _ in range(8 * k if assignments == 0 else 0):
            if stale == k:
                break
            sign = 1 if side[j] == 1 else -1
            change_fine = flip(fine, j, sign, n_fine, left_fine, table)
            change_coarse = flip(coarse, j, sign, n_coarse, left_coarse, table)
            if change_fine * per_fine + change_coarse * per_coarse < 0:
                side[j] = 1 - side[j]
                n_fine += sign * fine.size[j]
                n_coarse += sign * coarse.size[j]
                value_fine += change_fine
                value_coarse += change_coarse
                for e in range(fine.start[j], fine.start[j + 1]):
                    left_fine[fine.which[e]] += sign * fine.times[e]
                for e in range(coarse.start[j], coarse.start[j + 1]):
                    left_coarse[coarse.which[e]] += sign * coarse.times[e]
                gain = (whole_fine - value_fine) * per_fine
                gain += (whole_coarse - value_coarse) * per_coarse
                stale = 0
            else:
                stale += 1
            j = j + 1 if j + 1 < k else 0
        if gain > most:
            most = gain
            best[:] = side
    return most


@routine
def split_regularised(
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
    """Try to split node `i` by at most `n_centroids`; `rows.cell` gets the side of each row.

    The node stays a leaf if the split with the best score leaves µ rows or fewer on a side (2015, section
    3.1).
    """
    z, upper, order, which = rows.z, rows.upper, rows.order, rows.which
    times, present, cell = rows.times, rows.present, rows.cell
    tree = unowned(tree)
    info = tree.info[0]
    m = high - low
    width = tree.cen.shape[1]
    # classes with fine labels, and categories, by their place in the node
    fine_of = np.full(seen, -1, np.int32)
    n_fine, n_coarse, largest = 0, 0, -1
    for b in range(low, high):
        largest = max(largest, category_of(upper[order[b]]))
    coarse_of = np.full(largest + 1, -1, np.int32)
    in_fine = np.full(m, -1, np.int32)
    in_coarse = np.full(m, -1, np.int32)
    fine_class = np.empty(seen, np.int32)
    for b in range(low, high):
        if times[b] == 0:
            continue
        code = upper[order[b]]
        if code >= -1:
            c = which[b]
            if fine_of[c] < 0:
                fine_of[c] = n_fine
                fine_class[n_fine] = present[c]
                n_fine += 1
            in_fine[b - low] = fine_of[c]
        g = category_of(code)
        if p.lambda_coarse > 0 and g >= 0 and (code < -1 or not p.joint):
            if coarse_of[g] < 0:
                coarse_of[g] = n_coarse
                n_coarse += 1
            in_coarse[b - low] = coarse_of[g]
    pool = n_fine + n_coarse
    if pool < 2 or (n_fine < 2 and n_coarse < 2):
        return False
    drawn = np.arange(pool).astype(np.int32)
    draws = 0
    if m * pool > _MAX_PRODUCTS:
        few = max(2, _MAX_PRODUCTS // m)
        for j in range(few):
            other = j + rng.below(start, draws, pool - j)
            drawn[j], drawn[other] = drawn[other], drawn[j]
            draws += 1
        pool = few
    place = np.full(n_fine + n_coarse, -1, np.int32)
    for j in range(pool):
        place[drawn[j]] = j
    mean = np.zeros((pool, width), np.float32)
    count = np.zeros(pool, np.int64)
    times_fine = np.zeros(m, np.int32)
    times_coarse = np.zeros(m, np.int32)
    for b in range(m):
        w = times[low + b]
        if w == 0:
            continue
        if in_fine[b] >= 0:
            times_fine[b] = w
            j = place[in_fine[b]]
            if j >= 0:
                add_times(mean, j, z, order[low + b], np.float32(w))
                count[j] += w
        if in_coarse[b] >= 0:
            times_coarse[b] = w
            j = place[n_fine + in_coarse[b]]
            if j >= 0:
                add_times(mean, j, z, order[low + b], np.float32(w))
                count[j] += w
    for j in range(pool):
        share = np.float32(1.0) / np.float32(count[j])
        for f in range(width):
            mean[j, f] *= share
    cen, half = _centroids(mean, tree.metric)
    product = np.empty((m, pool), np.float32)
    for b in range(m):
        for j in range(pool):
            product[b, j] = half[j] - dot(z, order[low + b], cen, j)
    most_centroids = max(2, min(n_centroids, pool))
    member = np.arange(pool).astype(np.int32)
    found = np.zeros(m, np.int32)
    best_cell = np.zeros(m, np.int32)
    best_member = np.zeros(most_centroids, np.int32)
    best_side = np.zeros(most_centroids, np.uint8)
    best_k, best_score, best_gain = 0, -np.inf, 0.0
    for s in range(p.sets):
        size = 2
        if most_centroids > 2:
            size += rng.below(start, draws, most_centroids - 1)
            draws += 1
        for j in range(size):
            other = j + rng.below(start, draws, pool - j)
            draws += 1
            member[j], member[other] = member[other], member[j]
        for b in range(m):
            near, least = 0, product[b, member[0]]
            for j in range(1, size):
                v = product[b, member[j]]
                if v < least:
                    near, least = j, v
            found[b] = near
        fine = gather_cells(found, in_fine, times_fine, m, size, n_fine)
        coarse = gather_cells(found, in_coarse, times_coarse, m, size, n_coarse)
        side = np.zeros(size, np.uint8)
        gain = search_both(
            fine,
            coarse,
            p.lambda_coarse,
            p.assignments,
            p.starts,
            rng.mix(start + np.uint64(s + 1)),
            table,
            side,
        )
        score = gain - p.lambda_reg * size
        if score > best_score:
            best_score, best_gain, best_k = score, gain, size
            best_cell[:] = found
            best_member[:size] = member[:size]
            best_side[:size] = side
    on_left, n_rows = 0, 0
    for b in range(m):
        n_rows += times[low + b]
        if best_side[best_cell[b]] == 0:
            on_left += times[low + b]
    if best_gain < _NO_GAIN or on_left <= p.mu or n_rows - on_left <= p.mu:
        return False
    first = info.n_rows
    for j in range(best_k):
        member_j = best_member[j]
        for f in range(width):
            tree.cen[first + j, f] = cen[member_j, f]
        tree.half[first + j] = half[member_j]
        tree.side[first + j] = best_side[j]
        kind = drawn[member_j]
        tree.label[first + j] = fine_class[kind] if kind < n_fine else -1
    for b in range(m):
        cell[low + b] = best_side[best_cell[b]]
    tree.node[i].first = first
    tree.node[i].k = best_k
    info.n_rows += best_k
    return True
