"""Packing the arenas anew: live parts move to fresh arrays, what splits left behind is dropped."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.fringe import block_size
from streamforest.kernels.candidate.layout import Trees
from streamforest.kernels.core.compiling import kernel


@kernel
def live(trees: Trees, t: int, m: int, streams: int, sizes: NDArray[np.int64]) -> None:
    """Entries of `hist`, `block` and `point` that tree `t` really uses."""
    sizes[:] = 0
    for i in range(trees.tree[t].n_nodes):
        leaf = trees.leaf[t, i]
        sizes[0] += 2 * leaf.room
        if leaf.block >= 0:
            sizes[1] += block_size(leaf.n_dims, m, streams, leaf.row_room)
            sizes[2] += leaf.n_dims * m


@kernel
def pack(
    trees: Trees,
    t: int,
    m: int,
    streams: int,
    hist: NDArray[np.int64],
    block: NDArray[np.int32],
    point: NDArray[np.float64],
    score: NDArray[np.int64],
    born: NDArray[np.int64],
) -> None:
    """Copy the live parts of tree `t` to the new arrays, in the order of its nodes."""
    tree = trees.tree[t]
    h = 0
    b = 0
    c = 0
    for i in range(tree.n_nodes):
        leaf = trees.leaf[t, i]
        n = 2 * leaf.room
        hist[t, h : h + n] = trees.hist[t, leaf.hist : leaf.hist + n]
        leaf.hist = h
        h += n
        if leaf.block >= 0:
            n = block_size(leaf.n_dims, m, streams, leaf.row_room)
            block[t, b : b + n] = trees.block[t, leaf.block : leaf.block + n]
            leaf.block = b
            b += n
            n = leaf.n_dims * m
            point[t, c : c + n] = trees.point[t, leaf.points : leaf.points + n]
            score[t, c : c + n] = trees.score[t, leaf.points : leaf.points + n]
            born[t, c : c + n] = trees.born[t, leaf.points : leaf.points + n]
            leaf.points = c
            c += n
    tree.hist_top = h
    tree.block_top = b
    tree.point_top = c
