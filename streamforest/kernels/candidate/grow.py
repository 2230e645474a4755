"""How trees grow: a leaf is split at a candidate, and the fringe takes in the leaves it can hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.fringe import growth, leaf_bytes, live_rows, n_dimensions
from streamforest.kernels.candidate.layout import (
    Trees,
    add_to_totals,
    clear_candidates,
    new_leaf,
    vote,
)
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.operations import LEARN, PREDICT

# What an arena lacks, in the order of the `want` array that kernels fill in before they return.
WANT_NODES, WANT_HIST, WANT_BLOCK, WANT_POINT, WANT_CLASSES = range(5)
UNBOUNDED = (1 << 62) - 1


@kernel
def has_room(
    trees: Trees, t: int, i: int, y: int, m: int, streams: int, want: NDArray[np.int64]
) -> bool:
    """Whether everything that one event of class `y` at leaf `i` can cause fits into the arrays.

    Asked before anything is changed: if not, `want` says how much is needed, the caller returns, the
    arrays are enlarged and the same row is tried again. The answer is on the safe side; how large
    the arrays are never changes a result.
    """
    tree = trees.tree[t]
    leaf = trees.leaf[t, i]
    want[WANT_NODES] = tree.n_nodes
    want[WANT_HIST] = tree.hist_top + 2 * max(4, 2 * leaf.room) + 4 * (leaf.rows + 1)
    want[WANT_BLOCK] = tree.block_top
    want[WANT_POINT] = tree.point_top
    if leaf.active:
        want[WANT_NODES] += 2
        want[WANT_BLOCK] += growth(trees, t, i, y, m, streams)
        if leaf.block < 0:
            want[WANT_POINT] += leaf.n_dims * m
    return bool(
        want[WANT_NODES] <= trees.node.shape[1]
        and want[WANT_HIST] <= trees.hist.shape[1]
        and want[WANT_BLOCK] <= trees.block.shape[1]
        and want[WANT_POINT] <= trees.point.shape[1]
    )


@kernel
def deactivate(trees: Trees, t: int, i: int, m: int, streams: int) -> None:
    """Leaf `i` gives back its place in the fringe."""
    tree = trees.tree[t]
    leaf = trees.leaf[t, i]
    tree.n_active -= 1
    tree.fringe_bytes -= leaf_bytes(leaf.n_dims, m, streams, live_rows(leaf))
    clear_candidates(leaf)


@kernel
def _fill_child(trees: Trees, t: int, i: int, child: int, at: int, counts: int) -> None:
    """The histogram of a new leaf: entry `at` of each class row of its parent's block."""
    parent = trees.leaf[t, i]
    leaf = trees.leaf[t, child]
    tree = trees.tree[t]
    classes = parent.block + 2 * parent.n_dims
    rows = classes + parent.row_room + counts
    k = 0
    for r in range(parent.rows):
        if trees.block[t, rows + counts * r + at] > 0:
            k += 1
    leaf.hist = tree.hist_top
    leaf.room = k
    tree.hist_top += 2 * k
    largest = 0
    for r in range(parent.rows):
        n = trees.block[t, rows + counts * r + at]
        if n == 0:
            continue
        y = trees.block[t, classes + r]
        trees.hist[t, leaf.hist + leaf.n_classes] = y
        trees.hist[t, leaf.hist + leaf.room + leaf.n_classes] = n
        leaf.n_classes += 1
        leaf.n += n
        if n > largest or (n == largest and y < leaf.best):
            largest = n
            leaf.best = y
    leaf.errors = leaf.n - largest


@kernel
def split(
    trees: Trees,
    t: int,
    i: int,
    c: int,
    m: int,
    streams: int,
    fed_by: int,
    categorical: NDArray[np.uint8],
) -> None:
    """Leaf `i` becomes a node that splits at its candidate `c`; both children start inactive.

    `fed_by` is the stream whose counts become the children's histograms: the estimation stream, if
    there is one. The children's lives, as far as ŝ is concerned, began with the candidate.
    """
    tree = trees.tree[t]
    leaf = trees.leaf[t, i]
    n_cands = leaf.n_dims * m
    totals = leaf.block + 2 * leaf.n_dims + leaf.row_room
    feature = trees.block[t, leaf.block + c // m]
    left = tree.n_nodes
    tree.n_nodes += 2
    born = trees.born[t, leaf.points + c]
    depth = trees.node[t, i].depth + 1
    for side in range(2):
        new_leaf(trees, t, left + side, depth, born)
        _fill_child(
            trees, t, i, left + side, 2 * n_cands * fed_by + 2 * c + side, 2 * streams * n_cands
        )
    node = trees.node[t, i]
    node.threshold = trees.point[t, leaf.points + c]
    node.feature = feature
    node.left = left
    node.categorical = categorical[feature]
    node.missing_right = (
        1 if trees.block[t, totals + 2 * c + 1] > trees.block[t, totals + 2 * c] else 0
    )
    deactivate(trees, t, i, m, streams)
    leaf.n_classes = 0
    leaf.room = 0
    leaf.n = 0
    leaf.best = -1
    leaf.errors = 0
    leaf.born = 0


@kernel
def _most_promising(trees: Trees, t: int, first: int) -> int:
    """The inactive leaf with the largest ŝ = errors / estimation events since its birth.

    Each leaf's ŝ falls at its own rate, so no order could be kept: a scan, and an exact comparison
    of the fractions. The older leaf wins a tie. (Denil 2013, section 3.6.)
    """
    tree = trees.tree[t]
    best = -1
    best_errors = 0
    best_seen = 1
    for i in range(first, tree.n_nodes):
        leaf = trees.leaf[t, i]
        if leaf.active or trees.node[t, i].feature >= 0:
            continue
        seen = max(1, tree.n_estimation - leaf.born)
        if best < 0 or leaf.errors * best_seen > best_errors * seen:
            best = i
            best_errors = leaf.errors
            best_seen = seen
    return best


@kernel
def _first_inactive(trees: Trees, t: int, first: int, max_depth: int) -> int:
    """The oldest inactive leaf that may still be split."""
    for i in range(first, trees.tree[t].n_nodes):
        node = trees.node[t, i]
        if not trees.leaf[t, i].active and node.feature < 0 and node.depth < max_depth:
            return i
    return -1


@kernel
def fill_fringe(
    trees: Trees,
    t: int,
    n_features: int,
    lam: float,
    dims: int,
    m: int,
    streams: int,
    max_depth: int,
    max_active: int,
    max_bytes: int,
    max_nodes: int,
) -> None:
    """Activate inactive leaves while the fringe has room.

    Two streams: the most promising leaf comes first, with 1 + Poisson(`lam`) dimensions. One stream:
    the oldest first, with `dims`. One leaf may always be active, or a small bound would end all
    growth. A tree that has all its nodes gives its whole fringe back: nothing could come of it.
    """
    tree = trees.tree[t]
    if tree.n_nodes + 2 > max_nodes:
        if tree.n_active > 0:
            for i in range(tree.n_nodes):
                if trees.leaf[t, i].active:
                    deactivate(trees, t, i, m, streams)
        return
    if n_features == 0:
        return
    while tree.n_active < max_active:
        n_inactive = (tree.n_nodes + 1) // 2 - tree.n_active
        if n_inactive == 0:
            return
        # this is called after a split: if no more than two leaves wait, they are the newest two
        first = max(0, tree.n_nodes - 2) if n_inactive <= 2 else 0
        i = (
            _most_promising(trees, t, first)
            if streams == 2
            else _first_inactive(trees, t, first, max_depth)
        )
        if i < 0:
            return
        leaf = trees.leaf[t, i]
        n_dims = (
            n_dimensions(tree.seed, i, lam, n_features) if streams == 2 else min(dims, n_features)
        )
        reserved = max(1, leaf.n_classes)
        size = leaf_bytes(n_dims, m, streams, reserved)
        if tree.n_active > 0 and tree.fringe_bytes + size > max_bytes:
            return
        leaf.active = 1
        leaf.n_dims = n_dims
        leaf.drawn_from = n_features
        leaf.reserved = reserved
        tree.n_active += 1
        tree.fringe_bytes += size


@kernel
def answer_row(
    trees: Trees,
    t: int,
    i: int,
    y: int,
    op: int,
    hard: int,
    balanced: int,
    totals: NDArray[np.int64],
    m: int,
    streams: int,
    want: NDArray[np.int64],
    votes: NDArray[np.int64],
) -> bool:
    """Answer a row that falls into leaf `i`, if `op` asks for it.

    False, before anything has changed, if there is no room to learn the row, with `want` filled in.
    """
    if op & LEARN:
        want[WANT_CLASSES] = y + 1 if balanced else 0
        if not has_room(trees, t, i, y, m, streams, want):
            return False
        if want[WANT_CLASSES] > totals.shape[1]:
            return False
    if op & PREDICT:
        vote(trees, t, i, hard, balanced, totals, votes)
    return True


@kernel
def split_and_total(
    trees: Trees,
    t: int,
    i: int,
    c: int,
    m: int,
    streams: int,
    fed_by: int,
    categorical: NDArray[np.uint8],
    balanced: int,
    totals: NDArray[np.int64],
) -> None:
    """`split`, with the totals of classes kept up to date: children need not inherit every event."""
    if not balanced:
        split(trees, t, i, c, m, streams, fed_by, categorical)
        return
    add_to_totals(trees, t, i, -1, totals)
    split(trees, t, i, c, m, streams, fed_by, categorical)
    left = trees.node[t, i].left
    add_to_totals(trees, t, left, 1, totals)
    add_to_totals(trees, t, left + 1, 1, totals)
