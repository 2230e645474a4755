"""Many rows into the leaves of an NCM tree at once, as an increment of the papers' protocol brings them.

Row by row a descent waits for the centroids of every node it passes: those of one tree are larger than any
cache. Node by node they are read once for all the rows that pass there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import routine
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
