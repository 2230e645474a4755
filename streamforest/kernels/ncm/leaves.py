"""The leaves of an NCM tree: histograms in one arena, rows in chains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.ncm.layout import Record, Tree


@kernel
def hist_room(here: Record) -> int:
    """Entries of the arena that one more class at a leaf can take."""
    return 2 * max(4, 2 * here.room) if here.n_classes == here.room else 0


@kernel
def count(tree: Tree, i: int, y: int, w: int) -> None:
    """Add class `y` to leaf `i`, `w` times. The caller has checked that the arena has room.

    Entries stay in the order of their classes, so that a sum over them does not depend on history.
    """
    here = tree.node[i]
    hist = tree.hist
    k = 0
    while k < here.n_classes and hist[here.hist + k] < y:
        k += 1
    if k == here.n_classes or hist[here.hist + k] != y:
        if here.n_classes == here.room:  # full: move to a place twice the size
            room = max(4, 2 * here.room)
            new = tree.info[0].hist_top
            for a in range(here.n_classes):
                hist[new + a] = hist[here.hist + a]
                hist[new + room + a] = hist[here.hist + here.room + a]
            tree.info[0].hist_top += 2 * room
            here.hist = new
            here.room = room
        for a in range(here.n_classes, k, -1):
            hist[here.hist + a] = hist[here.hist + a - 1]
            hist[here.hist + here.room + a] = hist[here.hist + here.room + a - 1]
        hist[here.hist + k] = y
        hist[here.hist + here.room + k] = 0
        here.n_classes += 1
    hist[here.hist + here.room + k] += w
    here.n += w


@kernel
def uncount(tree: Tree, i: int, y: int, w: int) -> None:
    """Subtract class `y` from leaf `i`, `w` times; a class whose count is 0 is removed from the histogram."""
    here = tree.node[i]
    hist = tree.hist
    k = 0
    while hist[here.hist + k] != y:
        k += 1
    hist[here.hist + here.room + k] -= w
    here.n -= w
    if hist[here.hist + here.room + k] == 0:
        here.n_classes -= 1
        for a in range(k, here.n_classes):
            hist[here.hist + a] = hist[here.hist + a + 1]
            hist[here.hist + here.room + a] = hist[here.hist + here.room + a + 1]


@kernel
def link(tree: Tree, i: int, slot: int) -> None:
    """Add the row in `slot` to leaf `i`."""
    head = tree.node[i].head
    tree.leaf[slot] = i
    tree.next[slot] = head
    tree.prev[slot] = -1
    if head >= 0:
        tree.prev[head] = slot
    tree.node[i].head = slot


@kernel
def unlink(tree: Tree, slot: int) -> None:
    """Remove the row in `slot` from its leaf."""
    after = tree.next[slot]
    before = tree.prev[slot]
    if before >= 0:
        tree.next[before] = after
    else:
        tree.node[tree.leaf[slot]].head = after
    if after >= 0:
        tree.prev[after] = before
    tree.leaf[slot] = -1


@kernel
def new_leaf(tree: Tree, i: int) -> None:
    """Node `i` becomes an empty leaf without a histogram."""
    here = tree.node[i]
    here.left = -1
    here.first = 0
    here.k = 0
    here.n = 0
    here.hist = 0
    here.room = 0
    here.n_classes = 0
    here.head = -1
    here.due = 0


@routine
def repack(tree: Tree, hist: NDArray[np.int32]) -> None:
    """Copy the histograms of a tree to a new arena, without the gaps between them."""
    top = 0
    for i in range(tree.info[0].n_nodes):
        here = tree.node[i]
        size = 2 * here.room
        for a in range(size):
            hist[top + a] = tree.hist[here.hist + a]
        here.hist = top
        top += size
    tree.info[0].hist_top = top


@routine
def hist_in_use(tree: Tree) -> int:
    """Entries of the arena that belong to a leaf."""
    total = 0
    for i in range(tree.info[0].n_nodes):
        total += 2 * tree.node[i].room
    return total
