"""Looking into a stream forest: its size, what its splits use, and why it answers as it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import ParameterError
from streamforest.forests.core.batch import Batch
from streamforest.forests.stream import arrays as stream_arrays
from streamforest.forests.stream import baseline_inspection
from streamforest.kernels.core.operations import PREDICT
from streamforest.kernels.core.simd_distance import CAP, GAP, SCALE
from streamforest.kernels.stream.layout import TreeArrays, bucket
from streamforest.kernels.stream.mixing import EXPERTS, weigh
from streamforest.kernels.stream.votes import NEAR
from streamforest.text import shown

if TYPE_CHECKING:
    from streamforest.forests.stream.forest import StreamForestClassifier

_NO_LABEL = np.full(1, -1)
_PREDICT = np.full(1, PREDICT, np.uint8)


def _active(trees: TreeArrays) -> NDArray[np.int64]:
    """The tree slots of the trees that vote."""
    out: NDArray[np.int64] = 2 * np.arange(len(trees.voter)) + trees.voter["active"]
    return out


def _depth(trees: TreeArrays, s: int) -> int:
    n = int(trees.tree_slot["n_nodes"][s])
    depth = np.zeros(n, np.int64)
    for i in range(1, n):  # parents come before their children
        depth[i] = depth[trees.stat["parent"][s, i]] + 1
    return int(depth.max())


def summary(forest: StreamForestClassifier) -> dict[str, Any]:
    """See `StreamForestClassifier.summary`."""
    trees = forest._trees
    active = _active(trees)
    nodes = int(trees.tree_slot["n_nodes"][active].sum())
    return {
        "trees": forest.n_trees,
        "events": forest._n_learned,
        "classes": len(forest._labels),
        "features": len(forest._features),
        "nodes": nodes,
        "leaves": (nodes + forest.n_trees) // 2,
        "depth": max(_depth(trees, int(s)) for s in active),
        "challengers": int(trees.voter["racing"].sum()),
        "challengers_grown": int(trees.voter["launches"].sum()),
        "swaps": int(trees.voter["swaps"].sum()),
        "ring_rows": int(forest._params["ring_rows"][0]),
        "ring_bytes": len(trees.rows)
        * stream_arrays.ring_bytes(forest._ring_features(len(forest._features)), forest.n_trees),
        "expert_weights": dict(zip(_OPINIONS, _shares(forest).round(4).tolist())),
        "vote_power": round(forest._vote_power, 4),
        "plain_bytes": forest._baselines.nbytes,
        "total_bytes": sum(array.nbytes for array in trees) + forest._baselines.nbytes,
        "capacity": forest._features.totals(),
    }


_OPINIONS = ("counts", "neighbours", "naive Bayes", "linear")


def _shares(forest: StreamForestClassifier) -> NDArray[np.float64]:
    """The weight of each expert."""
    weight = np.zeros(EXPERTS)
    weigh(forest._loss, weight)
    if forest._baselines.silent:
        weight[NEAR + 1 :] = 0.0
    weight /= weight.sum()
    return weight


def feature_importances(forest: StreamForestClassifier, expert: str | None) -> dict[Any, float]:
    """See `StreamForestClassifier.feature_importances`."""
    if expert not in (None, *_IMPORTANCES):
        raise ParameterError(f"expert={expert!r}: use None or one of {', '.join(_IMPORTANCES)}")
    counts, near, bayes, linear = _shares(forest).tolist()
    total = np.zeros(len(forest._features))
    for name, weight in zip(_IMPORTANCES, (counts + near, bayes, linear)):
        if expert in (None, name):
            found = _IMPORTANCES[name](forest)
            total += (weight if expert is None else 1.0) * found / max(found.sum(), 1e-300)
    if total.sum() > 0:
        total /= total.sum()
    return dict(zip(forest._features.names, total.tolist()))


def _of_trees(forest: StreamForestClassifier) -> NDArray[np.float64]:
    """Information gain of the splits of all trees that vote, by feature."""
    trees = forest._trees
    total = np.zeros(len(forest._features))
    for s in _active(trees):
        n = int(trees.tree_slot["n_nodes"][s])
        feature = trees.node["feature"][s, :n]
        inner = feature >= 0
        np.add.at(total, feature[inner], trees.stat["gain"][s, :n][inner].astype(np.float64))
    return total


def _of_bayes(forest: StreamForestClassifier) -> NDArray[np.float64]:
    return baseline_inspection.bayes_importances(forest._baselines.arrays, len(forest._features))


def _of_linear(forest: StreamForestClassifier) -> NDArray[np.float64]:
    arrays, spread = forest._baselines.arrays, forest._spread
    return baseline_inspection.linear_importances(arrays, spread, len(forest._features))


_IMPORTANCES = {"trees": _of_trees, "naive Bayes": _of_bayes, "linear": _of_linear}


def debug_one(forest: StreamForestClassifier, x: dict[Any, Any], tree: int | None) -> str:
    """See `StreamForestClassifier.debug_one`."""
    which = forest._one_row(x, learn=False)
    row = forest._one_views[which]
    if not forest._labels.labels:
        return "nothing learned yet"
    forest._widen(row)
    votes = _ask(forest, 0, forest.n_trees, row)
    forest._process_baselines(_unlabelled(forest, row), votes)
    lines = [f"forest of {forest.n_trees} trees: {_best(forest, forest._mix(votes)[0])}"]
    for name, share, of_it in zip(_OPINIONS, _shares(forest).tolist(), votes[0]):
        lines.append(f"  {name:12} {share:4.0%}: {_best(forest, of_it)}")
        if name in _SAYS and of_it.any():
            lines += _debug_plain(forest, name, row[0], of_it)
    t = int(np.argmax(forest._trees.voter["accuracy"])) if tree is None else tree
    lines += _debug_tree(forest, t, row)
    return "\n".join(lines)


_SAYS = {"naive Bayes": baseline_inspection.bayes_says, "linear": baseline_inspection.linear_says}


def _debug_plain(
    forest: StreamForestClassifier, name: str, x: NDArray[np.float64], votes: NDArray[np.int64]
) -> list[str]:
    """The features that speak most for a plain expert's first class, or against it."""
    arrays, spread, categorical = (
        forest._baselines.arrays,
        forest._spread,
        forest._features.categorical,
    )
    says = _SAYS[name](arrays, spread, x, categorical, forest.absent == "zero")
    if says.shape[1] < 2:
        return []
    first, second = np.argsort(-votes[: says.shape[1]], kind="stable")[:2].tolist()
    lead = says[:, first] - says[:, second]
    most = [f for f in np.argsort(-np.abs(lead), kind="stable")[:3].tolist() if lead[f] != 0.0]
    if not most:
        return []
    pulls = ", ".join(f"{shown(forest._features.names[f])} {lead[f]:+.2f}" for f in most)
    one, other = (shown(forest._labels.labels[k]) for k in (first, second))
    return [f"    {one} rather than {other}: {pulls}"]


def _ask(
    forest: StreamForestClassifier, first: int, last: int, row: NDArray[np.float64]
) -> NDArray[np.int64]:
    votes = forest._new_votes(1)
    forest._routed = None
    forest._call(first, last, forest._want, _unlabelled(forest, row), votes)
    return votes


def _unlabelled(forest: StreamForestClassifier, row: NDArray[np.float64]) -> Batch:
    return Batch(row, _NO_LABEL, _PREDICT, np.array([len(forest._features)]))


def _best(forest: StreamForestClassifier, scores: NDArray[Any], most: int = 3) -> str:
    """The classes with the largest scores, as shares."""
    total = max(float(scores.sum()), 1e-300)
    order = np.argsort(-scores, kind="stable")[:most]
    return ", ".join(f"{shown(forest._labels.labels[k])} {scores[k] / total:.3f}" for k in order)


def _debug_tree(forest: StreamForestClassifier, t: int, row: NDArray[np.float64]) -> list[str]:
    """Path, experts and neighbours of one tree."""
    trees = forest._trees
    voter = trees.voter[t]
    s = 2 * t + int(voter["active"])
    state = ", being challenged" if voter["racing"] else ""
    lines = [f"tree {t} (recent accuracy {voter['accuracy']:.3f}{state}):"]
    x = row[0].astype(np.float32)
    i = 0
    while trees.node["feature"][s, i] >= 0:
        node = trees.node[s, i]
        right, text = _side(forest, node, i, x[node["feature"]])
        lines.append(f"  {text}")
        i = int(node["left"]) + right
    votes = _ask(forest, t, t + 1, row)
    stat = trees.stat[s, i]
    lines.append(f"  leaf {i}, {stat['n']} estimation events: {_best(forest, votes[0, 0])}")
    lines.append(f"  with its neighbours: {_best(forest, votes[0, 1])}")
    lines += _debug_neighbours(forest, s, i, x)
    return lines


def _side(forest: StreamForestClassifier, node: Any, i: int, v: float) -> tuple[int, str]:
    """Where a value goes at a node, and why in words."""
    f = int(node["feature"])
    name = shown(forest._features.names[f])
    missing = int(node["missing_right"])
    if v != v:
        return missing, f"{name} is missing: {'right' if missing else 'left'}"
    if node["categorical"]:
        if v < 0:
            return missing, f"{name} has a value never learned: {'right' if missing else 'left'}"
        right = int(node["mask"]) >> bucket(int(v), i) & 1
        codes = list(forest._features.categories[f])
        value = shown(codes[int(v)]) if v < len(codes) else "other"
        return right, f"{name} = {value}: {'right' if right else 'left'}"
    right = int(not v <= node["threshold"])
    return right, f"{name} = {v:g} {'>' if right else '≤'} {node['threshold']:g}"


def _debug_neighbours(
    forest: StreamForestClassifier, s: int, leaf: int, x: NDArray[np.float32], most: int = 5
) -> list[str]:
    """The estimation rows of the leaf that weigh most."""
    trees, now = forest._trees, forest._n_learned
    slots, oldest = int(forest._params["slots"][0]), now - int(forest._params["ring_rows"][0])
    metric = forest._metric[(s >> 1) & 1][:, : len(x)].astype(np.float64)
    found: list[tuple[float, int, int]] = []
    number = int(trees.stat["head"][s, leaf])
    while number >= max(0, oldest) and len(found) < forest._parameters["neighbours"]:
        slot = number % slots
        link = int(trees.link[s, slot])
        if link & 1:
            square = ((x - trees.rows[slot, : len(x)]) * metric[SCALE]) ** 2
            d = float(np.where(square <= metric[CAP], square, metric[GAP]).sum())
            found.append((d, number, int(trees.labels[slot])))
        to = (link >> 1) - 1
        number = -1 if to < 0 else number - ((slot - to) % slots)
    found.sort()
    little = 1e-3 * found[0][0] + 1e-9 if found else 0.0
    lines = []
    for d, number, y in found[:most]:
        weight = ((found[0][0] + little) / (d + little)) ** forest._parameters["neighbour_power"]
        label = forest._labels.labels[y]
        lines.append(
            f"    {shown(label)}: {now - number} events ago, distance² {d:.4g}, weight {weight:.3f}"
        )
    return lines
