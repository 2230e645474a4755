"""Reuse subtree (RUST, Ristin 2016, section 4.4): a node takes in new classes and keeps its subtree.

Rows that now go to the other side are removed from their leaves and passed down again. Leaves with too few
rows are cut: the sibling of such a leaf replaces their parent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.simd_dot import add_times, dot
from streamforest.kernels.ncm.grow import FITS, HIST, ROWS, to_metric
from streamforest.kernels.ncm.layout import (
    Memory,
    Record,
    TrainingRows,
    Tree,
    descend,
    goes_right,
    times_in_bag,
)
from streamforest.kernels.ncm.leaves import count, hist_room, uncount
from streamforest.kernels.ncm.row_memory import fill_in
from streamforest.kernels.ncm.svm import (
    descend_hinge,
    scaled_rows,
    split_value,
    steps_of,
    write_plane,
)

_WORST = 1 << 62


@kernel
def _children_value(
    right: NDArray[np.int32],
    which: NDArray[np.int32],
    times: NDArray[np.int32],
    n_left: NDArray[np.int32],
    total: NDArray[np.int32],
    table: NDArray[np.int64],
) -> int:
    """Entropy of both sides; the largest value if one side is empty."""
    left, value = split_value(right, which, times, 0, n_left, total, table)
    rows = 0
    for c in range(total.shape[0]):
        rows += total[c]
    return value if 0 < left < rows else _WORST


@routine
def take_in(
    tree: Tree,
    i: int,
    training: TrainingRows,
    new: NDArray[np.int32],
    n_centroids: int,
    classes: int,
    p: Record,
    table: NDArray[np.int64],
) -> int:
    """Let node `i`, whose rows are `training`, take in the classes of `new`. FITS, or what is too small.

    By reservoir sampling the mean of a new class is ignored, added or replaces another; its side is the
    one with the larger gain. Old centroids and sides stay as they are. A plane is fitted again, starting
    from what it is.
    """
    info = tree.info[0]
    room = n_centroids + new.shape[0] if not p.svm else 1
    if info.n_rows + room > tree.half.shape[0]:
        return ROWS
    place = np.full(classes, -1, np.int32)
    m = training.slot.shape[0]
    which = np.full(m, -1, np.int32)
    seen = 0
    for a in range(m):
        if training.times[a] > 0:
            y = training.label[a]
            if place[y] < 0:
                place[y] = seen
                seen += 1
            which[a] = place[y]
    any_new = False
    for c in range(new.shape[0]):
        any_new = any_new or place[new[c]] >= 0
    if not any_new:
        return FITS
    total = np.zeros(seen, np.int32)
    for a in range(m):
        if training.times[a] > 0:
            total[which[a]] += training.times[a]
    start = rng.key(info.seed, rng.NCM_SPLIT, info.draws)
    info.draws += 1
    if p.svm:
        _refit_plane(tree, i, training, which, seen, total, new, place, p, start, table)
    else:
        _refit_means(tree, i, training, which, seen, total, new, place, n_centroids, start, table)
    return FITS


@routine
def _refit_means(
    tree: Tree,
    i: int,
    training: TrainingRows,
    which: NDArray[np.int32],
    seen: int,
    total: NDArray[np.int32],
    new: NDArray[np.int32],
    place: NDArray[np.int32],
    n_centroids: int,
    start: np.uint64,
    table: NDArray[np.int64],
) -> None:
    info = tree.info[0]
    here = tree.node[i]
    m = training.slot.shape[0]
    width = tree.cen.shape[1]
    first, k = here.first, here.k
    top = max(n_centroids, k)
    base = info.n_rows  # the node's centroids move here, where there is room for more
    for j in range(k):
        tree.half[base + j] = tree.half[first + j]
        tree.side[base + j] = tree.side[first + j]
        tree.label[base + j] = tree.label[first + j]
        for f in range(width):
            tree.cen[base + j, f] = tree.cen[first + j, f]
    far = np.empty((m, top), np.float32)
    for a in range(m):
        for j in range(k):
            far[a, j] = tree.half[base + j] - dot(training.z, a, tree.cen, base + j)
    known = seen
    for c in range(new.shape[0]):
        known -= place[new[c]] >= 0
    known = max(known, k)
    mean = np.empty((1, width), np.float32)
    right = np.empty(m, np.int32)
    n_left = np.zeros(seen, np.int32)
    for c in range(new.shape[0]):
        y = new[c]
        if place[y] < 0:
            continue
        known += 1
        if k < n_centroids:
            j = k
            k += 1
        else:
            j = rng.below(start, c, known)
            if j >= k:
                continue
        mean[:] = 0
        for a in range(m):
            if training.label[a] == y and training.times[a] > 0:
                w = np.float32(training.times[a])
                add_times(mean, 0, training.z, a, w)
        share = np.float32(1.0) / np.float32(total[place[y]])
        for f in range(width):
            mean[0, f] *= share
        to_metric(tree, mean, base + j)
        tree.label[base + j] = y
        for a in range(m):
            far[a, j] = tree.half[base + j] - dot(training.z, a, tree.cen, base + j)
        values = np.zeros(2, np.int64)
        for side in range(2):
            tree.side[base + j] = np.uint8(side)
            for a in range(m):
                best = 0
                for b in range(1, k):
                    if far[a, b] < far[a, best]:
                        best = b
                right[a] = tree.side[base + best]
            values[side] = _children_value(right, which, training.times, n_left, total, table)
        tree.side[base + j] = np.uint8(0) if values[0] <= values[1] else np.uint8(1)
    here.first = base
    here.k = k
    info.n_rows += k


@routine
def _refit_plane(
    tree: Tree,
    i: int,
    training: TrainingRows,
    which: NDArray[np.int32],
    seen: int,
    total: NDArray[np.int32],
    new: NDArray[np.int32],
    place: NDArray[np.int32],
    p: Record,
    start: np.uint64,
    table: NDArray[np.int64],
) -> None:
    """Two planes for each new class, one with it on either side; known classes keep their side.

    The side of a known class is not stored: it is the one that most of its rows go to.
    """
    info = tree.info[0]
    row = tree.node[i].first
    m = training.slot.shape[0]
    width = tree.cen.shape[1]
    order = np.arange(m).astype(np.int32)
    u, mean = scaled_rows(tree, training.z, order, 0, m)
    steps = steps_of(m, p)
    weight = np.zeros(m, np.int32)
    lean = np.zeros(seen)
    for a in range(m):
        if training.times[a] > 0:
            left = dot(training.z, a, tree.cen, row) > tree.half[row]
            lean[which[a]] += training.times[a] if left else -training.times[a]
    plane = np.zeros((1, width), np.float32)
    sign = np.zeros(m, np.float32)
    right = np.empty(m, np.int32)
    n_left = np.zeros(seen, np.int32)
    is_new = np.zeros(seen, np.bool_)
    for c in range(new.shape[0]):
        if place[new[c]] >= 0:
            is_new[place[new[c]]] = True
    spare = info.n_rows  # an unused row, for the better plane of two
    for c in range(new.shape[0]):
        y = place[new[c]]
        if y < 0:
            continue
        is_new[y] = False
        least = _WORST
        side = 1.0
        for way in range(2):
            lean[y] = 1.0 if way == 0 else -1.0
            for a in range(m):
                sign[a] = np.float32(0.0)
                weight[a] = 0
                if training.times[a] > 0 and not is_new[which[a]]:
                    weight[a] = training.times[a]
                    sign[a] = np.float32(1.0) if lean[which[a]] > 0 else np.float32(-1.0)
            bias = dot(mean, 0, tree.cen, row) - tree.half[row]
            for f in range(width):
                scale = np.sqrt(tree.metric[0, f])
                plane[0, f] = tree.cen[row, f] / scale if scale > 0 else np.float32(0.0)
            key = rng.mix(start + np.uint64(2 * c + way + 1) * rng.GOLDEN)
            bias = descend_hinge(u, sign, weight, steps, p.svm_penalty, key, plane, bias)
            for a in range(m):
                right[a] = 0 if dot(u, a, plane, 0) + np.float32(bias) > 0 else 1
            value = _children_value(right, which, training.times, n_left, total, table)
            if value < least:
                least = value
                side = lean[y]
                write_plane(tree, spare, plane, bias, mean)
        lean[y] = side
        if least < _WORST:
            tree.half[row] = tree.half[spare]
            for f in range(width):
                tree.cen[row, f] = tree.cen[spare, f]


@routine
def pass_again(
    tree: Tree, i: int, training: TrainingRows, place: NDArray[np.int32], end: int
) -> int:
    """Pass rows of node `i` down again that its split now sends to the other side. FITS, or HIST.

    `place` has the nodes' places in preorder; the places of the left subtree end before `end`. Only
    histograms and `leaf` are updated: `relink` makes the chains afterwards.
    """
    here = tree.node[i]
    for a in range(training.slot.shape[0]):
        slot = training.slot[a]
        right = goes_right(tree, here, training.z, a)
        was = 1 if place[tree.leaf[slot]] >= end else 0
        if right == was:
            continue
        leaf = descend(tree, here.left + right, training.z, a)
        if tree.info[0].hist_top + hist_room(tree.node[leaf]) > tree.hist.shape[0]:
            return HIST
        w = training.times[a]
        if w > 0:
            uncount(tree, tree.leaf[slot], training.label[a], w)
            count(tree, leaf, training.label[a], w)
        tree.leaf[slot] = leaf
    return FITS


@routine
def _find_small(tree: Tree, least: int) -> tuple[int, int]:
    """The uppermost leaf with fewer than `least` rows, and its parent; -1, -1: there is none."""
    queue = np.empty(tree.info[0].n_nodes, np.int32)
    queue[0] = 0
    size = 1
    a = 0
    while a < size:
        i = queue[a]
        a += 1
        left = tree.node[i].left
        if left < 0:
            continue
        for side in range(2):
            child = tree.node[left + side]
            if child.left < 0 and child.n < least:
                return left + side, i
        queue[size] = left
        queue[size + 1] = left + 1
        size += 2
    return -1, -1


@routine
def cut_small(
    tree: Tree,
    memory: Memory,
    slots: NDArray[np.int32],
    fill: NDArray[np.float32],
    least: int,
    bagged: int,
) -> int:
    """Cut leaves with fewer than `least` rows. FITS, or HIST: the same call then goes on.

    The sibling of such a leaf replaces their parent, and the leaf's rows go down from there.
    """
    info = tree.info[0]
    z = np.empty((1, tree.cen.shape[1]), np.float32)
    while True:
        leaf, parent = _find_small(tree, least)
        if leaf < 0:
            return FITS
        max_room = 4
        for i in range(info.n_nodes):
            max_room = max(max_room, tree.node[i].room)
        rows = 0
        for b in range(slots.shape[0]):
            rows += tree.leaf[slots[b]] == leaf
        if info.hist_top + 4 * max_room * rows > tree.hist.shape[0]:
            return HIST
        left = tree.node[parent].left
        sibling = left + 1 if leaf == left else left
        tree.node[parent] = tree.node[sibling]
        for b in range(slots.shape[0]):
            slot = slots[b]
            if tree.leaf[slot] == sibling:
                tree.leaf[slot] = parent
            elif tree.leaf[slot] == leaf:
                for f in range(z.shape[1]):
                    z[0, f] = memory.rows[slot, f]
                fill_in(z, fill)
                to = descend(tree, parent, z, 0)
                tree.leaf[slot] = to
                w = times_in_bag(info.seed, info.bag, memory.number[slot], bagged)
                if w > 0:
                    count(tree, to, memory.label[slot], w)


@routine
def relink(tree: Tree, slots: NDArray[np.int32]) -> None:
    """Make the chains of all leaves by `leaf`; slots are in the order of row numbers, chains newest first."""
    for i in range(tree.info[0].n_nodes):
        tree.node[i].head = -1
    for b in range(slots.shape[0]):
        slot = slots[b]
        i = tree.leaf[slot]
        head = tree.node[i].head
        tree.next[slot] = head
        tree.prev[slot] = -1
        if head >= 0:
            tree.prev[head] = slot
        tree.node[i].head = slot
