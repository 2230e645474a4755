"""Trees with candidate splits as the arrays of a snapshot, and the checks before they are believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.candidate.arrays import allocate
from streamforest.forests.core.capacity import CATEGORY
from streamforest.forests.core.serialization import LARGEST, demand, demand_trees
from streamforest.kernels.candidate import export as kernels
from streamforest.kernels.candidate.export import Flat
from streamforest.kernels.candidate.fringe import FULL_COUNT, block_size
from streamforest.kernels.candidate.layout import TREE, Trees
from streamforest.kernels.core.entropy import XLOGX
from streamforest.kernels.core.notice import Announced

_CLOCKS = ("n_seen", "n_estimation", "n_oob", "oob_errors")
_restore = Announced(kernels.restore, "snapshot")
_export = Announced(kernels.export, "snapshot")


class _Shape(NamedTuple):
    """What indices in the arrays may refer to."""

    m: int
    streams: int
    classes: int
    kinds: NDArray[np.int64]  # of the features


def dump(trees: Trees, m: int, streams: int) -> dict[str, NDArray[Any]]:
    """The arrays of a snapshot."""
    sizes = np.zeros(len(kernels.SIZES), np.int64)
    kernels.measure(trees, m, streams, sizes)
    flat = kernels.empty(len(trees.tree), sizes)
    _export.run(trees, m, streams, flat)
    arrays = {f"tree.{name}": trees.tree[name].copy() for name in ("seed", *_CLOCKS)}
    return arrays | {f"nodes.{name}": array for name, array in flat._asdict().items()}


def restore(
    take: Callable[..., NDArray[Any]],
    n_trees: int,
    m: int,
    streams: int,
    classes: int,
    kinds: NDArray[np.int64],
    categorical: NDArray[np.uint8],
) -> Trees:
    """The trees that `dump` described; `take(name, dtype, size)` gives an array or refuses it."""
    tree = np.zeros(n_trees, TREE)
    tree["seed"] = take("tree.seed", np.uint64, n_trees)
    for name in _CLOCKS:
        tree[name] = take(f"tree.{name}", np.int64, n_trees)
        demand((tree[name] >= 0) & (tree[name] <= LARGEST), f"tree.{name}")
    demand(tree["n_estimation"] <= tree["n_seen"], "tree.n_estimation")
    demand(tree["n_oob"] <= tree["n_seen"], "tree.n_oob")
    demand(tree["oob_errors"] <= tree["n_oob"], "tree.oob_errors")
    like = kernels.empty(0, np.zeros(len(kernels.SIZES), np.int64))._asdict()
    flat = Flat(**{name: take(f"nodes.{name}", array.dtype) for name, array in like.items()})
    shape = _Shape(m, streams, classes, kinds)
    _check_nodes(flat, n_trees, shape)
    leaves, hist = _check_leaves(flat, shape, tree)
    block, point = _check_fringe(flat, shape, tree, leaves)
    trees = allocate(
        n_trees,
        nodes=max(8, int(flat.n_nodes.max())),
        hist=max(16, hist),
        block=max(64, block),
        point=max(8, point),
    )._replace(tree=tree)
    _restore.run(trees, m, streams, categorical, flat, XLOGX)
    return trees


def _check_nodes(flat: Flat, n_trees: int, shape: _Shape) -> None:
    """Each tree is one, and splits on what the features hold."""
    size = len(flat.feature)
    demand(len(flat.n_nodes) == n_trees and (flat.n_nodes >= 1).all(), "n_nodes")
    demand_trees(flat.n_nodes, flat.feature, flat.left)
    for name in ("threshold", "missing_right"):
        demand(len(getattr(flat, name)) == size, name)
    inner = flat.feature >= 0
    demand(flat.feature < len(shape.kinds), "feature")
    kinds = np.append(shape.kinds, 0)
    demand(kinds[flat.feature[inner]] > 0, "a split on a feature without values")
    demand(np.isfinite(flat.threshold) & (inner | (flat.threshold == 0)), "threshold")
    sets = inner & (kinds[flat.feature] == CATEGORY)
    demand(_names_categories(flat.threshold[sets]), "threshold of a category")
    demand((flat.missing_right <= 1) & (inner | (flat.missing_right == 0)), "missing_right")


def _names_categories(points: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Codes and salts of sets are whole numbers."""
    whole: NDArray[np.bool_] = (points == np.floor(points)) & (np.abs(points) <= LARGEST)
    return whole


def _distinct(owner: NDArray[Any], value: NDArray[Any], span: int) -> bool:
    """Whether no owner has the same value (0 ≤ value < span) twice."""
    keys = owner.astype(np.int64) * max(1, span) + value
    return len(np.unique(keys)) == len(keys)


def _per_tree(owner: NDArray[Any], size: NDArray[Any], n_trees: int) -> int:
    """The largest sum of `size` over the things of one tree."""
    if len(owner) == 0:
        return 0
    return int(np.bincount(owner, weights=size.astype(np.float64), minlength=n_trees).max())


def _check_leaves(
    flat: Flat, shape: _Shape, tree: NDArray[np.void]
) -> tuple[NDArray[np.int64], int]:
    """Histograms fit their leaves. Returns the tree of each leaf, and the largest histogram arena."""
    leaf_tree = np.repeat(np.arange(len(tree)), flat.n_nodes)[flat.feature < 0]
    n = len(leaf_tree)
    for name in ("n_classes", "errors", "born", "active"):
        demand(len(getattr(flat, name)) == n, name)
    classes = shape.classes
    demand((flat.n_classes >= 0) & (flat.n_classes <= classes), "n_classes")
    size = int(flat.n_classes.sum(dtype=np.int64))
    demand(len(flat.leaf_class) == size and len(flat.leaf_count) == size, "leaf_class")
    demand((flat.leaf_class >= 0) & (flat.leaf_class < classes), "leaf_class")
    demand((flat.leaf_count >= 1) & (flat.leaf_count <= LARGEST // (classes + 1)), "leaf_count")
    demand(
        _distinct(np.repeat(np.arange(n), flat.n_classes), flat.leaf_class, classes), "leaf_class"
    )
    demand((flat.errors >= 0) & (flat.errors <= LARGEST), "errors")
    demand((flat.born >= 0) & (flat.born <= tree["n_estimation"][leaf_tree]), "born")
    demand(flat.active <= 1, "active")
    return leaf_tree, 2 * _per_tree(leaf_tree, flat.n_classes, len(tree))


def _check_fringe(
    flat: Flat, shape: _Shape, tree: NDArray[np.void], leaf_tree: NDArray[np.int64]
) -> tuple[int, int]:
    """Candidate splits fit their leaves. Returns the largest block and point arenas of a tree."""
    m, streams = shape.m, shape.streams
    features, classes = len(shape.kinds), shape.classes
    owner = leaf_tree[flat.active == 1]
    for name in ("n_dims", "drawn_from", "reserved", "met", "rows"):
        demand(len(getattr(flat, name)) == len(owner), name)
    demand((flat.drawn_from >= 1) & (flat.drawn_from <= features), "drawn_from")
    demand((flat.n_dims >= 1) & (flat.n_dims <= flat.drawn_from), "n_dims")
    demand((flat.reserved >= 1) & (flat.reserved <= max(1, classes)), "reserved")
    demand((flat.rows >= -1) & (flat.rows <= classes), "rows")
    opened = flat.rows >= 0
    n_dims, rows = flat.n_dims[opened].tolist(), flat.rows[opened].tolist()
    n = len(n_dims)
    demand(len(flat.dims) == sum(n_dims) and len(flat.filled) == sum(n_dims), "dims")
    demand(len(flat.row_class) == sum(rows), "row_class")
    demand(len(flat.counts) == sum(2 * streams * m * d * r for d, r in zip(n_dims, rows)), "counts")
    n_points = m * sum(n_dims)
    demand(len(flat.point) == n_points and len(flat.point_born) == n_points, "point")
    of_dim = np.repeat(np.arange(n), n_dims)
    demand((flat.dims >= 0) & (flat.dims < flat.drawn_from[opened][of_dim]), "dims")
    demand(_distinct(of_dim, flat.dims, features), "dims")
    demand((flat.filled >= 0) & (flat.filled <= m), "filled")
    demand((flat.row_class >= 0) & (flat.row_class < classes), "row_class")
    demand(_distinct(np.repeat(np.arange(n), rows), flat.row_class, classes), "row_class")
    demand((flat.met >= 0) & (flat.met < 2 * FULL_COUNT - 1), "met")
    demand(flat.counts >= 0, "counts")
    at = 0
    for d, r, met in zip(n_dims, rows, flat.met[opened].tolist()):
        size = 2 * streams * m * d
        totals = flat.counts[at : at + r * size].reshape(r, size).sum(axis=0, dtype=np.int64)
        demand(totals <= met, "counts")
        at += r * size
    kinds = np.append(shape.kinds, 0)
    demand((flat.filled == 0) | (kinds[flat.dims] > 0), "a candidate on a feature without values")
    empty = np.arange(m)[None, :] >= flat.filled[:, None]
    demand(np.isfinite(flat.point), "point")
    sets = np.repeat(kinds[flat.dims] == CATEGORY, m)
    demand(_names_categories(flat.point[sets]), "point of a category")
    demand((flat.point.reshape(-1, m) == 0) | ~empty, "point")
    clock = tree["n_estimation"][owner[opened]][of_dim]
    born = flat.point_born.reshape(-1, m)
    demand((born >= 0) & (born <= clock[:, None]) & (~empty | (born == 0)), "point_born")
    room = np.maximum(2, np.maximum(flat.reserved[opened], flat.rows[opened]))
    sizes = [block_size(d, m, streams, r) for d, r in zip(n_dims, room.tolist())]
    return (
        _per_tree(owner[opened], np.array(sizes, np.float64), len(tree)),
        _per_tree(owner[opened], m * flat.n_dims[opened], len(tree)),
    )
