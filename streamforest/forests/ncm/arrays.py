"""Making, enlarging and addressing the arrays of NCM trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.ncm import layout as ncm
from streamforest.kernels.ncm import leaves as ncm_leaves
from streamforest.kernels.ncm.grow import HIST, NODES, ROWS
from streamforest.kernels.ncm.layout import NODE, RAW, TABLE_WIDTH, TREE, Tree


def new_tree(
    seed: int, nodes: int, hist: int, rows: int, width: int, slots: int, metric: NDArray[np.float32]
) -> Tree:
    """A tree that is one empty leaf, with room for so much."""
    info = np.zeros(1, TREE)
    info["seed"] = seed
    info["n_nodes"] = 1
    info["error"] = 0.5
    tree = Tree(
        info=info,
        node=np.zeros(nodes, NODE),
        hist=np.zeros(hist, np.int32),
        half=np.zeros(rows, np.float32),
        side=np.zeros(rows, np.uint8),
        label=np.full(rows, -1, np.int32),
        cen=np.zeros((rows, width), np.float32),
        leaf=np.full(slots, -1, np.int32),
        next=np.full(slots, -1, np.int32),
        prev=np.full(slots, -1, np.int32),
        metric=metric,
    )
    ncm_leaves.new_leaf(tree, 0)
    return tree


def copied(tree: Tree) -> Tree:
    """A tree of its own."""
    return tree._replace(**{name: array.copy() for name, array in tree._asdict().items()})


def table_of(trees: Sequence[Tree]) -> NDArray[np.int64]:
    """Addresses for the kernels; they hold as long as these very arrays live."""
    out = np.zeros((len(trees), TABLE_WIDTH), np.int64)
    for t, tree in enumerate(trees):
        out[t] = ncm.addresses(tree)
    return out


def _longer(array: NDArray[Any], size: int, fill: Any = 0) -> NDArray[Any]:
    out = np.full((size, *array.shape[1:]), fill, array.dtype)
    out[: len(array)] = array
    return out


def enlarged(tree: Tree, short: int, rows: int) -> Tree:
    """The same tree with more room where it was short, to put so many rows into new leaves."""
    if short == NODES:
        return tree._replace(node=_longer(tree.node, 2 * len(tree.node), np.zeros((), NODE)))
    if short == HIST:
        return _repacked(tree, rows)
    assert short == ROWS
    size = len(tree.half) + max(len(tree.half) // 2, 64)
    return tree._replace(
        half=_longer(tree.half, size),
        side=_longer(tree.side, size),
        label=_longer(tree.label, size),
        cen=_longer(tree.cen, size),
    )


def _repacked(tree: Tree, rows: int) -> Tree:
    """Histograms in a new arena, without the gaps that moved ones left."""
    used = ncm_leaves.hist_in_use(tree)
    # a leaf that moves to a larger place takes twice what it has, a new one at most 4 a row
    hist = np.zeros(4 * used + 4 * rows + 64, np.int32)
    ncm_leaves.repack(tree, hist)
    return tree._replace(hist=hist)


def with_slots(tree: Tree, slots: int) -> Tree:
    """The same tree in a memory of more slots."""
    return tree._replace(
        leaf=_longer(tree.leaf, slots, -1),
        next=_longer(tree.next, slots, -1),
        prev=_longer(tree.prev, slots, -1),
    )


def widened(tree: Tree, width: int) -> Tree:
    """The same tree for wider rows."""
    old = tree.cen.shape[1]
    cen = np.zeros((len(tree.cen), width), np.float32)
    cen[:, :old] = tree.cen
    metric = np.zeros((1 if len(tree.metric) == 1 else width, width), np.float32)
    metric[: len(tree.metric), :old] = tree.metric
    return tree._replace(cen=cen, metric=metric)


def flattened(tree: Tree) -> Tree:
    """The same tree, of whose metric the diagonal is left: splits that stand stay as they are."""
    if len(tree.metric) == 1:
        return tree
    return tree._replace(metric=np.diag(tree.metric)[None, :].copy())


def weigh(tree: Tree, begin: int, weights: NDArray[np.float32]) -> None:
    """Let columns from `begin` on count, which no split of the tree uses yet."""
    end = begin + len(weights)
    if len(tree.metric) == 1:
        tree.metric[0, begin:end] = 1.0 if tree.info["metric"][0] == RAW else weights
    else:
        at = np.arange(begin, end)
        tree.metric[at, at] = weights


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
    hist = int(info["hist_top"] * 1.5) + 64  # leaves that grow move to its end
    if len(tree.hist) > 1.3 * hist:
        tree = tree._replace(hist=tree.hist[:hist].copy())
    return tree


def nbytes(trees: Sequence[Tree]) -> int:
    """Bytes of all arrays as allocated."""
    return sum(array.nbytes for tree in trees for array in tree)
