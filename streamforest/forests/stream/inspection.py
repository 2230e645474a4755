"""Looking into a stream forest: its size, what its splits use, and why it answers as it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.batch import Batch
from streamforest.forests.core.explanation import Expert, TreePath, ranked, rather, told
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


def importances(
    forest: StreamForestClassifier,
) -> dict[str, tuple[float, NDArray[np.float64]]]:
    """By expert: its share, and a number for each feature."""
    counts, near, bayes, linear = _shares(forest).tolist()
    arrays, n = forest._baselines.arrays, len(forest._features)
    return {
        "trees": (counts + near, _of_trees(forest)),
        "naive Bayes": (bayes, baseline_inspection.bayes_importances(arrays, n)),
        "linear": (linear, baseline_inspection.linear_importances(arrays, forest._spread, n)),
    }


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


def experts_on(forest: StreamForestClassifier, row: NDArray[np.float64]) -> list[Expert]:
    """What each expert says of a row, and which features made a baseline say it."""
    forest._widen(row)
    votes = _ask(forest, 0, forest.n_trees, row)
    forest._process_rest(_unlabelled(forest, row), votes)
    found = []
    for name, share, of_it in zip(_OPINIONS, _shares(forest).tolist(), votes[0]):
        because = _pulls(forest, name, row[0], of_it) if name in _SAYS and of_it.any() else []
        found.append(Expert(name, share, ranked(of_it, forest._labels.labels), because))
    return found


_SAYS = {"naive Bayes": baseline_inspection.bayes_says, "linear": baseline_inspection.linear_says}


def _pulls(
    forest: StreamForestClassifier, name: str, x: NDArray[np.float64], votes: NDArray[np.int64]
) -> list[str]:
    """The features that speak most for a baseline's first class, or against it."""
    arrays, spread, categorical = (
        forest._baselines.arrays,
        forest._spread,
        forest._features.categorical,
    )
    says = _SAYS[name](arrays, spread, x, categorical, forest.absent == "zero")
    if says.shape[1] < 2:
        return []
    first, second = np.argsort(-votes[: says.shape[1]], kind="stable")[:2].tolist()
    labels = forest._labels.labels
    return rather(
        says[:, first] - says[:, second], forest._features.names, labels[first], labels[second]
    )


def _ask(
    forest: StreamForestClassifier, first: int, last: int, row: NDArray[np.float64]
) -> NDArray[np.int64]:
    votes = forest._new_votes(1)
    forest._routed = None
    forest._call(first, last, forest._want, _unlabelled(forest, row), votes)
    return votes


def _unlabelled(forest: StreamForestClassifier, row: NDArray[np.float64]) -> Batch:
    return Batch(row, _NO_LABEL, _PREDICT, np.array([len(forest._features)]))


def tree_on(forest: StreamForestClassifier, row: NDArray[np.float64], tree: int | None) -> TreePath:
    """Path, experts and neighbours of a tree; by default of the one that was right most often lately."""
    trees, labels = forest._trees, forest._labels.labels
    t = int(np.argmax(trees.voter["accuracy"])) if tree is None else tree
    voter = trees.voter[t]
    s = 2 * t + int(voter["active"])
    state = ", being challenged" if voter["racing"] else ""
    x = row[0].astype(np.float32)
    i = 0
    path = []
    while trees.node["feature"][s, i] >= 0:
        node = trees.node[s, i]
        right, text = _side(forest, node, i, x[node["feature"]])
        path.append(text)
        i = int(node["left"]) + right
    votes = _ask(forest, t, t + 1, row)
    leaf = [
        f"leaf {i}, {trees.stat['n'][s, i]} estimation events: {told(ranked(votes[0, 0], labels))}",
        f"with its neighbours: {told(ranked(votes[0, 1], labels))}",
        *_neighbours(forest, s, i, x),
    ]
    return TreePath(t, f"recent accuracy {voter['accuracy']:.3f}{state}", path, leaf)


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


def _neighbours(
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
            f"  {shown(label)}: {now - number} events ago, distance² {d:.4g}, weight {weight:.3f}"
        )
    return lines
