"""Making and enlarging the arrays of a forest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels import arena
from streamforest.kernels.growing import WANT_BLOCK, WANT_HIST, WANT_NODES, WANT_POINT
from streamforest.kernels.tree import LEAF, NODE, TREE, Trees


def allocate(n_trees: int, nodes: int, hist: int, block: int, point: int) -> Trees:
    """Zeroed arrays of these capacities (per tree)."""
    return Trees(
        tree=np.zeros(n_trees, TREE),
        node=np.zeros((n_trees, nodes), NODE),
        leaf=np.zeros((n_trees, nodes), LEAF),
        hist=np.zeros((n_trees, hist), np.int64),
        block=np.zeros((n_trees, block), np.int32),
        point=np.zeros((n_trees, point), np.float64),
        score=np.zeros((n_trees, point), np.int64),
        born=np.zeros((n_trees, point), np.int64),
    )


def plant(seeds: NDArray[np.uint64]) -> Trees:
    """A forest of trees that are one leaf each."""
    trees = allocate(len(seeds), nodes=8, hist=16, block=64, point=8)
    trees.tree["seed"] = seeds
    trees.tree["n_nodes"] = 1
    trees.node["feature"][:, 0] = -1
    trees.node["left"][:, 0] = -1
    trees.leaf["best"][:, 0] = -1
    trees.leaf["block"][:, 0] = -1
    return trees


def enlarge(trees: Trees, want: NDArray[np.int64], m: int, streams: int) -> Trees:
    """Arrays that hold at least what a kernel wants, packed.

    Arenas only grow at the top, so part of what is full may be left-overs: the new size is twice what
    is live, or what is wanted beyond it. Each entry is copied O(1) times on average.
    """
    n_trees, nodes = trees.node.shape
    node, leaf = trees.node, trees.leaf
    if want[WANT_NODES] > nodes:
        node = np.zeros((n_trees, 2 * nodes), NODE)
        leaf = np.zeros((n_trees, 2 * nodes), LEAF)
        node[:, :nodes] = trees.node
        leaf[:, :nodes] = trees.leaf
        trees = trees._replace(node=node, leaf=leaf)
    short = (
        want[WANT_HIST] > trees.hist.shape[1],
        want[WANT_BLOCK] > trees.block.shape[1],
        want[WANT_POINT] > trees.point.shape[1],
    )
    if not any(short):
        return trees
    sizes = np.zeros(3, np.int64)
    most = np.zeros(3, np.int64)
    for t in range(n_trees):
        arena.live(trees, t, m, streams, sizes)
        np.maximum(most, sizes, out=most)
    tops = np.array([trees.tree[name].max() for name in ("hist_top", "block_top", "point_top")])
    extra = np.maximum(0, want[[WANT_HIST, WANT_BLOCK, WANT_POINT]] - tops)
    old = np.array([trees.hist.shape[1], trees.block.shape[1], trees.point.shape[1]])
    new = np.where(short, np.maximum(2 * most + extra, 16), old)
    hist = np.zeros((n_trees, new[0]), np.int64)
    block = np.zeros((n_trees, new[1]), np.int32)
    point = np.zeros((n_trees, new[2]), np.float64)
    score = np.zeros((n_trees, new[2]), np.int64)
    born = np.zeros((n_trees, new[2]), np.int64)
    for t in range(n_trees):
        arena.pack(trees, t, m, streams, hist, block, point, score, born)
    return trees._replace(hist=hist, block=block, point=point, score=score, born=born)


def nbytes(trees: Trees) -> int:
    """Bytes of all arrays as allocated."""
    return sum(array.nbytes for array in trees)
