"""How trees grow to purity: extremely randomised splits (Geurts et al. 2006)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import goes_right
from streamforest.kernels.core import rng
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.few.layout import (
    DRAW_SPLIT,
    MIXED,
    Memory,
    Record,
    Trees,
    add_row,
    new_leaf,
)


class Test(NamedTuple):
    """A test of one feature, the best of those that were drawn."""

    feature: int  # -1: no feature tells the rows apart
    threshold: float
    missing_right: int
    gain: float


@kernel
def _entropy(weights: NDArray[np.float64], classes: int) -> float:
    """Of the classes with these weights, times their sum, in nats."""
    total = 0.0
    for c in range(classes):
        total += weights[c]
    out = 0.0
    for c in range(classes):
        if weights[c] > 0.0:
            out -= weights[c] * math.log(weights[c] / total)
    return out


@routine
def draw_test(
    rows: NDArray[np.float64],
    slots: NDArray[np.int32],
    local: NDArray[np.int32],
    weight: NDArray[np.float64],
    start: np.uint64,
    n_candidates: int,
    features: NDArray[np.int64],
    categorical: NDArray[np.uint8],
) -> Test:
    """The test with the largest information gain among `n_candidates` random ones.

    Parameters
    ----------
    slots, local
        The rows, and the class of each as a number below len(weight).
    weight
        What a row of each class counts.
    features
        All features, in any order; they are left in another. One that all rows agree in does not count
        as tried.
    """
    n, classes, n_features = slots.shape[0], weight.shape[0], features.shape[0]
    counts = np.zeros((2, classes), np.int64)
    missing = np.zeros(classes, np.int64)
    left, right, both = np.zeros(classes), np.zeros(classes), np.zeros(classes)
    for a in range(n):
        both[local[a]] += weight[local[a]]
    whole = _entropy(both, classes)
    best = Test(-1, 0.0, 0, -1.0)
    tried = draw = 0
    for k in range(n_features):
        if tried == n_candidates:
            break
        j = k + rng.below(start, draw, n_features - k)
        f = features[j]
        features[j] = features[k]
        features[k] = f
        low, high = np.inf, -np.inf
        for a in range(n):
            v = rows[slots[a], f]
            if v == v:
                low = min(low, v)
                high = max(high, v)
        draw += 3
        if not low < high:
            continue
        tried += 1
        u = rng.uniform(start, draw - 2)
        if not categorical[f]:
            point = low + u * (high - low)
            if not np.isfinite(point):  # the range itself is beyond all numbers
                point = (1.0 - u) * low + u * high
            if not point < high:
                point = low
        elif u < 0.5:
            point = rows[slots[rng.below(start, draw - 1, n)], f]
            if point != point:
                point = low
        else:
            point = rng.subset(start, draw - 1)
        counts[:] = 0
        missing[:] = 0
        sides = np.zeros(2, np.int64)
        for a in range(n):
            v = rows[slots[a], f]
            if v != v:
                missing[local[a]] += 1
            else:
                side = goes_right(v, point, categorical[f], 0)
                counts[side, local[a]] += 1
                sides[side] += 1
        missing_right = 1 if sides[1] > sides[0] else 0
        if sides[0] == 0 or sides[1] == 0:
            continue
        for c in range(classes):
            counts[missing_right, c] += missing[c]
            left[c] = counts[0, c] * weight[c]
            right[c] = counts[1, c] * weight[c]
        gain = whole - _entropy(left, classes) - _entropy(right, classes)
        if gain > best.gain:
            best = Test(f, point, missing_right, gain)
    return best


@kernel
def candidates(n_candidates: int, n_features: int) -> int:
    """Features tried at a split."""
    return n_candidates if n_candidates > 0 else math.ceil(math.sqrt(n_features))


@routine
def grow(
    trees: Trees,
    memory: Memory,
    t: int,
    top: int,
    n_features: int,
    p: Record,
    categorical: NDArray[np.uint8],
) -> None:
    """Split leaf `top`, and what comes of it, until every leaf has rows of one class.

    A leaf whose rows cannot be told apart stays as it is, and is tried again when it has half as many rows
    again. The arrays have room: the caller asked.
    """
    tree = trees.tree[t]
    n = int(trees.node[t, top].n)
    order = np.empty(n, np.int32)  # slots, newest first
    at = trees.node[t, top].head - 1
    for a in range(n):
        order[a] = at
        at = trees.next[t, at] - 1
    local = np.empty(n, np.int32)
    index = np.full(trees.totals.shape[1], -1, np.int32)
    features = np.arange(n_features)
    kept = np.empty(n, np.int32)
    stack = np.empty((n + 1, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = top, 0, n
    depth = 1
    base = rng.key(tree.seed, DRAW_SPLIT, tree.generation)
    new_leaf(trees, t, top, trees.node[t, top].parent)
    while depth > 0:
        depth -= 1
        i, begin, end = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        size = end - begin
        classes = 0
        for a in range(begin, end):
            y = memory.label[order[a]]
            if index[y] < 0:
                index[y] = classes
                classes += 1
            local[a] = index[y]
        for a in range(begin, end):
            index[memory.label[order[a]]] = -1
        test = Test(-1, 0.0, 0, -1.0)
        if classes > 1 and tree.n_nodes + 2 <= p.max_nodes:
            test = draw_test(
                memory.rows,
                order[begin:end],
                local[begin:end],
                np.ones(classes),
                rng.key(base, size, i),
                candidates(p.n_candidates, n_features),
                features,
                categorical,
            )
        if test.feature < 0:
            for a in range(end - 1, begin - 1, -1):  # the oldest first
                add_row(trees, memory, t, i, order[a])
            if trees.node[t, i].only == MIXED:
                trees.node[t, i].wait = size + max(1, size // 2)
            continue
        node = trees.node[t, i]
        node.feature = test.feature
        node.threshold = test.threshold
        node.missing_right = test.missing_right
        node.categorical = categorical[test.feature]
        node.left = tree.n_nodes
        tree.n_nodes += 2
        middle = begin
        kept_n = 0
        for a in range(begin, end):
            v = memory.rows[order[a], test.feature]
            if goes_right(v, test.threshold, node.categorical, test.missing_right):
                kept[kept_n] = order[a]
                kept_n += 1
            else:
                order[middle] = order[a]
                middle += 1
        for a in range(kept_n):
            order[middle + a] = kept[a]
        for side in range(2):
            new_leaf(trees, t, node.left + side, i)
        stack[depth, 0], stack[depth, 1], stack[depth, 2] = node.left + 1, middle, end
        stack[depth + 1, 0], stack[depth + 1, 1], stack[depth + 1, 2] = node.left, begin, middle
        depth += 2


@routine
def regrow(
    trees: Trees,
    memory: Memory,
    t: int,
    slots: NDArray[np.int32],
    learned: int,
    n_features: int,
    p: Record,
    categorical: NDArray[np.uint8],
) -> None:
    """Grow a tree anew from the rows in `slots`, which are in the order of their numbers."""
    tree = trees.tree[t]
    tree.generation += 1
    tree.grown = learned
    tree.n_nodes = 1
    new_leaf(trees, t, 0, -1)
    for a in range(slots.shape[0]):
        add_row(trees, memory, t, 0, slots[a])
    if trees.node[t, 0].only == MIXED:
        grow(trees, memory, t, 0, n_features, p, categorical)
