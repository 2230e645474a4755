"""Making and enlarging the arrays of NCM trees."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.array_table import grown, zeros
from streamforest.kernels.ncm import leaves as ncm_leaves
from streamforest.kernels.ncm.grow import HIST, NODES, ROWS
from streamforest.kernels.ncm.layout import RAW, Tree


def new_tree(
    seed: int, nodes: int, hist: int, rows: int, slots: int, metric: NDArray[np.float32]
) -> Tree:
    """A tree that is one empty leaf, with room for so many nodes, histogram entries and centroids."""
    sizes = {"nodes": nodes, "histogram entries": hist, "centroids": rows, "slots": slots}
    sizes |= {"metric rows": 0, "width": metric.shape[1]}
    tree = zeros(Tree, **sizes)._replace(metric=metric)
    tree.info["seed"] = seed
    tree.info["n_nodes"] = 1
    tree.info["error"] = 0.5
    for array in (tree.label, tree.leaf, tree.next, tree.prev):
        array[:] = -1
    ncm_leaves.new_leaf(tree, 0)
    return tree


def copied(tree: Tree) -> Tree:
    """The same tree in arrays of its own."""
    return tree._replace(**{name: array.copy() for name, array in tree._asdict().items()})


def enlarged(tree: Tree, short: int, rows: int) -> Tree:
    """The same tree with more room in the array that was too small, for so many rows in new leaves."""
    if short == NODES:
        return grown(tree, nodes=2 * len(tree.node))
    if short == HIST:
        return _repacked(tree, rows)
    assert short == ROWS
    return grown(tree, centroids=len(tree.half) + max(len(tree.half) // 2, 64))


def _repacked(tree: Tree, rows: int) -> Tree:
    """Histograms in a new arena, without the gaps between them."""
    used = ncm_leaves.hist_in_use(tree)
    # a histogram that has to grow takes twice what it has, that of a new leaf at most 4 entries a row
    hist = np.zeros(4 * used + 4 * rows + 64, np.int32)
    ncm_leaves.repack(tree, hist)
    return tree._replace(hist=hist)


def with_slots(tree: Tree, slots: int) -> Tree:
    """The same tree for a memory of more slots."""
    old = len(tree.leaf)
    tree = grown(tree, slots=slots)
    for array in (tree.leaf, tree.next, tree.prev):
        array[old:] = -1
    return tree


def widened(tree: Tree, width: int) -> Tree:
    """The same tree for wider rows."""
    rows = 1 if len(tree.metric) == 1 else width
    return grown(tree, **{"width": width, "metric rows": rows})


def with_diagonal(tree: Tree) -> Tree:
    """The same tree with the diagonal of its metric. Splits that exist stay as they are."""
    if len(tree.metric) == 1:
        return tree
    return tree._replace(metric=np.diag(tree.metric)[None, :].copy())


def set_weights(tree: Tree, begin: int, weights: NDArray[np.float32]) -> None:
    """Let columns from `begin` on count in splits to come; no split uses them yet."""
    end = begin + len(weights)
    if len(tree.metric) == 1:
        tree.metric[0, begin:end] = 1.0 if tree.info["metric"][0] == RAW else weights
    else:
        column = np.arange(begin, end)
        tree.metric[column, column] = weights


def trimmed(tree: Tree) -> Tree:
    """The same tree with little slack."""
    info = tree.info[0]
    nodes = int(info["n_nodes"] * 1.25) + 8
    rows = int(info["n_rows"] * 1.25) + 16
    if len(tree.half) > 1.3 * rows:
        tree = tree._replace(
            half=tree.half[:rows].copy(),
            side=tree.side[:rows].copy(),
            label=tree.label[:rows].copy(),
            cen=tree.cen[:rows].copy(),
        )
    if len(tree.node) > 1.3 * nodes:
        tree = tree._replace(node=tree.node[:nodes].copy())
    hist = int(info["hist_top"] * 1.5) + 64  # histograms that have to grow move to its end
    if len(tree.hist) > 1.3 * hist:
        tree = tree._replace(hist=tree.hist[:hist].copy())
    return tree


def nbytes(trees: Iterable[Tree]) -> int:
    """Bytes of all arrays as allocated."""
    return sum(array.nbytes for tree in trees for array in tree)
