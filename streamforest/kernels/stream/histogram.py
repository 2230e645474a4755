"""Sparse class histograms of nodes: only classes that came are kept, in the order of their index.

A forest of thousands of nodes and hundreds of classes would be mostly zeros. Histograms live in an
arena a tree slot, which only grows at the top; `pack` copies the live ones to a new arena when it is full.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.stream.layout import FULL, TreeArrays


@kernel
def position(g: TreeArrays, s: int, i: int, y: int) -> int:
    """Where class `y` stands, or would stand, in the histogram of node `i`."""
    stat = g.stat[s, i]
    at = stat.hist
    n = stat.n_classes
    if y < n and g.hist[s, at + y] == y:  # every class up to y came: the usual case near the root
        return y
    low = 0
    high = n
    while low < high:
        middle = (low + high) >> 1
        if g.hist[s, at + middle] < y:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def more_room(room: int) -> int:
    """The size a full histogram moves to."""
    return max(2, 2 * room)


@kernel
def count(g: TreeArrays, s: int, i: int, y: int) -> None:
    """Add one estimation event of class `y` to node `i`. The arena has room: the caller asked."""
    stat = g.stat[s, i]
    if stat.n >= FULL:
        return
    k = position(g, s, i, y)
    if k < stat.n_classes and g.hist[s, stat.hist + k] == y:
        g.hist[s, stat.hist + stat.room + k] += 1
        stat.n += 1
        return
    n = stat.n_classes
    old = stat.hist
    old_room = stat.room
    if n == old_room:
        tree_slot = g.tree_slot[s]
        stat.hist = tree_slot.hist_top
        stat.room = more_room(old_room)
        tree_slot.hist_top += 2 * stat.room
    new = stat.hist
    new_room = stat.room
    # from the end, so that the histogram may also stay where it is
    for a in range(n - 1, k - 1, -1):
        g.hist[s, new + new_room + a + 1] = g.hist[s, old + old_room + a]
        g.hist[s, new + a + 1] = g.hist[s, old + a]
    if new != old:
        for a in range(k):
            g.hist[s, new + a] = g.hist[s, old + a]
            g.hist[s, new + new_room + a] = g.hist[s, old + old_room + a]
    g.hist[s, new + k] = y
    g.hist[s, new + new_room + k] = 1
    stat.n_classes = n + 1
    stat.n += 1


@kernel
def path_room(g: TreeArrays, s: int, leaf: int) -> int:
    """Entries of the arena that one more class at `leaf` and its ancestors takes at most."""
    need = 0
    i = leaf
    while i >= 0:
        stat = g.stat[s, i]
        if stat.n_classes == stat.room:
            need += 2 * more_room(stat.room)
        i = stat.parent
    return need


@kernel
def count_path(g: TreeArrays, s: int, leaf: int, y: int) -> None:
    """An estimation event counts at its leaf and at every node above it."""
    i = leaf
    while i >= 0:
        count(g, s, i, y)
        i = g.stat[s, i].parent


@kernel
def live(g: TreeArrays, s: int) -> int:
    """Entries of the arena that tree slot `s` really uses."""
    size = 0
    for i in range(g.tree_slot[s].n_nodes):
        size += 2 * g.stat[s, i].room
    return size


@routine
def pack(g: TreeArrays, s: int, hist: NDArray[np.int32]) -> None:
    """Copy the live histograms of tree slot `s` to a new arena, in the order of its nodes."""
    top = 0
    for i in range(g.tree_slot[s].n_nodes):
        stat = g.stat[s, i]
        for k in range(stat.n_classes):
            hist[s, top + k] = g.hist[s, stat.hist + k]
            hist[s, top + stat.room + k] = g.hist[s, stat.hist + stat.room + k]
        stat.hist = top
        top += 2 * stat.room
    g.tree_slot[s].hist_top = top
