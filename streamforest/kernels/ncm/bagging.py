"""Bags of an NCM tree: leaves filled from a new bag, and the error on rows outside of the bags (hi-RF)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.ncm.grow import FITS, HIST
from streamforest.kernels.ncm.layout import Memory, Tree, times_in_bag
from streamforest.kernels.ncm.leaves import count, hist_room


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
