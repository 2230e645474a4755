"""A forest as arrays: nodes, leaves and their class histograms; how an event finds its leaf and votes.

Every field is documented here, once. All trees of a forest share each array (first axis: the tree), so
that one compiled call serves the whole forest; their rows never depend on each other, so any split of
the trees over threads gives the same bits. Variable-sized parts (class histograms, candidate splits)
live in per-tree arenas that only ever grow at the top; `arena.py` packs them anew when they are full.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.array_table import array
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.rng import GOLDEN, mix

Record = Any
"""One element of a structured array: mypy knows nothing of its fields."""

_TOP = np.uint64(63)
VOTE_UNIT = 4294967296.0
"""Votes are integers in units of 2⁻³², so that the order in which trees are added is free."""

TREE = np.dtype(
    [
        ("seed", "u8"),  # key of every random draw of this tree
        ("n_seen", "i8"),  # events learned, of whatever stream
        ("n_estimation", "i8"),  # estimation events among them: the clock of p̂
        ("n_nodes", "i8"),
        ("n_active", "i8"),  # leaves in the fringe
        ("fringe_bytes", "i8"),  # of live entries, see fringe.leaf_bytes
        ("n_oob", "i8"),  # online forest: out-of-bag events since the tree began
        ("oob_errors", "i8"),  # and how many of them the tree got wrong
        ("hist_top", "i8"),  # first unused entry of each arena
        ("block_top", "i8"),
        ("point_top", "i8"),
    ],
    align=True,
)

NODE = np.dtype(
    [
        ("threshold", "f8"),  # x <= threshold goes left; for categories see in_right_set
        ("feature", "i4"),  # -1 in a leaf
        ("left", "i4"),  # the right child is left + 1
        ("depth", "i4"),
        ("categorical", "u1"),
        ("missing_right", "u1"),  # where an event without the feature goes
    ],
    align=True,
)

LEAF = np.dtype(
    [
        # the class histogram: classes in hist[hist : hist + room], counts in the next `room` entries
        ("hist", "i8"),
        ("room", "i4"),
        ("n_classes", "i4"),
        ("n", "i8"),  # events in the histogram
        ("best", "i4"),  # its most frequent class, the first seen on a tie; -1: none
        ("active", "i4"),  # 1 while in the fringe
        # two streams: estimation events the leaf's own answer got wrong, see ŝ; one stream: events that
        # the histogram had when the leaf was born
        ("errors", "i8"),
        ("born", "i8"),  # the tree's n_estimation when the leaf's statistics began
        # the candidate splits, while active; see fringe.py
        ("block", "i8"),  # offset in `block`; -1: no event has come yet
        ("points", "i8"),  # offset in `point`, `score` and `born`
        ("n_dims", "i4"),  # candidate dimensions
        ("drawn_from", "i4"),  # number of features they are drawn from
        ("rows", "i4"),  # classes with a row
        ("row_room", "i4"),  # rows there is room for
        ("reserved", "i4"),  # rows counted against the bound from the start
        ("met", "i8"),  # events counted in the block
    ],
    align=True,
)


class Trees(NamedTuple):
    """The arrays of a forest. Entries beyond a tree's tops and `n_nodes` mean nothing."""

    tree: Annotated[NDArray[np.void], array(TREE, "trees")]
    node: Annotated[NDArray[np.void], array(NODE, "trees", "nodes")]
    leaf: Annotated[NDArray[np.void], array(LEAF, "trees", "nodes")]
    # classes and counts of leaves
    hist: Annotated[NDArray[np.int64], array(np.int64, "trees", "histogram entries")]
    # counts of candidate splits
    block: Annotated[NDArray[np.int32], array(np.int32, "trees", "block entries")]
    # of each candidate: where it splits; n·gain, in units of entropy.UNIT; and the tree's n_estimation
    # when it was created
    point: Annotated[NDArray[np.float64], array(np.float64, "trees", "candidates")]
    score: Annotated[NDArray[np.int64], array(np.int64, "trees", "candidates")]
    born: Annotated[NDArray[np.int64], array(np.int64, "trees", "candidates")]


class SharedArrays(NamedTuple):
    """What belongs to the forest and to no single tree, in both forests."""

    steps: Annotated[NDArray[np.int64], array(np.int64, "steps")]
    # rows of the batch that each tree is done with; and the leaf of the last one
    progress: Annotated[NDArray[np.int64], array(np.int64, "trees")]
    routes: Annotated[NDArray[np.int64], array(np.int64, "trees")]
    categorical: Annotated[NDArray[np.uint8], array(np.uint8, "known features")]
    # events of each class in all leaves of a tree; kept for balanced votes only
    totals: Annotated[NDArray[np.int64], array(np.int64, "trees", "totalled classes")]


@kernel
def in_right_set(code: float, point: float) -> int:
    """Whether a category goes right at a split of categories.

    Categories have no order, so `point` names a set of them: one value against all others (the code
    itself, 0 or more), which is best where values are few, or a random half (a negative number, the
    salt of a hash), which is best where they are many.
    """
    if point >= 0.0:
        return 0 if code == point else 1
    salt = np.uint64(np.int64(-point))
    bit = mix(salt + np.uint64(np.int64(code) + 1) * GOLDEN) >> _TOP
    return np.int64(bit)  # type: ignore[return-value]


@kernel
def goes_right(v: float, threshold: float, categorical: int, missing_right: int) -> int:
    """The side of a split an event goes to: 0 left, 1 right. NaN means the feature is missing."""
    if v != v:
        return missing_right
    if categorical:
        return in_right_set(v, threshold)
    return 0 if v <= threshold else 1


@kernel
def descend(trees: Trees, t: int, x: NDArray[np.float64]) -> int:
    """The leaf of tree `t` that `x` falls into."""
    node = trees.node
    i = 0
    while node[t, i].feature >= 0:
        here = node[t, i]
        i = here.left + goes_right(
            x[here.feature], here.threshold, here.categorical, here.missing_right
        )
    return i


@kernel
def clear_candidates(leaf: Record) -> None:
    """A leaf outside the fringe has no candidate splits."""
    leaf.active = 0
    leaf.block = -1
    leaf.points = 0
    leaf.n_dims = 0
    leaf.drawn_from = 0
    leaf.rows = 0
    leaf.row_room = 0
    leaf.reserved = 0
    leaf.met = 0


@kernel
def new_leaf(trees: Trees, t: int, i: int, depth: int, born: int) -> None:
    """Node `i` becomes an empty, inactive leaf without a histogram."""
    node = trees.node[t, i]
    node.threshold = 0.0
    node.feature = -1
    node.left = -1
    node.depth = depth
    node.categorical = 0
    node.missing_right = 0
    leaf = trees.leaf[t, i]
    leaf.hist = 0
    leaf.room = 0
    leaf.n_classes = 0
    leaf.n = 0
    leaf.best = -1
    leaf.errors = 0
    leaf.born = born
    clear_candidates(leaf)


@kernel
def find_class(hist: NDArray[np.int64], t: int, leaf: Record, y: int) -> int:
    """Where class `y` stands in a leaf's histogram, or the number of its classes."""
    for k in range(leaf.n_classes):
        if hist[t, leaf.hist + k] == y:
            return k
    return int(leaf.n_classes)


@kernel
def count(trees: Trees, t: int, i: int, y: int, w: int) -> None:
    """Add class `y` to the histogram of leaf `i`, `w` times. The arena has room: the caller asked."""
    leaf = trees.leaf[t, i]
    hist = trees.hist
    k = find_class(hist, t, leaf, y)
    if k == leaf.room:  # full: move to a place twice the size
        tree = trees.tree[t]
        room = max(4, 2 * leaf.room)
        new = tree.hist_top
        for a in range(leaf.n_classes):
            hist[t, new + a] = hist[t, leaf.hist + a]
            hist[t, new + room + a] = hist[t, leaf.hist + leaf.room + a]
        tree.hist_top += 2 * room
        leaf.hist = new
        leaf.room = room
    at = leaf.hist + leaf.room + k
    if k == leaf.n_classes:
        hist[t, leaf.hist + k] = y
        hist[t, at] = 0
        leaf.n_classes += 1
    hist[t, at] += w
    leaf.n += w
    if leaf.best != y:
        if leaf.best < 0:
            leaf.best = y
        else:
            b = find_class(hist, t, leaf, leaf.best)
            top = hist[t, leaf.hist + leaf.room + b]
            if hist[t, at] > top or (hist[t, at] == top and y < leaf.best):
                leaf.best = y


@kernel
def add_to_totals(trees: Trees, t: int, i: int, sign: int, totals: NDArray[np.int64]) -> None:
    """Count the events of leaf `i` in the totals of its tree (`sign` 1), or take them out (-1)."""
    leaf = trees.leaf[t, i]
    for k in range(leaf.n_classes):
        totals[t, trees.hist[t, leaf.hist + k]] += sign * trees.hist[t, leaf.hist + leaf.room + k]


@routine
def fill_totals(trees: Trees, totals: NDArray[np.int64]) -> None:
    """The totals of all trees, from nothing."""
    for t in range(trees.tree.shape[0]):
        for i in range(trees.tree[t].n_nodes):
            add_to_totals(trees, t, i, 1, totals)


@kernel
def _vote_balanced(
    trees: Trees, t: int, i: int, hard: int, totals: NDArray[np.int64], votes: NDArray[np.int64]
) -> None:
    """The answer of leaf `i` if all classes were equally frequent: count by the class's total."""
    leaf = trees.leaf[t, i]
    total = 0.0
    top = 0.0
    best = -1
    for k in range(leaf.n_classes):
        y = trees.hist[t, leaf.hist + k]
        share = trees.hist[t, leaf.hist + leaf.room + k] / totals[t, y]
        total += share
        if share > top or (share == top and y < best):
            top = share
            best = y
    if hard:
        votes[best] += np.int64(VOTE_UNIT)
        return
    unit = VOTE_UNIT / total
    for k in range(leaf.n_classes):
        y = trees.hist[t, leaf.hist + k]
        share = trees.hist[t, leaf.hist + leaf.room + k] / totals[t, y]
        votes[y] += np.int64(np.rint(share * unit))


@kernel
def vote(
    trees: Trees,
    t: int,
    i: int,
    hard: int,
    balanced: int,
    totals: NDArray[np.int64],
    votes: NDArray[np.int64],
) -> None:
    """Add the answer of leaf `i` to `votes`; a leaf without events says nothing."""
    leaf = trees.leaf[t, i]
    if leaf.n == 0:
        return
    if balanced:
        _vote_balanced(trees, t, i, hard, totals, votes)
        return
    if hard:
        votes[leaf.best] += np.int64(VOTE_UNIT)
        return
    unit = VOTE_UNIT / leaf.n
    for k in range(leaf.n_classes):
        share = trees.hist[t, leaf.hist + leaf.room + k] * unit
        votes[trees.hist[t, leaf.hist + k]] += np.int64(np.rint(share))
