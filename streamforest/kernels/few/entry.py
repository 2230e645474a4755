"""A few-shot forest's way through a batch: predict, then learn, row by row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.array_table import ArrayTable
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.operations import LEARN, PREDICT
from streamforest.kernels.few.answer import answer
from streamforest.kernels.few.grow import grow
from streamforest.kernels.few.layout import (
    MIXED,
    Helped,
    Memory,
    Record,
    SharedArrays,
    Trees,
    add_row,
    descend,
    remove_row,
)
from streamforest.kernels.few.prior import settle

WANT_NODES, WANT_CLASSES = range(2)
ARRAYS = ArrayTable(Trees, Memory, Helped, SharedArrays)
_view = ARRAYS.view


@kernel
def _has_room(trees: Trees, t: int, i: int, y: int, p: Record, want: NDArray[np.int64]) -> bool:
    """Whether all that one row of class `y` at leaf `i` can cause fits into the arrays."""
    nodes = trees.tree[t].n_nodes
    want[WANT_NODES] = max(nodes, min(nodes + 2 * (trees.node[t, i].n + 1), p.max_nodes))
    want[WANT_CLASSES] = y + 1
    return bool(want[WANT_NODES] <= trees.node.shape[1] and y < trees.totals.shape[1])


@kernel
def advance(
    addresses: NDArray[np.int64],
    first: int,
    last: int,
    want: NDArray[np.int64],
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    n_features: NDArray[np.int64],
    reuse: bool,
    slots: NDArray[np.int32],
    votes: NDArray[np.int64],
) -> bool:
    """Take trees `first` to `last` through the rows of a batch; `slots` has the places of those learned.

    False when an array is too small for what comes next, with `want` filled in; after enlarging it the same
    call goes on where it stopped.
    """
    trees, memory, helped, shared = _view(addresses)
    p = shared.params[0]
    progress, routes, categorical = shared.progress, shared.routes, shared.categorical
    classes = trees.totals.shape[1]
    count, mass = np.zeros(classes, np.int64), np.zeros(classes)
    present = np.zeros(classes + helped.label.shape[0], np.int32)
    for t in range(first, last):
        for r in range(progress[t], x.shape[0]):
            i = routes[t] if reuse else descend(trees, t, 0, x[r])
            learns = op[r] & LEARN
            if learns and not _has_room(trees, t, i, y[r], p, want):
                return False
            if op[r] & PREDICT:
                answer(
                    trees,
                    memory,
                    helped,
                    t,
                    i,
                    x[r],
                    trees.tree[t].known,
                    p,
                    categorical,
                    count,
                    mass,
                    present,
                    votes[r],
                )
            routes[t] = i
            if learns:
                trees.tree[t].known = n_features[r]
                trees.totals[t, y[r]] += 1
                add_row(trees, memory, t, i, slots[r])
                node = trees.node[t, i]
                if node.only == MIXED and node.n >= node.wait:
                    grow(trees, memory, t, i, n_features[r], p, categorical)
                for h in range(helped.label.shape[0]):
                    if helped.label[h] == y[r]:
                        settle(trees, memory, helped, t, h, p)
            progress[t] = r + 1
    progress[first:last] = 0
    return True


@routine
def evict(trees: Trees, memory: Memory, slots: NDArray[np.int32]) -> None:
    """Rows leave the memory, and every tree."""
    for t in range(trees.tree.shape[0]):
        for a in range(slots.shape[0]):
            if trees.leaf[t, slots[a]] > 0:
                remove_row(trees, memory, t, slots[a])
    for a in range(slots.shape[0]):
        memory.number[slots[a]] = -1


@routine
def rebuild_lists(trees: Trees, memory: Memory, slots: NDArray[np.int32]) -> None:
    """Lists and totals of all trees from the leaf of each row; `slots` are in the order of numbers."""
    for t in range(trees.tree.shape[0]):
        for a in range(slots.shape[0]):
            add_row(trees, memory, t, trees.leaf[t, slots[a]] - 1, slots[a])
            trees.totals[t, memory.label[slots[a]]] += 1
