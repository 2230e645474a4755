"""Why an NCM forest answers as it does: class means, leaves and neighbours, in words.

Computed beside the kernels, from the same arrays; a test holds both against each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.batch import Batch
from streamforest.forests.core.explanation import (
    Expert,
    TreePath,
    counted,
    most_certain,
    ranked,
    rather,
    told,
)
from streamforest.forests.ncm.metric_choice import METRIC_NAMES
from streamforest.forests.ncm.vote_blend import EXPERTS
from streamforest.kernels.core.operations import PREDICT
from streamforest.kernels.core.simd_distance import GAP, SCALE
from streamforest.kernels.ncm.layout import FULL_IDENTITY, MEANS, NEIGHBOURS, RAW, TREES, Tree
from streamforest.kernels.ncm.neighbours import ALIKE, STANDARDISED
from streamforest.kernels.ncm.row_memory import CATEGORY_COLUMNS, VARIANCE
from streamforest.text import shown

if TYPE_CHECKING:
    from streamforest.forests.ncm.processing import NCMProcessing

_SIDES = ("left", "right")
_ROWS = 5  # neighbours that are named
_PREDICT = np.full(1, PREDICT, np.uint8)


def experts_on(forest: NCMProcessing, row: NDArray[np.float64]) -> list[Expert]:
    """What trees, class means and neighbours say of a row, and why."""
    votes, labels = _ask(forest, 0, forest.n_trees, row)[0], forest._labels.labels
    x = _columns(forest, row)
    because = {
        TREES: [counted(_alone(forest, row), labels)],
        MEANS: _by_means(forest, x, votes[MEANS]),
        NEIGHBOURS: [],
    }
    weights = forest._blend.weights()
    return [
        Expert(name, weights[name], ranked(votes[e], labels), because[e])
        for e, name in enumerate(EXPERTS)
    ]


def _ask(
    forest: NCMProcessing, first: int, last: int, row: NDArray[np.float64]
) -> NDArray[np.int64]:
    votes = forest._new_votes(1)
    known = np.array([len(forest._features)])
    batch = Batch(row, np.full(1, -1), _PREDICT, known)
    batch.slots = np.full(1, -1, np.int32)
    forest._call(first, last, forest._want, batch, votes)
    return votes


def _columns(forest: NCMProcessing, row: NDArray[np.float64]) -> NDArray[np.float64]:
    """A row as trees and class means see it, a missing value replaced by the column's mean."""
    columns = forest._columns
    x: NDArray[np.float64] = columns.rows(row, _PREDICT, forest._features)[0].astype(np.float64)
    return np.where(np.isnan(x), columns.arrays.fill, x)


def _alone(forest: NCMProcessing, row: NDArray[np.float64]) -> NDArray[np.int64]:
    """What the leaf of each tree says by itself: [tree, class]."""
    return np.array([_ask(forest, t, t + 1, row)[0, TREES] for t in range(forest.n_trees)])


def _by_means(forest: NCMProcessing, x: NDArray[np.float64], votes: NDArray[np.int64]) -> list[str]:
    """The nearest class means, and the features that bring the first one nearer than the second."""
    means, n = forest._means.arrays, forest._means.n_classes
    if n == 0:
        return []
    inverse = means.inverse[forest._blend.active_metric].astype(np.float64)
    width = min(inverse.shape[1], len(x), means.mean.shape[1])
    off = x[None, :width] - means.mean[:n, :width].astype(np.float64)
    scaled = off * inverse[0, :width] if len(inverse) == 1 else off @ inverse[:width, :width]
    parts = off * scaled
    distance = parts.sum(axis=1)
    distance[means.n[:n] == 0] = np.inf
    order = np.argsort(distance, kind="stable")[:3].tolist()
    labels = forest._labels.labels
    nearest = ", ".join(
        f"{shown(labels[k])} at distance² {distance[k]:.4g}"
        for k in order
        if np.isfinite(distance[k])
    )
    lines = [f"nearest class means: {nearest}"] if nearest else []
    if len(order) > 1 and np.isfinite(distance[order[1]]):
        lead = _by_feature(forest, parts[order[1]] - parts[order[0]])
        lines += rather(lead, forest._features.names, labels[order[0]], labels[order[1]])
    return lines


def _by_feature(forest: NCMProcessing, of_columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums over the columns of each feature: a category has several."""
    out = np.zeros(len(forest._features))
    for f, first in enumerate(forest._columns.arrays.first.tolist()):
        if first >= 0:
            size = CATEGORY_COLUMNS if forest._features.categorical[f] else 1
            out[f] = of_columns[first : first + size].sum()
    return out


# ---- one tree


def tree_on(
    forest: NCMProcessing, row: NDArray[np.float64], tree: int | None, best: int
) -> TreePath:
    """Path, leaf and neighbours of a tree; by default of the one most certain of class `best`."""
    if tree is None:
        tree = most_certain(_alone(forest, row), best)
    labels, grown = forest._labels.labels, forest._trees[tree]
    info = grown.info[0]
    x = _columns(forest, row)
    path = []
    i = 0
    while grown.node["left"][i] >= 0:
        right, text = _side(grown, grown.node[i], x, labels)
        path.append(text)
        i = int(grown.node["left"][i]) + right
    votes = _ask(forest, tree, tree + 1, row)[0]
    leaf = [
        f"leaf {i}, {grown.node['n'][i]} rows: {told(ranked(votes[TREES], labels))}",
        *_neighbours(forest, grown, i, x),
    ]
    about = f"metric {METRIC_NAMES[int(info['metric'])]}, recent error {info['error']:.3f}"
    return TreePath(tree, about, path, leaf)


def _side(tree: Tree, node: Any, x: NDArray[np.float64], labels: list[Any]) -> tuple[int, str]:
    """The side of a node that a row goes to, and the centroids that decided."""
    first, k = int(node["first"]), int(node["k"])
    cen = tree.cen[first : first + k].astype(np.float64)
    score = tree.half[first : first + k] - cen @ x[: cen.shape[1]]
    if k == 1:  # a plane
        right = 0 if score[0] < 0 else 1
        return right, f"{abs(score[0]):.4g} to the {_SIDES[right]} of a plane: {_SIDES[right]}"
    order = np.argsort(score, kind="stable").tolist()
    right = int(tree.side[first + order[0]])

    def named(j: int) -> str:
        y = int(tree.label[first + j])
        return shown(labels[y]) if 0 <= y < len(labels) else "a centroid"

    other = next((j for j in order if tree.side[first + j] != right), None)
    text = f"nearest of {k} centroids is that of {named(order[0])}: {_SIDES[right]}"
    if other is not None:
        further = 2 * (score[other] - score[order[0]])
        text += f" ({named(other)} on the other side is {further:.4g} further, squared)"
    return right, text


def _neighbours(forest: NCMProcessing, tree: Tree, leaf: int, x: NDArray[np.float64]) -> list[str]:
    """The newest rows of the leaf, the nearest first."""
    kind = ALIKE if tree.info[0]["metric"] in (RAW, FULL_IDENTITY) else STANDARDISED
    memory, scales = forest._memory.arrays, forest._columns.arrays.scales[kind].astype(np.float64)
    found: list[tuple[float, int, int]] = []
    slot = int(tree.node["head"][leaf])
    while slot >= 0 and len(found) < int(forest._parameters["neighbours"]):
        square = ((x - memory.rows[slot]) * scales[SCALE]) ** 2
        distance = float(np.where(np.isnan(square), scales[GAP], square).sum())
        found.append((distance, int(memory.number[slot]), int(memory.label[slot])))
        slot = int(tree.next[slot])
    labels, now = forest._labels.labels, forest._n_learned
    return [
        f"  {shown(labels[y])}: {now - number} events ago, distance² {distance:.4g}"
        for distance, number, y in sorted(found)[:_ROWS]
    ]


# ---- features


def importances(
    forest: NCMProcessing,
) -> dict[str, tuple[float, NDArray[np.float64]]]:
    """How far apart the class means are along each feature, in units of the spread within the classes.

    The trees split by the same means, so this is what they go by, too. A column that hardly ever changes
    within the classes would decide everything: a hundredth of its whole variance is added. A category counts
    by the mean of its columns.
    """
    means, n = forest._means.arrays, forest._means.n_classes
    columns = forest._columns.n
    out = np.zeros(columns)
    weight = float(means.weight[0])
    total = forest._columns.arrays.stats[VARIANCE, :columns]
    if n > 1 and columns:
        share = means.n[:n] / max(1, int(means.n[:n].sum()))
        mean = means.mean[:n, :columns].astype(np.float64)
        between = share @ (mean - share @ mean) ** 2
        if weight > 0:
            whole = len(means.scatter) > 1
            squares = np.diagonal(means.scatter) if whole else means.scatter[0]
            within = squares[:columns] / weight
        else:
            within = total
        floor = 0.01 * np.maximum(total, between)
        out = between / np.maximum(within + floor, 1e-300)
    columns_of = np.where(
        forest._features.categorical[: len(forest._features)], CATEGORY_COLUMNS, 1
    )
    return {"class means": (1.0, np.maximum(0.0, _by_feature(forest, out)) / columns_of)}
