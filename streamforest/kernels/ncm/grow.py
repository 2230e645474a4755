"""Growing an NCM tree: from the rows of one leaf to a subtree.

Ristin 2016, section 3.4: a node draws some of the classes it sees, takes their means at the node as
centroids, and sends each row to the side of its nearest centroid; sides are chosen by information gain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.array_table import smallest, unowned
from streamforest.kernels.core.by_address import CalledByAddress
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.simd_dot import add_times, dot, through
from streamforest.kernels.ncm.layout import (
    PARAMS,
    NodeRows,
    Record,
    TrainingRows,
    Tree,
    clipped,
    clipped_float32,
    nearest,
)
from streamforest.kernels.ncm.leaves import link, new_leaf
from streamforest.kernels.ncm.side_search import gather_cells, search_sides

FITS, NODES, ROWS, HIST = range(4)
"""Which array is too small for what comes next."""

_P, _TABLE = np.zeros(1, PARAMS), np.zeros(0, np.int64)
_Z, _INTS = np.zeros((0, 0), np.float32), np.zeros(0, np.int32)


def _split_arguments() -> tuple[Any, ...]:
    rows = NodeRows(_Z, *[_INTS] * 7)
    return smallest(Tree), 0, rows, 0, 0, 0, 0, 0, 0, _P[0], np.uint64(0), _TABLE


def _grow_arguments() -> tuple[Any, ...]:
    training = TrainingRows(_Z, *[_INTS] * 4)
    return smallest(Tree), 0, False, training, _P[0], 0, 0, _TABLE, 0


SPLITS = CalledByAddress(types.boolean, _split_arguments)
"""Ways to split a node: `split_nearest`, `svm.split_plane`, `regularised.split_regularised`."""
GROW = CalledByAddress(types.int64, _grow_arguments)
"""`grow`, for kernels."""
_call_split = SPLITS.call


@routine
def grow(
    tree: Tree,
    top: int,
    fresh: bool,
    training: TrainingRows,
    p: Record,
    n_centroids: int,
    n_classes: int,
    table: NDArray[np.int64],
    split_address: int,
) -> int:
    """Grow a subtree at leaf `top` from `training` rows: every split that can be made is made.

    `split_address` is that of one of `SPLITS`. With `fresh` the leaf's own histogram and rows are made anew
    as well. Returns FITS, or which array is too small: nothing has changed then, and the same call after
    enlarging gives the same subtree.
    """
    tree = unowned(tree)
    info = tree.info[0]
    nodes, rows, hist, tests = info.n_nodes, info.n_rows, info.hist_top, info.draws
    label, in_bag = training.label, training.times  # in loops a field of a tuple is slower
    m = training.slot.shape[0]
    order = np.arange(m).astype(np.int32)
    spare = np.empty(m, np.int32)
    cell = np.empty(m, np.int32)
    which = np.empty(m, np.int32)
    times = np.empty(m, np.int32)
    leaf_of = np.full(m, top, np.int32)
    place = np.full(n_classes, -1, np.int32)  # index of a class among those of the node
    present = np.empty(min(m, n_classes), np.int32)
    n_of = np.empty(min(m, n_classes), np.int32)
    node_rows = NodeRows(training.z, training.upper, order, which, times, cell, present, n_of)
    stack = np.empty((m + 2, 3), np.int32)
    stack[0, 0] = top
    stack[0, 1] = 0
    stack[0, 2] = m
    depth = 1
    short = FITS
    while depth > 0 and short == FITS:
        depth -= 1
        i, low, high = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        here = tree.node[i]
        seen = 0
        total = 0
        for b in range(low, high):
            w = in_bag[order[b]]
            times[b] = w
            if w > 0:
                y = label[order[b]]
                if place[y] < 0:
                    place[y] = seen
                    present[seen] = y
                    n_of[seen] = 0
                    seen += 1
                which[b] = place[y]
                n_of[place[y]] += w
                total += w
        tested = False
        split = False
        k = 1 if p.svm else max(2, n_centroids if p.sets else min(n_centroids, seen))
        fits = info.n_nodes + 2 <= p.max_nodes and info.n_rows + k <= p.max_rows
        if seen >= 2 and total > 2 * p.mu and fits:
            if info.n_nodes + 2 > tree.node.shape[0]:
                short = NODES
                break
            if info.n_rows + k > tree.half.shape[0]:
                short = ROWS
                break
            tested = True
            start = rng.key(info.seed, rng.NCM_SPLIT, info.draws)
            info.draws += 1
            split = _call_split(
                split_address,
                (tree, i, node_rows, low, high, seen, total, k, n_centroids, p, start, table),
            )
        if split:
            here.left = info.n_nodes
            new_leaf(tree, info.n_nodes)
            new_leaf(tree, info.n_nodes + 1)
            info.n_nodes += 2
            middle = _partition(order, cell, low, high, spare)
            stack[depth, 0] = here.left
            stack[depth, 1] = low
            stack[depth, 2] = middle
            stack[depth + 1, 0] = here.left + 1
            stack[depth + 1, 1] = middle
            stack[depth + 1, 2] = high
            depth += 2
        else:
            if (fresh or i != top) and not _fill(tree, i, present, n_of, seen, total):
                short = HIST
            here.due = total + max(2, total // 2) if tested else 0
            for b in range(low, high):
                leaf_of[order[b]] = i
        for c in range(seen):
            place[present[c]] = -1
    if short != FITS:
        here = tree.node[top]
        here.left, here.first, here.k = -1, 0, 0
        info.n_nodes, info.n_rows, info.hist_top, info.draws = nodes, rows, hist, tests
        return short
    here = tree.node[top]
    if here.left >= 0:
        here.n, here.hist, here.room, here.n_classes, here.due = 0, 0, 0, 0, 0
    elif not fresh:
        return FITS
    here.head = -1
    for a in range(m):
        link(tree, leaf_of[a], training.slot[a])
    return FITS


@kernel
def _fill(
    tree: Tree,
    i: int,
    present: NDArray[np.int32],
    n_of: NDArray[np.int32],
    seen: int,
    total: int,
) -> bool:
    """Write the histogram of a new leaf; False if the arena is full."""
    info = tree.info[0]
    room = max(2, seen)
    if info.hist_top + 2 * room > tree.hist.shape[0]:
        return False
    here = tree.node[i]
    here.hist = info.hist_top
    here.room = room
    here.n_classes = seen
    here.n = total
    info.hist_top += 2 * room
    for c in range(seen):  # sorted by class
        k = c
        while k > 0 and tree.hist[here.hist + k - 1] > present[c]:
            tree.hist[here.hist + k] = tree.hist[here.hist + k - 1]
            tree.hist[here.hist + room + k] = tree.hist[here.hist + room + k - 1]
            k -= 1
        tree.hist[here.hist + k] = present[c]
        tree.hist[here.hist + room + k] = n_of[c]
    return True


@kernel
def _partition(
    order: NDArray[np.int32], cell: NDArray[np.int32], low: int, high: int, spare: NDArray[np.int32]
) -> int:
    """Put rows of side 0 first, both sides in their order; returns where the second begins."""
    middle = low
    rest = 0
    for b in range(low, high):  # written to both sides: a branch would be mispredicted
        row = order[b]
        order[middle] = row
        spare[rest] = row
        right = cell[b]
        middle += 1 - right
        rest += right
    for b in range(rest):
        order[middle + b] = spare[b]
    return middle


@kernel
def to_metric(tree: Tree, mean: NDArray[np.float32], row: int) -> None:
    """Write centroids to rows of the tree from `row` on, in the tree's metric."""
    n, width = mean.shape
    if tree.metric.shape[0] == 1:
        for j in range(n):
            for f in range(width):
                # never -0.0 where a column has no weight: bits must not depend on the width
                tree.cen[row + j, f] = clipped(mean[j, f] * tree.metric[0, f] + np.float32(0.0))
    else:
        through(mean, 0, n, tree.metric, tree.cen, row)
        for j in range(n):  # rows may be far larger than those that the metric was made for
            for f in range(width):
                tree.cen[row + j, f] = clipped(tree.cen[row + j, f])
    for j in range(n):
        tree.half[row + j] = clipped_float32(0.5 * dot(mean, j, tree.cen, row + j))


@routine
def split_nearest(
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
    """Try to split node `i` by `k` class means; `rows.cell` gets the side of each row."""
    tree, rows = unowned(tree), unowned(rows)
    order, which, times, cell = rows.order, rows.which, rows.times, rows.cell
    info = tree.info[0]
    z, cen, half = rows.z, tree.cen, tree.half
    width = cen.shape[1]
    first = info.n_rows
    drawn = np.arange(seen).astype(np.int32)
    for j in range(k):
        other = j + rng.below(start, j, seen - j)
        drawn[j], drawn[other] = drawn[other], drawn[j]
    row_of = np.full(seen, -1, np.int32)
    for j in range(k):
        row_of[drawn[j]] = j
    mean = np.zeros((k, width), np.float32)
    for b in range(low, high):
        w = np.float32(times[b])
        if w > 0:
            j = row_of[which[b]]
            if j >= 0:
                add_times(mean, j, z, order[b], w)
    for j in range(k):
        share = np.float32(1.0) / np.float32(rows.n_of[drawn[j]])
        for f in range(width):
            mean[j, f] *= share
        tree.label[first + j] = rows.present[drawn[j]]
    to_metric(tree, mean, first)
    best = np.zeros(k, np.uint8)
    if k == 2 and p.planes:
        for f in range(width):
            cen[first, f] -= cen[first + 1, f]
        half[first] -= half[first + 1]
        tree.side[first] = 0
        tree.label[first] = -1
        for b in range(low, high):
            cell[b] = 0 if dot(z, order[b], cen, first) > half[first] else 1
        best[1] = 1
    else:
        for b in range(low, high):
            cell[b] = nearest(z, order[b], cen, half, first, k)
    cells = gather_cells(cell[low:high], which[low:high], times[low:high], high - low, k, seen)
    sides = rng.mix(start)
    if k == 2 and p.planes:
        if not search_sides(cells, p.mu, 1, 0, sides, table, best):
            return False
        tree.node[i].k = 1
        info.n_rows += 1
    else:
        if not search_sides(cells, p.mu, p.assignments, p.starts, sides, table, best):
            return False
        for j in range(k):
            tree.side[first + j] = best[j]
        for b in range(low, high):
            cell[b] = best[cell[b]]
        tree.node[i].k = k
        info.n_rows += k
    tree.node[i].first = first
    return True
