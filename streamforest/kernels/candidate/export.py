"""A forest without its slack: the arrays of a snapshot, and back.

A snapshot holds what cannot be derived, tree by tree and leaf by leaf, without gaps or free slots, so
that a loaded and a never-saved forest write the same bytes. Depths, totals, gains, the best class of a
leaf and the bytes of the fringe follow from it and are computed anew on loading: a damaged file cannot
contradict itself there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.fringe import block_size, leaf_bytes, live_rows
from streamforest.kernels.candidate.layout import Trees, new_leaf
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.entropy import xlogx


class Flat(NamedTuple):
    """All trees one after the other."""

    n_nodes: NDArray[np.int64]  # per tree
    # per node
    feature: NDArray[np.int32]
    left: NDArray[np.int32]
    threshold: NDArray[np.float64]
    missing_right: NDArray[np.uint8]
    # per leaf
    n_classes: NDArray[np.int32]
    errors: NDArray[np.int64]
    born: NDArray[np.int64]
    active: NDArray[np.uint8]
    # per class of a leaf
    leaf_class: NDArray[np.int32]
    leaf_count: NDArray[np.int64]
    # per active leaf
    n_dims: NDArray[np.int32]
    drawn_from: NDArray[np.int32]
    reserved: NDArray[np.int32]
    met: NDArray[np.int64]
    rows: NDArray[np.int32]  # -1: no event has come yet, so there is no block
    # per dimension of a block, per row of a block, per count, per candidate
    dims: NDArray[np.int32]
    filled: NDArray[np.int32]
    row_class: NDArray[np.int32]
    counts: NDArray[np.int32]
    point: NDArray[np.float64]
    point_born: NDArray[np.int64]


SIZES = ("nodes", "leaves", "classes", "active", "dims", "rows", "counts", "points")


@kernel
def measure(trees: Trees, m: int, streams: int, sizes: NDArray[np.int64]) -> None:
    """How long the arrays of `Flat` must be, in the order of `SIZES`."""
    sizes[:] = 0
    for t in range(trees.tree.shape[0]):
        for i in range(trees.tree[t].n_nodes):
            sizes[0] += 1
            if trees.node[t, i].feature >= 0:
                continue
            leaf = trees.leaf[t, i]
            sizes[1] += 1
            sizes[2] += leaf.n_classes
            if leaf.active:
                sizes[3] += 1
            if leaf.block >= 0:
                sizes[4] += leaf.n_dims
                sizes[5] += leaf.rows
                sizes[6] += leaf.rows * 2 * streams * leaf.n_dims * m
                sizes[7] += leaf.n_dims * m


def empty(n_trees: int, sizes: NDArray[np.int64]) -> Flat:
    """Arrays to export into."""
    nodes, leaves, classes, active, dims, rows, counts, points = (int(n) for n in sizes)
    return Flat(
        n_nodes=np.zeros(n_trees, np.int64),
        feature=np.zeros(nodes, np.int32),
        left=np.zeros(nodes, np.int32),
        threshold=np.zeros(nodes, np.float64),
        missing_right=np.zeros(nodes, np.uint8),
        n_classes=np.zeros(leaves, np.int32),
        errors=np.zeros(leaves, np.int64),
        born=np.zeros(leaves, np.int64),
        active=np.zeros(leaves, np.uint8),
        leaf_class=np.zeros(classes, np.int32),
        leaf_count=np.zeros(classes, np.int64),
        n_dims=np.zeros(active, np.int32),
        drawn_from=np.zeros(active, np.int32),
        reserved=np.zeros(active, np.int32),
        met=np.zeros(active, np.int64),
        rows=np.zeros(active, np.int32),
        dims=np.zeros(dims, np.int32),
        filled=np.zeros(dims, np.int32),
        row_class=np.zeros(rows, np.int32),
        counts=np.zeros(counts, np.int32),
        point=np.zeros(points, np.float64),
        point_born=np.zeros(points, np.int64),
    )


@kernel
def export(trees: Trees, m: int, streams: int, out: Flat) -> None:
    """Write every tree to `out`."""
    n = e = h = a = d = r = c = p = 0
    for t in range(trees.tree.shape[0]):
        out.n_nodes[t] = trees.tree[t].n_nodes
        for i in range(trees.tree[t].n_nodes):
            node = trees.node[t, i]
            out.feature[n] = node.feature
            out.left[n] = node.left
            out.threshold[n] = node.threshold
            out.missing_right[n] = node.missing_right
            n += 1
            if node.feature >= 0:
                continue
            leaf = trees.leaf[t, i]
            out.n_classes[e] = leaf.n_classes
            out.errors[e] = leaf.errors
            out.born[e] = leaf.born
            out.active[e] = leaf.active
            e += 1
            for k in range(leaf.n_classes):
                out.leaf_class[h] = trees.hist[t, leaf.hist + k]
                out.leaf_count[h] = trees.hist[t, leaf.hist + leaf.room + k]
                h += 1
            if not leaf.active:
                continue
            out.n_dims[a] = leaf.n_dims
            out.drawn_from[a] = leaf.drawn_from
            out.reserved[a] = leaf.reserved
            out.met[a] = leaf.met
            out.rows[a] = leaf.rows if leaf.block >= 0 else -1
            a += 1
            if leaf.block < 0:
                continue
            for j in range(leaf.n_dims):
                out.dims[d] = trees.block[t, leaf.block + j]
                out.filled[d] = trees.block[t, leaf.block + leaf.n_dims + j]
                for s in range(out.filled[d]):
                    out.point[p + j * m + s] = trees.point[t, leaf.points + j * m + s]
                    out.point_born[p + j * m + s] = trees.born[t, leaf.points + j * m + s]
                d += 1
            p += leaf.n_dims * m
            at = leaf.block + 2 * leaf.n_dims
            for k in range(leaf.rows):
                out.row_class[r] = trees.block[t, at + k]
                r += 1
            size = 2 * streams * leaf.n_dims * m
            at += leaf.row_room + size
            for k in range(leaf.rows * size):
                out.counts[c] = trees.block[t, at + k]
                c += 1


@kernel
def _restore_block(
    trees: Trees,
    t: int,
    i: int,
    m: int,
    streams: int,
    flat: Flat,
    table: NDArray[np.int64],
    d: int,
    r: int,
    c: int,
    p: int,
) -> None:
    """The block of one active leaf, with its totals and gains computed anew."""
    tree = trees.tree[t]
    leaf = trees.leaf[t, i]
    leaf.block = tree.block_top
    leaf.points = tree.point_top
    leaf.row_room = max(2, leaf.reserved, leaf.rows)
    n_cands = leaf.n_dims * m
    size = 2 * streams * n_cands
    tree.block_top += block_size(leaf.n_dims, m, streams, leaf.row_room)
    tree.point_top += n_cands
    for j in range(leaf.n_dims):
        trees.block[t, leaf.block + j] = flat.dims[d + j]
        trees.block[t, leaf.block + leaf.n_dims + j] = flat.filled[d + j]
    for k in range(n_cands):
        trees.point[t, leaf.points + k] = flat.point[p + k]
        trees.born[t, leaf.points + k] = flat.point_born[p + k]
    at = leaf.block + 2 * leaf.n_dims
    totals = at + leaf.row_room
    for k in range(leaf.rows):
        trees.block[t, at + k] = flat.row_class[r + k]
        for q in range(size):
            n = flat.counts[c + k * size + q]
            trees.block[t, totals + size * (1 + k) + q] = n
            trees.block[t, totals + q] += n
    for q in range(n_cands):
        n0 = trees.block[t, totals + 2 * q]
        n1 = trees.block[t, totals + 2 * q + 1]
        score = xlogx(n0 + n1, table) - xlogx(n0, table) - xlogx(n1, table)
        for k in range(leaf.rows):
            row = totals + size * (1 + k) + 2 * q
            c0 = trees.block[t, row]
            c1 = trees.block[t, row + 1]
            score += xlogx(c0, table) + xlogx(c1, table) - xlogx(c0 + c1, table)
        trees.score[t, leaf.points + q] = score


@kernel
def restore(
    trees: Trees,
    m: int,
    streams: int,
    categorical: NDArray[np.uint8],
    flat: Flat,
    table: NDArray[np.int64],
) -> None:
    """Fill zeroed arrays of sufficient size from a validated `flat`."""
    n = e = h = a = d = r = c = p = 0
    for t in range(trees.tree.shape[0]):
        tree = trees.tree[t]
        tree.n_nodes = flat.n_nodes[t]
        for i in range(tree.n_nodes):
            new_leaf(trees, t, i, 0, 0)
        for i in range(tree.n_nodes):
            node = trees.node[t, i]
            node.feature = flat.feature[n]
            node.left = flat.left[n]
            node.threshold = flat.threshold[n]
            node.missing_right = flat.missing_right[n]
            n += 1
            if node.feature >= 0:  # children come after their parent
                node.categorical = categorical[node.feature]
                trees.node[t, node.left].depth = node.depth + 1
                trees.node[t, node.left + 1].depth = node.depth + 1
                continue
            leaf = trees.leaf[t, i]
            leaf.n_classes = flat.n_classes[e]
            leaf.errors = flat.errors[e]
            leaf.born = flat.born[e]
            leaf.active = flat.active[e]
            e += 1
            leaf.hist = tree.hist_top
            leaf.room = leaf.n_classes
            tree.hist_top += 2 * leaf.room
            largest = 0
            for k in range(leaf.n_classes):
                y = flat.leaf_class[h]
                count = flat.leaf_count[h]
                h += 1
                trees.hist[t, leaf.hist + k] = y
                trees.hist[t, leaf.hist + leaf.room + k] = count
                leaf.n += count
                if count > largest or (count == largest and y < leaf.best):
                    largest = count
                    leaf.best = y
            if not leaf.active:
                continue
            leaf.n_dims = flat.n_dims[a]
            leaf.drawn_from = flat.drawn_from[a]
            leaf.reserved = flat.reserved[a]
            leaf.met = flat.met[a]
            opened = flat.rows[a] >= 0
            leaf.rows = flat.rows[a] if opened else 0
            a += 1
            tree.n_active += 1
            tree.fringe_bytes += leaf_bytes(leaf.n_dims, m, streams, live_rows(leaf))
            if opened:
                _restore_block(trees, t, i, m, streams, flat, table, d, r, c, p)
                d += leaf.n_dims
                p += leaf.n_dims * m
                r += leaf.rows
                c += leaf.rows * 2 * streams * leaf.n_dims * m
