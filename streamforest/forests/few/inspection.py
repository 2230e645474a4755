"""Looking into a few-shot forest: what its splits use, the way through a tree, and who lends to whom."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.axis_aligned import alone, split_gains, way_through
from streamforest.forests.core.explanation import TreePath, most_certain, ranked, told
from streamforest.text import shown

if TYPE_CHECKING:
    from streamforest.forests.few.forest import FewShotForestClassifier

_ROWS = 5  # rows of a leaf that are named


def tree_on(
    forest: FewShotForestClassifier, row: NDArray[np.float64], tree: int | None, best: int
) -> TreePath:
    """Path, leaf and newest rows of a tree; by default of the one that is most certain of class `best`."""
    votes = alone(forest, row)
    t = most_certain(votes, best) if tree is None else tree
    labels, trees = forest._labels.labels, forest._trees
    i, path = way_through(trees.node[t], forest._features, row)
    leaf = [f"leaf {i}, {trees.node['n'][t, i]} rows: {told(ranked(votes[t], labels))}"]
    memory = forest._memory.arrays
    leaf += [
        f"  {shown(labels[memory.label[slot]])}: {forest._n_learned - memory.number[slot]} events ago"
        for slot in _slots(forest, t, i)[:_ROWS]
    ]
    helped = forest._support.arrays
    for k, support in zip(helped.label.tolist(), helped.support):
        if k == best:
            names = ", ".join(shown(labels[c]) for c in support[support >= 0].tolist())
            leaf.append(f"{shown(labels[k])} has few rows and borrows from {names}")
    return TreePath(t, f"{trees.tree['n_nodes'][t]} nodes", path, leaf)


def gains(forest: FewShotForestClassifier) -> NDArray[np.float64]:
    """Information gain of the splits of all trees, by feature."""
    total = np.zeros(len(forest._features))
    for t in range(forest.n_trees):
        split_gains(forest._trees.node[t], partial(_counts, forest, t), total)
    return total


def _slots(forest: FewShotForestClassifier, t: int, i: int) -> list[int]:
    """The rows of a leaf, the newest first."""
    found: list[int] = []
    slot = int(forest._trees.node["head"][t, i]) - 1
    while slot >= 0:
        found.append(slot)
        slot = int(forest._trees.next[t, slot]) - 1
    return found


def _counts(forest: FewShotForestClassifier, t: int, i: int) -> NDArray[np.float64]:
    """Rows of each class in a leaf."""
    found = forest._memory.arrays.label[_slots(forest, t, i)]
    return np.bincount(found, minlength=len(forest._labels)).astype(np.float64)
