"""Looking into trees whose nodes split one feature: votes, paths and gains, whatever the family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.batch import Batch
from streamforest.forests.core.explanation import Expert, counted, ranked
from streamforest.forests.core.features import FeatureTable
from streamforest.kernels.candidate.layout import goes_right
from streamforest.kernels.core.operations import PREDICT
from streamforest.text import shown

_SIDES = ("left", "right")


def votes_of(forest: Any, first: int, last: int, row: NDArray[np.float64]) -> NDArray[Any]:
    """The votes of some trees for each class."""
    votes = forest._new_votes(1)
    known = np.array([len(forest._features)])
    batch = Batch(row, np.full(1, -1), np.full(1, PREDICT, np.uint8), known)
    batch.slots = np.full(1, -1, np.int32)
    forest._call(first, last, forest._want, batch, votes)
    summed: NDArray[Any] = forest._alone(votes)[0]
    return summed


def alone(forest: Any, row: NDArray[np.float64]) -> NDArray[Any]:
    """What each tree says by itself: [tree, class]."""
    return np.array([votes_of(forest, t, t + 1, row) for t in range(forest.n_trees)])


def trees_as_expert(forest: Any, row: NDArray[np.float64]) -> Expert:
    """The trees, where they are the only expert: how they share out their votes."""
    labels = forest._labels.labels
    answer = ranked(votes_of(forest, 0, forest.n_trees, row), labels)
    return Expert("trees", 1.0, answer, [counted(alone(forest, row), labels)])


def way_through(
    node: NDArray[np.void], features: FeatureTable, row: NDArray[np.float64]
) -> tuple[int, list[str]]:
    """The leaf that a row falls into, and every step there in words; `node` are those of one tree."""
    path = []
    i = 0
    while node["feature"][i] >= 0:
        right, text = _side(features, node[i], float(row[0, node["feature"][i]]))
        path.append(text)
        i = int(node["left"][i]) + right
    return i, path


def _side(features: FeatureTable, node: Any, v: float) -> tuple[int, str]:
    """Where a value goes at a node, and why in words."""
    f, threshold = int(node["feature"]), float(node["threshold"])
    name = shown(features.names[f])
    right = int(goes_right(v, threshold, int(node["categorical"]), int(node["missing_right"])))
    side = _SIDES[right]
    if v != v:
        return right, f"{name} is missing: {side}"
    if not node["categorical"]:
        return right, f"{name} = {v:g} {'>' if right else '≤'} {threshold:g}: {side}"
    codes = list(features.categories[f])

    def named(code: float) -> str:
        return shown(codes[int(code)]) if 0 <= code < len(codes) else "a value never learned"

    if threshold >= 0:
        which = "not" if right else "which is"
        return right, f"{name} = {named(v)}, {which} {named(threshold)}: {side}"
    return right, f"{name} = {named(v)}, in a random half of its values: {side}"


def split_gains(
    node: NDArray[np.void],
    counts_of: Callable[[int], NDArray[np.float64]],
    total: NDArray[np.float64],
) -> None:
    """Add to `total`, by feature, the information gain of a tree's splits: of the rows in the leaves below.

    `counts_of` gives the rows of each class in a leaf. The counts of a child are dropped when its parent has
    them.
    """
    order, stack = [], [0]
    while stack:
        i = stack.pop()
        order.append(i)
        if node["feature"][i] >= 0:
            stack += [int(node["left"][i]), int(node["left"][i]) + 1]
    below: dict[int, NDArray[np.float64]] = {}
    for i in reversed(order):
        if node["feature"][i] < 0:
            below[i] = counts_of(i)
            continue
        left, right = below.pop(int(node["left"][i])), below.pop(int(node["left"][i]) + 1)
        below[i] = left + right
        gain = _impurity(below[i]) - _impurity(left) - _impurity(right)
        total[node["feature"][i]] += max(0.0, gain)


def _impurity(counts: NDArray[np.float64]) -> float:
    """Rows times the entropy of their classes."""
    some = counts[counts > 0]
    return (
        float(some.sum() * np.log(some.sum()) - (some * np.log(some)).sum()) if some.size else 0.0
    )
