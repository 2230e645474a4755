"""Leaves of NCM trees: they take rows in, and are split when they have enough of several classes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.ncm.grow import FITS, GROW, HIST
from streamforest.kernels.ncm.layout import Memory, Record, Tree, descend, times_in_bag, view
from streamforest.kernels.ncm.leaves import count, hist_room, link
from streamforest.kernels.ncm.row_memory import fill_in, training_rows_of_leaf

SQRT, LOG, SHARE, FIXED = range(4)
"""How many centroids a node may have, by the number of classes."""
GROW_AT, SPLIT_AT = range(2)
"""Where `functions` has the addresses of `grow.grow` and of the forest's way to split a node."""
_call_grow = GROW.call


@kernel
def centroids_for(classes: int, p: Record) -> int:
    """The number of centroids of a node when so many classes are known."""
    k = float(p.amount)
    if p.rule == SQRT:
        k *= math.sqrt(classes)
    elif p.rule == LOG:
        k *= math.log(max(classes, 1))
    elif p.rule == SHARE:
        k *= classes
    return max(2, math.ceil(k))


@kernel
def has_room(tree: Tree, i: int) -> bool:
    """Whether one more class fits into the histogram of leaf `i`."""
    return bool(tree.info[0].hist_top + hist_room(tree.node[i]) <= tree.hist.shape[0])


@kernel
def learn(tree: Tree, i: int, slot: int, y: int, number: int, p: Record, grows: bool) -> int:
    """Add the row in `slot` to leaf `i`, which has room: 1 if it `grows` and is due for a split, else 0."""
    info = tree.info[0]
    here = tree.node[i]
    link(tree, i, slot)
    w = times_in_bag(info.seed, info.bag, number, p.bagged)
    if w == 0:
        return 0
    count(tree, i, y, w)
    due = grows and here.n_classes > 1 and here.n > 2 * p.mu and here.n >= here.due
    return 1 if due else 0


@routine
def grow_leaf(
    tree: Tree,
    i: int,
    memory: Memory,
    fill: NDArray[np.float32],
    classes: int,
    p: Record,
    table: NDArray[np.int64],
    functions: NDArray[np.int64],
) -> int:
    """Try to split leaf `i` by its own rows. FITS, or which array is too small."""
    n_centroids = centroids_for(classes, p)
    info = tree.info[0]
    here = tree.node[i]
    k = 1 if p.svm else max(2, n_centroids if p.sets else min(n_centroids, here.n_classes))
    if info.n_nodes + 2 > p.max_nodes or info.n_rows + k > p.max_rows:
        here.due = 0  # the tree is full, whatever the rows are
        return FITS
    training = training_rows_of_leaf(memory, tree, i, fill, p.bagged)
    arguments = (tree, i, False, training, p, n_centroids, classes, table, functions[SPLIT_AT])
    return int(_call_grow(functions[GROW_AT], arguments))


@routine
def grow_leaves(
    tree: Tree,
    begin: int,
    memory: Memory,
    fill: NDArray[np.float32],
    classes: int,
    p: Record,
    table: NDArray[np.int64],
    functions: NDArray[np.int64],
) -> tuple[int, int]:
    """Try to split every leaf from node `begin` on (IGT). FITS, or what is too small, and the node to
    go on with.
    """
    n = tree.info[0].n_nodes
    for i in range(begin, n):
        here = tree.node[i]
        if here.left < 0 and here.n_classes > 1 and here.n > 2 * p.mu and here.n >= here.due:
            short = grow_leaf(tree, i, memory, fill, classes, p, table, functions)
            if short != FITS:
                return short, i
    return FITS, n


@routine
def catch_up(
    trees: NDArray[np.int64],
    t: int,
    memory: Memory,
    fill: NDArray[np.float32],
    params: NDArray[np.void],
    table: NDArray[np.int64],
    functions: NDArray[np.int64],
    slots: NDArray[np.int32],
    classes: int,
    count_only: bool,
    progress: NDArray[np.int64],
) -> int:
    """A tree that was grown aside learns the rows that came meanwhile. FITS, or what is too small.

    `progress[0]` counts half rows, as in `advance`; the same call goes on after enlarging. With
    `count_only` no leaf is split.
    """
    p = params[0]
    tree = view(trees, t)
    rows, label, numbers = memory.rows, memory.label, memory.number
    grows = p.grows and not count_only
    z = np.empty((1, rows.shape[1]), np.float32)
    for a in range(progress[0] >> 1, slots.shape[0]):
        slot = slots[a]
        leaf = tree.leaf[slot]
        due = progress[0] & 1
        if not due:
            for f in range(rows.shape[1]):
                z[0, f] = rows[slot, f]
            fill_in(z, fill)
            leaf = descend(tree, 0, z, 0)
            if not has_room(tree, leaf):
                return HIST
            due = learn(tree, leaf, slot, label[slot], numbers[slot], p, grows)
        if due:
            progress[0] = 2 * a + 1
            short = grow_leaf(tree, leaf, memory, fill, classes, p, table, functions)
            if short != FITS:
                return short
        progress[0] = 2 * (a + 1)
    return FITS
