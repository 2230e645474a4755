"""The trees of an NCM forest in a snapshot, and the checks before they are believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.serialization import LARGEST, demand, demand_trees
from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.ncm.jobs import MOST_KEPT, MOST_ROUNDS, Job
from streamforest.kernels.ncm import bagging, rust
from streamforest.kernels.ncm.blending import EVENTS
from streamforest.kernels.ncm.class_means import FULL_WIDTH
from streamforest.kernels.ncm.grow import FITS
from streamforest.kernels.ncm.layout import FULL_PLAIN, METRICS, Tree
from streamforest.kernels.ncm.row_memory import padded

if TYPE_CHECKING:
    from streamforest.forests.ncm.forest import NCMForestClassifier

Take = Callable[..., NDArray[Any]]
_CLOCKS = (
    "draws", "rounds", "bag", "grown_bag", "born", "kept", "metric", "errors", "nears",
)  # fmt: skip
_SHARES = ("error", "near")


def wide(array: NDArray[Any], rows: int, width: int) -> NDArray[Any]:
    """A matrix with so many rows and columns: what is missing is zero."""
    out = np.zeros((rows, width), array.dtype)
    rows, width = min(rows, len(array)), min(width, array.shape[1])
    out[:rows, :width] = array[:rows, :width]
    return out


def side_of(forest: NCMForestClassifier) -> int:
    """Columns of whole metrics: all of them; those that count already where there are too many."""
    whole = forest._n_columns <= FULL_WIDTH
    return forest._n_columns if whole else forest._old_columns


def dump_trees(
    forest: NCMForestClassifier, trees: list[Tree], order: NDArray[np.int32]
) -> dict[str, NDArray[Any]]:
    """All trees, those under way last, of which each row's leaf is told by `order`."""
    standing, width, side = forest.n_trees, forest._n_columns, side_of(forest)
    for t, job in enumerate(forest._rounds.jobs, standing):  # of which this much will be left
        trees[t] = _lessened(forest, trees[t], order, job.scene.born)
    info = np.concatenate([tree.info for tree in trees])
    out: dict[str, NDArray[Any]] = {f"tree.{name}": info[name] for name in (*_CLOCKS, *_SHARES)}
    out["tree.seed"] = info["seed"][:standing]
    out["tree.n_nodes"] = info["n_nodes"]
    nodes = [tree.node[: tree.info["n_nodes"][0]] for tree in trees]
    for name, field in (("left", "left"), ("n_centroids", "k"), ("due", "due")):
        out[f"node.{name}"] = np.concatenate([node[field] for node in nodes])
    rows = [_centroids(node) for node in nodes]
    for name in ("half", "side", "label"):
        out[f"centroid.{name}"] = np.concatenate(
            [getattr(tree, name)[at] for tree, at in zip(trees, rows)]
        )
    used = _columns_of_trees(forest)
    out["centroid.values"] = np.concatenate(
        [wide(tree.cen[at], len(at), used).ravel() for tree, at in zip(trees, rows)]
    )
    # by what the columns need: how much wider the arrays are depends on how the columns came
    rows_of = [1 if len(tree.metric) == 1 else padded(side) for tree in trees]
    out["tree.metric_rows"] = np.array(rows_of, np.int64)
    out["tree.weights"] = np.concatenate(
        # a tree from before the newest columns has less than these; they count for nothing in it yet
        [
            wide(tree.metric, *((1, width) if len(tree.metric) == 1 else (side, side))).ravel()
            for tree in trees
        ]
    )
    leaf = np.full((len(trees), len(order)), -1, np.int32)
    numbers = forest._memory.number[order]
    for t, tree in enumerate(trees):
        known = numbers < LARGEST
        if t >= standing:  # rows that came since are not in it yet
            known = numbers < forest._rounds.jobs[t - standing].scene.born
        leaf[t, known] = tree.leaf[order[known]]
    out["memory.leaf"] = leaf
    return out


def _columns_of_trees(forest: NCMForestClassifier) -> int:
    """Columns that splits can use: where there are very many, those that count already."""
    wide = forest._n_columns > ncm_width.WIDE
    return forest._old_columns if wide else forest._n_columns


def _lessened(forest: NCMForestClassifier, tree: Tree, order: NDArray[np.int32], born: int) -> Tree:
    """A tree under way, which was begun when there were fewer columns, as it will be put in place."""
    if forest._old_columns > FULL_WIDTH:
        tree = ncm_arrays.flattened(tree)
    if forest._old_columns > ncm_width.WIDE:
        most, bagged = (int(forest._params[name][0]) for name in ("max_rows", "bagged"))
        rows = order[forest._memory.number[order] < born]
        tree = ncm_width.cut(tree, most, forest._memory, rows, bagged)
    return tree


def _centroids(node: NDArray[np.void]) -> NDArray[np.int64]:
    """The rows of centroids in the order of the nodes."""
    k = node["k"].astype(np.int64)
    start = np.cumsum(k) - k
    return np.repeat(node["first"] - start, k) + np.arange(int(k.sum()))


def take_trees(
    forest: NCMForestClassifier,
    take: Take,
    jobs: list[Job],
    columns: int,
    slots: int,
) -> list[Tree]:
    """All trees, those under way last."""
    n_trees, n = forest.n_trees, forest.n_trees + len(jobs)
    seeds = take("tree.seed", np.uint64, n_trees)
    clocks = {name: take(f"tree.{name}", np.int64, n) for name in _CLOCKS}
    _demand_clocks(forest, clocks, jobs)
    shares = {name: take(f"tree.{name}", np.float64, n) for name in _SHARES}
    demand((shares["error"] >= 0) & (shares["error"] <= 1), "tree.error")
    demand((shares["near"] >= 0) & (shares["near"] < 1e300), "tree.near")
    n_nodes = take("tree.n_nodes", np.int64, n)
    left, k = take("node.left", np.int32), take("node.n_centroids", np.int32)
    due = take("node.due", np.int32, len(left))
    demand(len(k) == len(left), "node.n_centroids")
    demand(n_nodes >= 1, "tree.n_nodes")
    demand(n_nodes <= int(forest._params["max_nodes"][0]), "tree.n_nodes")
    demand_trees(n_nodes, np.where(left >= 0, 0, -1), left)
    demand(np.where(left >= 0, k >= 1, k == 0), "node.n_centroids")
    demand((due >= 0) & ((left < 0) | (due == 0)), "node.due")
    total = int(k.sum(dtype=np.int64))
    half, side = take("centroid.half", np.float32, total), take("centroid.side", np.uint8, total)
    label = take("centroid.label", np.int32, total)
    demand(np.isfinite(half), "centroid.half")
    demand(side <= 1, "centroid.side")
    demand((label >= -1) & (label < len(forest._labels)), "centroid.label")
    cen = take("centroid.values", np.float32)
    per_row = columns if len(cen) == total * columns else _columns_of_trees(forest)
    demand(len(cen) == total * per_row and np.isfinite(cen).all(), "centroid.values")
    cen = cen.reshape(total, per_row)
    metric_rows = take("tree.metric_rows", np.int64, n)
    weights = take("tree.weights", np.float32)
    demand(np.isfinite(weights), "tree.weights")
    rows = forest._n_rows
    leaf = take("memory.leaf", np.int32, n * rows).reshape(n, rows)
    out = []
    at_node = at_row = at_weight = 0
    for t in range(n):
        nodes = slice(at_node, at_node + int(n_nodes[t]))
        used = int(k[nodes].sum(dtype=np.int64))
        own = slice(at_row, at_row + used)
        metric, size = _metric_at(forest, weights, at_weight, int(metric_rows[t]))
        demand(len(metric) == 1 or clocks["metric"][t] >= FULL_PLAIN, "tree.metric_rows")
        at_node, at_row, at_weight = nodes.stop, own.stop, at_weight + size
        tree = ncm_arrays.new_tree(
            int(seeds[t] if t < n_trees else seeds[jobs[t - n_trees].t]),
            nodes=int(n_nodes[t] * 1.25) + 8,
            hist=max(64, 8 * rows),
            rows=int(used * 1.25) + 16,
            width=metric.shape[1],
            slots=slots,
            metric=metric,
        )
        for name, values in (*clocks.items(), *shares.items()):
            tree.info[name] = values[t]
        tree.info["n_nodes"], tree.info["n_rows"] = n_nodes[t], used
        node = tree.node[: n_nodes[t]]
        node["left"], node["k"], node["due"] = left[nodes], k[nodes], due[nodes]
        node["first"] = np.where(node["k"] > 0, np.cumsum(node["k"]) - node["k"], 0)
        node["head"] = -1
        tree.half[:used], tree.side[:used], tree.label[:used] = half[own], side[own], label[own]
        tree.cen[:used, :per_row] = cen[own, : tree.cen.shape[1]]
        born = forest._n_learned if t < n_trees else jobs[t - n_trees].scene.born
        out.append(_filled(forest, tree, leaf[t], node, born))
    demand(at_weight == len(weights), "tree.weights")
    return out


def _demand_clocks(
    forest: NCMForestClassifier, clocks: dict[str, NDArray[np.int64]], jobs: list[Job]
) -> None:
    """What trees count; each of these is an index of draws, or says how often something is done."""
    rounds = clocks["rounds"]
    demand((rounds >= 0) & (rounds <= MOST_ROUNDS), "tree.rounds")
    most: dict[str, Any] = {
        "draws": (rounds << 32) + LARGEST,
        "bag": rounds,
        "grown_bag": rounds,
        "kept": rounds,
        "metric": METRICS - 1,
        "born": np.array([forest._n_learned] * forest.n_trees + [job.scene.born for job in jobs]),
    }
    for name, values in clocks.items():
        demand((values >= 0) & (values <= most.get(name, LARGEST)), f"tree.{name}")
    # files from before these had a bound
    np.minimum(clocks["kept"], MOST_KEPT, out=clocks["kept"])
    np.minimum(clocks["errors"], forest._tally[EVENTS], out=clocks["errors"])


def _metric_at(
    forest: NCMForestClassifier, weights: NDArray[np.float32], at: int, rows: int
) -> tuple[NDArray[np.float32], int]:
    """The metric that begins at an entry of `weights`, with room, and how many entries it takes."""
    columns, side = forest._n_columns, side_of(forest)
    if rows == 1:
        flat = weights[at : at + columns]
        demand(len(flat) == columns and (flat >= 0).all(), "tree.weights")
        return wide(flat[None, :], 1, padded(_columns_of_trees(forest))), columns
    if columns > FULL_WIDTH and rows == padded(columns):
        side = columns  # written when whole metrics were still widened beyond FULL_WIDTH
    demand(rows == padded(side) and forest._parameters["split"] == "ncm", "tree.metric_rows")
    whole = weights[at : at + side * side]
    demand(len(whole) == side * side, "tree.weights")
    whole = whole.reshape(side, side)
    if side > FULL_WIDTH and forest._old_columns > FULL_WIDTH:
        demand(np.diag(whole) >= 0, "tree.weights")
        return wide(np.diag(whole)[None, :], 1, padded(columns)), side * side
    width = padded(min(side, side_of(forest)))
    return wide(whole[:width, :width], width, width), side * side


def _filled(
    forest: NCMForestClassifier,
    tree: Tree,
    leaf: NDArray[np.int32],
    node: NDArray[np.void],
    born: int,
) -> Tree:
    """The tree with its rows in their leaves: those that were learned before it was `born`.

    Later ones are put in when its time comes; one that is there already would be linked twice.
    """
    demand((leaf >= -1) & (leaf < len(node)), "memory.leaf")
    held = np.flatnonzero(leaf >= 0).astype(np.int32)
    demand((leaf >= 0) == (forest._memory.number[: len(leaf)] < born), "memory.leaf")
    demand(node["left"][leaf[held]] == -1, "memory.leaf")
    tree.leaf[held] = leaf[held]
    bagged = int(forest._params["bagged"][0])
    due = node["due"].copy()
    while bagging.refill(tree, forest._memory, held, bagged) != FITS:
        tree = tree._replace(hist=np.zeros(2 * len(tree.hist), np.int32))
    node["due"] = due
    rust.relink(tree, held)
    return tree
