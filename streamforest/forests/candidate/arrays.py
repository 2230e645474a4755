"""Making and enlarging the arrays of a forest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate import arena
from streamforest.kernels.candidate.grow import WANT_BLOCK, WANT_HIST, WANT_NODES, WANT_POINT
from streamforest.kernels.candidate.layout import Trees
from streamforest.kernels.core.array_table import grown, zeros

_SMALL = 1 << 16  # entries


def allocate(n_trees: int, nodes: int, hist: int, block: int, point: int) -> Trees:
    """Zeroed arrays of these capacities (per tree)."""
    sizes = {"histogram entries": hist, "block entries": block, "candidates": point}
    return zeros(Trees, trees=n_trees, nodes=nodes, **sizes)


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
    """Arrays that hold at least what a kernel wants."""
    nodes = trees.node.shape[1]
    if want[WANT_NODES] > nodes:
        trees = grown(trees, nodes=2 * nodes)
    wanted = want[[WANT_HIST, WANT_BLOCK, WANT_POINT]]
    if (wanted > _capacities(trees)).any():
        tops = [trees.tree[name].max() for name in ("hist_top", "block_top", "point_top")]
        trees = pack(trees, np.maximum(0, wanted - np.array(tops)), m, streams)
    return trees


def pack(trees: Trees, extra: NDArray[np.int64], m: int, streams: int) -> Trees:
    """Arenas half as large again as what is live in the fullest tree, and `extra` beyond that.

    Arenas only grow at the top, so what splits leave behind stays until here. Each entry is copied
    O(1) times on average; small arenas, which cost little, get more room, so that a young forest is
    not packed over and over again.
    """
    n_trees = len(trees.tree)
    sizes = np.zeros(3, np.int64)
    most = np.full(3, 16, np.int64)
    for t in range(n_trees):
        arena.live(trees, t, m, streams, sizes)
        np.maximum(most, sizes, out=most)
    slack = np.where(most < _SMALL, 3 * most, most // 2)
    hist, block, point = (most + slack + extra).tolist()
    arenas = allocate(n_trees, 0, hist, block, point)
    new = arenas._replace(tree=trees.tree, node=trees.node, leaf=trees.leaf)
    for t in range(n_trees):
        arena.pack(trees, t, m, streams, new.hist, new.block, new.point, new.score, new.born)
    return new


def is_slack(trees: Trees) -> bool:
    """Whether most of the fringe's arrays is unused: full trees gave their fringe back."""
    return trees.block.nbytes > 4 * len(trees.tree) * (
        int(trees.tree["fringe_bytes"].max()) + 65536
    )


def _capacities(trees: Trees) -> NDArray[np.int64]:
    return np.array([trees.hist.shape[1], trees.block.shape[1], trees.point.shape[1]])


def nbytes(trees: Trees) -> int:
    """Bytes of all arrays as allocated."""
    return sum(array.nbytes for array in trees)
