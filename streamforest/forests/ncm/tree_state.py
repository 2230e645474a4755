"""The trees of an NCM forest in a snapshot, and the checks before they are used."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.serialization import LARGEST, demand, demand_trees
from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.ncm.column_scales import ColumnTable, Take
from streamforest.forests.ncm.retraining import Parts
from streamforest.forests.ncm.row_memory import RowMemory
from streamforest.forests.ncm.training import MAX_KEPT, MAX_ROUNDS, RetrainJob
from streamforest.kernels.core.array_table import widened
from streamforest.kernels.ncm import filling, rust
from streamforest.kernels.ncm.grow import FITS
from streamforest.kernels.ncm.layout import FULL_IDENTITY, METRICS, Tree
from streamforest.kernels.ncm.row_memory import padded

_COUNTERS = (
    "draws", "rounds", "bag", "grown_bag", "born", "kept", "metric", "errors", "nears",
)  # fmt: skip
_SHARES = ("error", "near")


def dump_trees(parts: Parts, jobs: list[RetrainJob]) -> dict[str, NDArray[Any]]:
    """All trees, those of jobs last, with the leaf of each row in memory."""
    columns, memory, _, _, store = parts
    slots, numbers = memory.slots, memory.arrays.number[memory.slots]
    trees = [*store, *(_as_swapped(parts, job) for job in jobs)]
    info = np.concatenate([tree.info for tree in trees])
    out: dict[str, NDArray[Any]] = {f"tree.{name}": info[name] for name in (*_COUNTERS, *_SHARES)}
    out["tree.seed"] = info["seed"][: len(store)]
    out["tree.n_nodes"] = info["n_nodes"]
    nodes = [tree.node[: tree.info["n_nodes"][0]] for tree in trees]
    for name, field in (("left", "left"), ("n_centroids", "k"), ("due", "due")):
        out[f"node.{name}"] = np.concatenate([node[field] for node in nodes])
    centroids = [_centroids(node) for node in nodes]
    for name in ("half", "side", "label"):
        out[f"centroid.{name}"] = np.concatenate(
            [getattr(tree, name)[rows] for tree, rows in zip(trees, centroids)]
        )
    out["centroid.values"] = np.concatenate(
        [
            _resized(tree.cen[rows], len(rows), columns.in_trees)
            for tree, rows in zip(trees, centroids)
        ],
        axis=None,
    )
    # by what the columns need: how much wider the arrays are depends on how the columns came
    side = columns.in_matrix
    rows_of = [1 if len(tree.metric) == 1 else padded(side) for tree in trees]
    out["tree.metric_rows"] = np.array(rows_of, np.int64)
    # a tree from before the newest columns has fewer; their weight is zero
    out["tree.weights"] = np.concatenate(
        [
            _resized(tree.metric, *((1, columns.n) if len(tree.metric) == 1 else (side, side)))
            for tree in trees
        ],
        axis=None,
    )
    leaf = np.full((len(trees), len(slots)), -1, np.int32)
    for t, tree in enumerate(trees):
        # in the tree of a job rows that came since are still missing
        born = LARGEST if t < len(store) else jobs[t - len(store)].view.born
        known = numbers < born
        leaf[t, known] = tree.leaf[slots[known]]
    out["memory.leaf"] = leaf
    return out


def _resized(array: NDArray[Any], rows: int, width: int) -> NDArray[Any]:
    """A matrix with so many rows and columns: cut, or filled up with zeros."""
    return widened(array[:rows, :width], (rows, width))


def _as_swapped(parts: Parts, job: RetrainJob) -> Tree:
    """The tree of a job, started when there were fewer columns, as it will be swapped in."""
    columns, memory, _, _, trees = parts
    tree = job.tree()
    if columns.counting > ncm_width.FULL_WIDTH:
        tree = ncm_arrays.with_diagonal(tree)
    if columns.counting > ncm_width.WIDE:
        slots = memory.slots[memory.arrays.number[memory.slots] < job.view.born]
        max_centroids = int(trees.params["max_rows"][0])
        tree = ncm_width.cut(tree, max_centroids, memory.arrays, slots, trees.bagged)
    return tree


def _centroids(node: NDArray[np.void]) -> NDArray[np.int64]:
    """The rows of centroids in the order of the nodes."""
    k = node["k"].astype(np.int64)
    start = np.cumsum(k) - k
    return np.repeat(node["first"] - start, k) + np.arange(int(k.sum()))


# ---- back


class _Nodes(NamedTuple):
    """The nodes and centroids of all trees, one after the other."""

    n: NDArray[np.int64]  # of each tree
    left: NDArray[np.int32]
    k: NDArray[np.int32]
    due: NDArray[np.int32]
    half: NDArray[np.float32]
    side: NDArray[np.uint8]
    label: NDArray[np.int32]
    cen: NDArray[np.float32]  # [centroids, columns]


def restore_trees(
    take: Take, parts: Parts, jobs: list[RetrainJob], classes: int, learned: int
) -> None:
    """The trees that `dump_trees` described, checked; jobs get theirs as well."""
    columns, memory, _, blend, store = parts
    n_trees, n = len(store), len(store) + len(jobs)
    seeds = take("tree.seed", np.uint64, n_trees)
    born = np.array([learned] * n_trees + [job.view.born for job in jobs], np.int64)
    counters = _take_counters(take, born, blend.events)
    shares = {name: take(f"tree.{name}", np.float64, n) for name in _SHARES}
    demand((shares["error"] >= 0) & (shares["error"] <= 1), "tree.error")
    demand((shares["near"] >= 0) & (shares["near"] < 1e300), "tree.near")
    nodes = _take_nodes(take, n, int(store.params["max_nodes"][0]), columns, classes)
    metric_rows = take("tree.metric_rows", np.int64, n)
    weights = take("tree.weights", np.float32)
    demand(np.isfinite(weights), "tree.weights")
    leaf = take("memory.leaf", np.int32, n * memory.n).reshape(n, memory.n)
    trees = []
    first_node = first_centroid = first_weight = 0
    whole_allowed = not store.params["svm"][0]
    for t in range(n):
        own = slice(first_node, first_node + int(nodes.n[t]))
        used = int(nodes.k[own].sum(dtype=np.int64))
        rows = slice(first_centroid, first_centroid + used)
        demand(metric_rows[t] == 1 or whole_allowed, "tree.metric_rows")
        metric, size = _metric(columns, weights[first_weight:], int(metric_rows[t]))
        demand(len(metric) == 1 or counters["metric"][t] >= FULL_IDENTITY, "tree.metric_rows")
        first_node, first_centroid, first_weight = own.stop, rows.stop, first_weight + size
        tree = ncm_arrays.new_tree(
            int(seeds[t] if t < n_trees else seeds[jobs[t - n_trees].t]),
            nodes=int(nodes.n[t] * 1.25) + 8,
            hist=max(64, 8 * memory.n),
            rows=int(used * 1.25) + 16,
            slots=len(memory.arrays.label),
            metric=metric,
        )
        for name, values in (*counters.items(), *shares.items()):
            tree.info[name] = values[t]
        tree.info["n_nodes"], tree.info["n_rows"] = nodes.n[t], used
        _write_nodes(tree, nodes, own, rows)
        trees.append(_filled(tree, memory, leaf[t], int(born[t]), store.bagged))
    demand(first_weight == len(weights), "tree.weights")
    store.replace_all(trees[:n_trees])
    for job, tree in zip(jobs, trees[n_trees:]):
        job.result = tree


def _take_counters(
    take: Take, born: NDArray[np.int64], events: int
) -> dict[str, NDArray[np.int64]]:
    """What trees count; each of these is an index of draws, or says how often something is done."""
    counters = {name: take(f"tree.{name}", np.int64, len(born)) for name in _COUNTERS}
    rounds = counters["rounds"]
    demand((rounds >= 0) & (rounds <= MAX_ROUNDS), "tree.rounds")
    bounds: dict[str, Any] = {
        "draws": (rounds << 32) + LARGEST,
        "bag": rounds,
        "grown_bag": rounds,
        "kept": rounds,
        "metric": METRICS - 1,
        "born": born,
    }
    for name, values in counters.items():
        demand((values >= 0) & (values <= bounds.get(name, LARGEST)), f"tree.{name}")
    # files from before these had a bound
    np.minimum(counters["kept"], MAX_KEPT, out=counters["kept"])
    np.minimum(counters["errors"], events, out=counters["errors"])
    return counters


def _take_nodes(take: Take, n: int, max_nodes: int, columns: ColumnTable, classes: int) -> _Nodes:
    n_nodes = take("tree.n_nodes", np.int64, n)
    left, k = take("node.left", np.int32), take("node.n_centroids", np.int32)
    due = take("node.due", np.int32, len(left))
    demand(len(k) == len(left), "node.n_centroids")
    demand((n_nodes >= 1) & (n_nodes <= max_nodes), "tree.n_nodes")
    demand_trees(n_nodes, np.where(left >= 0, 0, -1), left)
    demand(np.where(left >= 0, k >= 1, k == 0), "node.n_centroids")
    demand((due >= 0) & ((left < 0) | (due == 0)), "node.due")
    total = int(k.sum(dtype=np.int64))
    half, side = take("centroid.half", np.float32, total), take("centroid.side", np.uint8, total)
    label = take("centroid.label", np.int32, total)
    demand(np.isfinite(half), "centroid.half")
    demand(side <= 1, "centroid.side")
    demand((label >= -1) & (label < classes), "centroid.label")
    cen = take("centroid.values", np.float32)
    per_row = columns.n if len(cen) == total * columns.n else columns.in_trees
    demand(len(cen) == total * per_row and np.isfinite(cen).all(), "centroid.values")
    return _Nodes(n_nodes, left, k, due, half, side, label, cen.reshape(total, per_row))


def _metric(
    columns: ColumnTable, weights: NDArray[np.float32], rows: int
) -> tuple[NDArray[np.float32], int]:
    """The metric that `weights` begin with, padded, and how many entries it takes."""
    n, side = columns.n, columns.in_matrix
    if rows == 1:
        row = weights[:n]
        demand(len(row) == n and (row >= 0).all(), "tree.weights")
        return _resized(row[None, :], 1, padded(columns.in_trees)), n
    if n > ncm_width.FULL_WIDTH and rows == padded(n):
        side = n  # written when whole metrics were still widened beyond FULL_WIDTH
    demand(rows == padded(side), "tree.metric_rows")
    whole = weights[: side * side]
    demand(len(whole) == side * side, "tree.weights")
    whole = whole.reshape(side, side)
    if side > ncm_width.FULL_WIDTH and columns.counting > ncm_width.FULL_WIDTH:
        demand(np.diag(whole) >= 0, "tree.weights")
        return _resized(np.diag(whole)[None, :], 1, padded(n)), side * side
    width = padded(min(side, columns.in_matrix))
    return _resized(whole, width, width), side * side


def _write_nodes(tree: Tree, nodes: _Nodes, own: slice, rows: slice) -> None:
    """Nodes `own` with the centroids `rows` of all."""
    used = rows.stop - rows.start
    node = tree.node[: own.stop - own.start]
    node["left"], node["k"], node["due"] = nodes.left[own], nodes.k[own], nodes.due[own]
    node["first"] = np.where(node["k"] > 0, np.cumsum(node["k"]) - node["k"], 0)
    node["head"] = -1
    tree.half[:used], tree.side[:used] = nodes.half[rows], nodes.side[rows]
    tree.label[:used] = nodes.label[rows]
    per_row = min(nodes.cen.shape[1], tree.cen.shape[1])
    tree.cen[:used, :per_row] = nodes.cen[rows, :per_row]


def _filled(tree: Tree, memory: RowMemory, leaf: NDArray[np.int32], born: int, bagged: int) -> Tree:
    """The tree with its rows in their leaves: those that were learned before it was `born`.

    Later rows are added when the tree is swapped in; one that is there already would be linked twice.
    """
    node = tree.node[: tree.info["n_nodes"][0]]
    demand((leaf >= -1) & (leaf < len(node)), "memory.leaf")
    slots = np.flatnonzero(leaf >= 0).astype(np.int32)
    demand((leaf >= 0) == (memory.arrays.number[: len(leaf)] < born), "memory.leaf")
    demand(node["left"][leaf[slots]] == -1, "memory.leaf")
    tree.leaf[slots] = leaf[slots]
    due = node["due"].copy()
    while filling.refill(tree, memory.arrays, slots, bagged) != FITS:
        tree = tree._replace(hist=np.zeros(2 * len(tree.hist), np.int32))
    node["due"] = due
    rust.relink(tree, slots)
    return tree
