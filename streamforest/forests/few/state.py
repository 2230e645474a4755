"""A few-shot forest as the arrays of a snapshot, and the checks before they are believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.capacity import CATEGORY
from streamforest.forests.core.serialization import LARGEST, demand, demand_trees
from streamforest.forests.few.memory import Take
from streamforest.kernels.core.array_table import zeros
from streamforest.kernels.few.entry import rebuild_lists
from streamforest.kernels.few.layout import EMPTY, NODE, TREE, Trees

if TYPE_CHECKING:
    from streamforest.forests.few.forest import FewShotForestClassifier

_LARGEST_MULTIPLIER = 2e9  # of the largest variance and number of rows there may be
_CLOCKS = ("generation", "grown")
_NODES = ("feature", "left", "threshold", "missing_right", "wait")


def dump(forest: FewShotForestClassifier) -> dict[str, NDArray[Any]]:
    """The arrays of a snapshot."""
    trees, tree = forest._trees, forest._trees.tree
    used = np.arange(trees.node.shape[1]) < tree["n_nodes"][:, None]
    arrays = {f"tree.{name}": tree[name].copy() for name in ("seed", *_CLOCKS)}
    arrays["nodes.n_nodes"] = tree["n_nodes"].copy()
    arrays |= {f"nodes.{name}": trees.node[name][used] for name in _NODES}
    arrays |= forest._memory.dump(len(forest._features))
    arrays["memory.leaf"] = (trees.leaf[:, forest._memory.slots] - 1).ravel()
    arrays |= forest._support.dump()
    n = len(arrays["few.label"])
    arrays["few.multiplier"] = trees.multiplier[:, :n].ravel()
    arrays["few.uses_map"] = trees.uses_map[:, :n].ravel()
    return arrays


def restore(forest: FewShotForestClassifier, take: Take) -> None:
    """The forest that `dump` described; `take(name, dtype, size)` gives an array or refuses it."""
    n_trees, learned = forest.n_trees, forest._n_learned
    columns, classes = len(forest._features), len(forest._labels)
    seeds = take("tree.seed", np.uint64, n_trees)
    forest._plant(seeds)
    tree = np.zeros(n_trees, TREE)
    tree["seed"] = seeds
    for name in _CLOCKS:
        tree[name] = take(f"tree.{name}", np.int64, n_trees)
    demand((tree["generation"] >= 0) & (tree["generation"] < LARGEST), "tree.generation")
    demand((tree["grown"] >= 0) & (tree["grown"] <= learned), "tree.grown")
    tree["n_nodes"] = take("nodes.n_nodes", np.int64, n_trees)
    demand((tree["n_nodes"] >= 1) & (tree["n_nodes"] <= forest._params["max_nodes"][0]), "n_nodes")
    tree["known"] = columns
    size = int(tree["n_nodes"].sum())
    flat = np.zeros(size, NODE)
    for name in _NODES:
        flat[name] = take(f"nodes.{name}", NODE[name], size)
    _check_nodes(flat, tree["n_nodes"], np.array(forest._features.kinds, np.int64))

    most = int(forest.memory)
    forest._memory.restore(take, columns, classes, learned, most)
    rows = len(forest._memory)
    slots = len(forest._memory.arrays.label)
    trees = zeros(
        Trees,
        trees=n_trees,
        nodes=max(8, int(tree["n_nodes"].max())),
        slots=slots,
        classes=max(4, classes),
        helped=int(forest.max_few),
    )._replace(tree=tree)
    leaf = take("memory.leaf", np.int32, n_trees * rows).reshape(n_trees, rows)
    begin = 0
    for t, n in enumerate(tree["n_nodes"].tolist()):
        node = trees.node[t, :n]
        node[:] = flat[begin : begin + n]
        node["only"] = EMPTY
        node["parent"] = -1
        inner = np.flatnonzero(node["feature"] >= 0)
        node["parent"][node["left"][inner]] = inner
        node["parent"][node["left"][inner] + 1] = inner
        node["categorical"][inner] = forest._features.categorical[node["feature"][inner]]
        demand((leaf[t] >= 0) & (leaf[t] < n), "memory.leaf")
        demand(node["feature"][leaf[t]] < 0, "memory.leaf")
        begin += n
    trees.leaf[:, :rows] = leaf + 1
    rebuild_lists(trees, forest._memory.arrays, forest._memory.slots)
    helped = forest._support.restore(take, forest._memory, classes)
    multiplier = take("few.multiplier", np.float64, n_trees * helped)
    uses_map = take("few.uses_map", np.uint8, n_trees * helped)
    demand(np.abs(multiplier) <= _LARGEST_MULTIPLIER, "few.multiplier")
    demand(uses_map <= 1, "few.uses_map")
    trees.multiplier[:, :helped] = multiplier.reshape(n_trees, helped)
    trees.uses_map[:, :helped] = uses_map.reshape(n_trees, helped)
    forest._trees = trees


def _check_nodes(flat: NDArray[np.void], n_nodes: NDArray[np.int64], kinds: NDArray[Any]) -> None:
    """Each tree is one, and splits on what the features hold."""
    demand_trees(n_nodes, flat["feature"], flat["left"])
    inner = flat["feature"] >= 0
    demand(flat["feature"] < len(kinds), "feature")
    kinds = np.append(kinds, 0)
    demand(kinds[flat["feature"][inner]] > 0, "a split on a feature without values")
    threshold = flat["threshold"]
    demand(np.isfinite(threshold) & (inner | (threshold == 0)), "threshold")
    sets = threshold[inner & (kinds[flat["feature"]] == CATEGORY)]
    demand((sets == np.floor(sets)) & (np.abs(sets) <= LARGEST), "threshold of a category")
    demand((flat["missing_right"] <= 1) & (inner | (flat["missing_right"] == 0)), "missing_right")
    demand((flat["wait"] >= 0) & (~inner | (flat["wait"] == 0)), "wait")
