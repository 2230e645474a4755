"""The bounds of rows with many columns: beyond WIDE of them an NCM forest keeps fewer rows and smaller trees.

The bounds follow from the number of columns alone, so from the rows that were learned: they are the same for
any batch size, before and after a snapshot is loaded. They take effect at the end of the epoch that brought
the columns, when these begin to count; until then trees stay as wide as they were.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.kernels.ncm import filling, node_sampling, rust
from streamforest.kernels.ncm.grow import FITS
from streamforest.kernels.ncm.layout import Memory, Tree
from streamforest.kernels.ncm.row_memory import padded

FULL_WIDTH = 320
"""Columns up to which the covariance within the classes is kept whole."""

WIDE = 1_024
"""Columns up to which the memory and the trees are as large as the parameters say."""

CENTROIDS = 3
"""Centroids of a tree for each row of the memory, at most."""

_ROW_NUMBERS = 1 << 22  # that rows may take (16 MB), even if fewer rows were asked for
_CENTROID_NUMBERS = 1 << 24  # that the centroids of all trees may take (64 MB)


def rows_for(memory: int, columns: int) -> int:
    """Rows to keep: they take no more memory than `memory` rows of WIDE columns."""
    if columns <= WIDE:
        return memory
    return min(memory, max(memory * WIDE, _ROW_NUMBERS) // columns)


def centroids_for(memory: int, n_trees: int, columns: int) -> int:
    """Centroids that a tree may have."""
    bound = CENTROIDS * memory + EPOCH
    if columns <= WIDE:
        return bound
    return min(bound, max(2, _CENTROID_NUMBERS // (n_trees * padded(columns))))


def cut(
    tree: Tree, max_centroids: int, memory: Memory, slots: NDArray[np.int32], bagged: int
) -> Tree:
    """The tree with at most so many centroids: upper nodes stay, what is below becomes one leaf each.

    `slots` are those of its rows, in the order of their numbers. The given tree is not changed.
    """
    if int(tree.info["n_rows"][0]) <= max_centroids:
        return tree
    tree = compacted(tree, slots)  # upper nodes first
    node = tree.node[: tree.info["n_nodes"][0]]
    left = node["left"].astype(np.int64)
    cut_off = (left >= 0) & (np.cumsum(node["k"], dtype=np.int64) > max_centroids)
    splits = np.flatnonzero(left >= 0)
    parent = np.zeros(len(node), np.int64)
    parent[left[splits]] = parent[left[splits] + 1] = splits
    leaf = np.arange(len(node))
    leaf[1:] = np.where(cut_off[parent[1:]], parent[1:], leaf[1:])
    while (above := leaf[leaf]).tolist() != leaf.tolist():
        leaf = above
    node["left"][cut_off], node["first"][cut_off], node["k"][cut_off] = -1, 0, 0
    tree.leaf[slots] = leaf[tree.leaf[slots]]
    while filling.refill(tree, memory, slots, bagged) != FITS:
        tree = tree._replace(hist=np.zeros(2 * len(tree.hist), np.int32))
    return ncm_arrays.trimmed(compacted(tree, slots))


def compacted(tree: Tree, slots: NDArray[np.int32]) -> Tree:
    """The same tree without unused nodes, upper ones first."""
    to = ncm_arrays.copied(tree)
    node_sampling.compact(tree, slots, to)
    rust.relink(to, slots)
    return to
