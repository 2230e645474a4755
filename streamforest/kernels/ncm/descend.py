"""Several descents of NCM trees at a time: one row through all trees, so that no tree waits for another's
memory (`prefetch`), or several rows through one tree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.array_table import ADDRESS, SIZE
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.prefetch import LINE, prefetch
from streamforest.kernels.ncm.layout import (
    CEN_AT,
    HALF_AT,
    HIST_AT,
    NEXT_AT,
    NODE,
    NODE_AT,
    SIDE_AT,
    Memory,
    Tree,
    goes_right,
    view,
)

_NODE_BYTES = NODE.itemsize
_LINES = 24  # of a node's centroids; the processor fetches the rest of long rows by itself


@kernel
def descend_all(
    trees: NDArray[np.int64], first: int, last: int, x: NDArray[np.float32], leaf: NDArray[np.int64]
) -> None:
    """The leaf of trees `first` to `last` that row 0 of `x` falls into, as `descend` gives it."""
    for t in range(first, last):
        leaf[t] = 0
        prefetch(trees[t, NODE_AT, ADDRESS])
    moving = last - first
    while moving > 0:
        for t in range(first, last):
            if leaf[t] >= 0:
                _prefetch_split(trees, t, leaf[t])
        for t in range(first, last):
            i = leaf[t]
            if i < 0:
                continue
            tree = view(trees, t)
            here = tree.node[i]
            if here.left >= 0:
                leaf[t] = here.left + goes_right(tree, here, x, 0)
                prefetch(trees[t, NODE_AT, ADDRESS] + leaf[t] * _NODE_BYTES)
            else:
                leaf[t] = -1 - i  # arrived
                moving -= 1
    for t in range(first, last):
        leaf[t] = -1 - leaf[t]


@kernel
def descend_rows(
    tree: Tree, x: NDArray[np.float32], begin: int, end: int, leaf: NDArray[np.int64]
) -> None:
    """The leaves of rows `begin` to `end` of `x` in one tree, as `descend` gives them.

    Where nothing is learned between them rows can descend side by side: the products of one are computed
    while the side of another is decided.
    """
    for q in range(end - begin):
        leaf[q] = 0
    moving = end - begin
    while moving > 0:
        for q in range(end - begin):
            i = leaf[q]
            if i < 0:
                continue
            here = tree.node[i]
            if here.left >= 0:
                leaf[q] = here.left + goes_right(tree, here, x, begin + q)
            else:
                leaf[q] = -1 - i  # arrived
                moving -= 1
    for q in range(end - begin):
        leaf[q] = -1 - leaf[q]


@kernel
def _prefetch_split(trees: NDArray[np.int64], t: int, i: int) -> None:
    """Prefetch what the test of node `i` reads."""
    here = view(trees, t).node[i]
    if here.left < 0:
        prefetch(trees[t, HIST_AT, ADDRESS] + here.hist * 4)
        return
    width = 4 * trees[t, CEN_AT, SIZE + 1]
    prefetch(trees[t, HALF_AT, ADDRESS] + here.first * 4)
    prefetch(trees[t, SIDE_AT, ADDRESS] + here.first)
    start = trees[t, CEN_AT, ADDRESS] + here.first * width
    if here.k * width <= _LINES * LINE:
        for line in range(start, start + here.k * width, LINE):
            prefetch(line)
    else:
        lines = max(2, _LINES // here.k)
        for j in range(here.k):
            for line in range(lines):
                prefetch(start + j * width + line * LINE)


@kernel
def newest_of_all(
    trees: NDArray[np.int64],
    first: int,
    last: int,
    memory: Memory,
    leaf: NDArray[np.int64],
    max_rows: int,
    slots: NDArray[np.int64],
    n: NDArray[np.int64],
) -> None:
    """The newest rows of each tree's leaf, as `newest` gives them; their values are prefetched."""
    rows, label = memory.rows, memory.label
    start = rows.ctypes.data
    width = 4 * rows.shape[1]
    for t in range(first, last):
        n[t] = 0
        slots[t, 0] = view(trees, t).node[leaf[t]].head
    for a in range(max_rows):
        left = 0
        for t in range(first, last):
            slot = slots[t, a]
            if n[t] < a or slot < 0:
                continue
            n[t] = a + 1
            for line in range(start + slot * width, start + (slot + 1) * width, LINE):
                prefetch(line)
            prefetch(label.ctypes.data + slot * 4)
            after = view(trees, t).next[slot]
            slots[t, a + 1] = after
            if after >= 0:
                prefetch(trees[t, NEXT_AT, ADDRESS] + after * 4)
                left += 1
        if left == 0:
            break
