"""Filling the leaves of an NCM tree with many rows at once, and judging it by the rows outside of its bags.

An increment of the papers' protocol brings many rows. One by one each would wait for the centroids of every
node it passes: those of one tree are larger than any cache. Node by node they are read once for all the rows
that pass there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.ncm.grow import FITS, HIST
from streamforest.kernels.ncm.layout import Memory, Tree, goes_right, times_in_bag
from streamforest.kernels.ncm.leaves import count, hist_room, link


@routine
def route(tree: Tree, z: NDArray[np.float32], leaf: NDArray[np.int32]) -> None:
    """The leaf of each row of `z`, as `descend` gives it."""
    m = z.shape[0]
    order = np.arange(m).astype(np.int32)
    spare = np.empty(m, np.int32)
    # at most one pending node a level and the node at hand, each with rows of its own
    stack = np.empty((m + 2, 3), np.int32)
    stack[0, 0] = 0
    stack[0, 1] = 0
    stack[0, 2] = m
    depth = 1
    while depth > 0:
        depth -= 1
        i, low, high = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        here = tree.node[i]
        if here.left < 0:
            for b in range(low, high):
                leaf[order[b]] = i
            continue
        middle = low
        rest = 0
        for b in range(low, high):  # rows of both sides stay in their order
            row = order[b]
            if goes_right(tree, here, z, row):
                spare[rest] = row
                rest += 1
            else:
                order[middle] = row
                middle += 1
        for b in range(rest):
            order[middle + b] = spare[b]
        if middle > low:
            stack[depth, 0] = here.left
            stack[depth, 1] = low
            stack[depth, 2] = middle
            depth += 1
        if high > middle:
            stack[depth, 0] = here.left + 1
            stack[depth, 1] = middle
            stack[depth, 2] = high
            depth += 1


@routine
def enter(
    tree: Tree,
    memory: Memory,
    slots: NDArray[np.int32],
    leaf: NDArray[np.int32],
    begin: int,
    bagged: int,
) -> tuple[int, int]:
    """Add the rows in `slots`, which are in the order of their numbers, to their leaves, from `begin` on.

    FITS, or HIST and the row to go on with.
    """
    info = tree.info[0]
    for a in range(begin, slots.shape[0]):
        slot, i = slots[a], leaf[a]
        w = times_in_bag(info.seed, info.bag, memory.number[slot], bagged)
        if w > 0:
            if info.hist_top + hist_room(tree.node[i]) > tree.hist.shape[0]:
                return HIST, a
            count(tree, i, memory.label[slot], w)
        link(tree, i, slot)
    return FITS, slots.shape[0]


@routine
def refill(tree: Tree, memory: Memory, slots: NDArray[np.int32], bagged: int) -> int:
    """Empty the leaves and fill them from the tree's bag, by the leaf each row lies in (RLP).

    FITS, or HIST: the same call then starts again.
    """
    info = tree.info[0]
    info.hist_top = 0
    for i in range(info.n_nodes):
        here = tree.node[i]
        here.n, here.hist, here.room, here.n_classes, here.due = 0, 0, 0, 0, 0
    for b in range(slots.shape[0]):
        slot = slots[b]
        w = times_in_bag(info.seed, info.bag, memory.number[slot], bagged)
        if w > 0:
            i = tree.leaf[slot]
            if info.hist_top + hist_room(tree.node[i]) > tree.hist.shape[0]:
                return HIST
            count(tree, i, memory.label[slot], w)
    return FITS


@kernel
def favourite(tree: Tree, i: int, of_class: NDArray[np.int64], balanced: int) -> int:
    """The class that leaf `i` favours; -1 for an empty leaf."""
    here = tree.node[i]
    highest = 0.0
    best = -1
    for k in range(here.n_classes):
        y = tree.hist[here.hist + k]
        share = float(tree.hist[here.hist + here.room + k])
        if balanced:
            share /= of_class[y]
        if share > highest:
            highest = share
            best = y
    return best


@routine
def out_of_bag(
    tree: Tree,
    memory: Memory,
    slots: NDArray[np.int32],
    of_class: NDArray[np.int64],
    balanced: int,
) -> tuple[int, int, int, int]:
    """Rows outside both the bag that grew the splits and the bag that filled the leaves: how many of those
    older than the splits the tree alone gets wrong, how many there are, and the same of newer rows, which
    are outside the first bag by their age.
    """
    info = tree.info[0]
    favours = np.full(info.n_nodes, -2, np.int32)
    wrong, total, wrong_new, total_new = 0, 0, 0, 0
    for b in range(slots.shape[0]):
        slot = slots[b]
        number = memory.number[slot]
        if times_in_bag(info.seed, info.bag, number, 1) > 0:
            continue
        if number < info.born and times_in_bag(info.seed, info.grown_bag, number, 1) > 0:
            continue
        i = tree.leaf[slot]
        if favours[i] == -2:
            favours[i] = favourite(tree, i, of_class, balanced)
        missed = favours[i] != memory.label[slot]
        if number < info.born:
            total += 1
            wrong += missed
        else:
            total_new += 1
            wrong_new += missed
    return wrong, total, wrong_new, total_new
