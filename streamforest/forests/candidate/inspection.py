"""Looking into a consistent or online forest: what its splits use, and the way through a tree."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.axis_aligned import alone, split_gains, way_through
from streamforest.forests.core.explanation import TreePath, most_certain, ranked, told

if TYPE_CHECKING:
    from streamforest.forests.candidate.forest import CandidateForest


def tree_on(
    forest: CandidateForest, row: NDArray[np.float64], tree: int | None, best: int
) -> TreePath:
    """Path and leaf of a tree; by default of the one that is most certain of class `best`."""
    t = most_certain(alone(forest, row), best) if tree is None else tree
    trees = forest._trees
    i, path = way_through(trees.node[t], forest._features, row)
    leaf = trees.leaf[t, i]
    state = "may split" if leaf["active"] else "waits for a place in the fringe"
    about = f"{trees.tree['n_nodes'][t]} nodes, depth {trees.node['depth'][t, i]} here"
    answer = told(ranked(_counts(forest, t, i), forest._labels.labels))
    return TreePath(t, about, path, [f"leaf {i}, {leaf['n']} events, {state}: {answer}"])


def gains(forest: CandidateForest) -> NDArray[np.float64]:
    """Information gain of the splits of all trees, by feature."""
    total = np.zeros(len(forest._features))
    for t in range(forest.n_trees):
        split_gains(forest._trees.node[t], partial(_counts, forest, t), total)
    return total


def _counts(forest: CandidateForest, t: int, i: int) -> NDArray[np.float64]:
    """Events of each class in a leaf."""
    leaf, hist = forest._trees.leaf[t, i], forest._trees.hist[t]
    counts = np.zeros(len(forest._labels))
    start, room, n = int(leaf["hist"]), int(leaf["room"]), int(leaf["n_classes"])
    counts[hist[start : start + n]] = hist[start + room : start + room + n]
    return counts
