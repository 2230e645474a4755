"""What a tree knows of a class of few rows: the multiplier of its MAP estimate, and whether to use it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.few.layout import (
    EMPTY,
    MIXED,
    MOST_SUPPORT,
    Helped,
    Memory,
    Record,
    Trees,
    descend,
)
from streamforest.kernels.few.map_estimate import map_multiplier, map_share


@kernel
def variance_of(p: Record, n_nodes: int) -> float:
    """σ² of the prior in a tree: as given, or 1/m² for its m leaves."""
    leaves = 0.5 * (n_nodes + 1)
    return float(p.variance) if p.variance > 0.0 else 1.0 / (leaves * leaves)


@kernel
def _others(trees: Trees, memory: Memory, t: int, i: int, label: int) -> float:
    """The shares of all classes but one in leaf `i`, summed."""
    node = trees.node[t, i]
    if node.only == label or node.only == EMPTY:
        return 0.0
    if node.only != MIXED:
        return float(node.n / trees.totals[t, node.only])
    out = 0.0
    at = node.head - 1
    while at >= 0:
        y = memory.label[at]
        if y != label:
            out += 1.0 / trees.totals[t, y]
        at = trees.next[t, at] - 1
    return out


@routine
def settle(trees: Trees, memory: Memory, helped: Helped, t: int, h: int, p: Record) -> None:
    """Bring tree `t` up to date on helped class `h`.

    It uses the MAP estimate if the class has few rows and support; if at least half of its rows lie in leaves
    without other classes (elsewhere those outvote it, since the prior leaves little for the rows
    themselves); and if, with two rows or more, it gives the rows themselves more than their plain shares
    do, each asked as if it had not been there (leave one out). For that a row alone in its leaf
    falls into the leaf that it would be in without that leaf's split.
    """
    trees.uses_map[t, h] = 0
    trees.multiplier[t, h] = 0.0
    label = helped.label[h]
    if label < 0:
        return
    rows = trees.totals[t, label]
    if rows == 0 or rows > p.few_rows:
        return
    place = np.full(trees.totals.shape[1], -1, np.int32)
    total = np.zeros(MOST_SUPPORT)
    k = 0
    for a in range(MOST_SUPPORT):
        y = helped.support[h, a]
        if y >= 0 and trees.totals[t, y] > 0:
            place[y] = k
            total[k] = trees.totals[t, y]
            k += 1
    if k == 0:
        return
    place[label] = k
    n_nodes = trees.tree[t].n_nodes
    counts = np.zeros((n_nodes, k + 1), np.int32)
    for slot in range(memory.label.shape[0]):
        i = trees.leaf[t, slot] - 1
        if i >= 0 and place[memory.label[slot]] >= 0:
            counts[i, place[memory.label[slot]]] += 1
    of_node = np.full(n_nodes, -1, np.int32)
    mean, count = np.empty(n_nodes), np.empty(n_nodes)
    m = 0
    pure = 0
    for i in range(n_nodes):
        share = 0.0
        for a in range(k):
            share += counts[i, a] / total[a]
        if share > 0.0 or counts[i, k] > 0:
            of_node[i] = m
            mean[m] = share / k
            count[m] = counts[i, k]
            m += 1
            if trees.node[t, i].only == label:
                pure += counts[i, k]
    variance = variance_of(p, n_nodes)
    trees.multiplier[t, h], _ = map_multiplier(mean[:m], count[:m], variance)
    if 2 * pure < rows:
        return
    if p.leave_one_out and rows > 1:
        plain = by_map = 0.0
        for a in range(helped.n_members[h]):
            slot = helped.member[h, a]
            i = trees.leaf[t, slot] - 1
            if i < 0:
                continue
            own = of_node[i]
            parent = trees.node[t, i].parent
            if trees.node[t, i].n == 1 and parent >= 0:
                left = trees.node[t, parent].left
                i = descend(trees, t, 2 * left + 1 - i, memory.rows[slot])
            count[own] -= 1.0
            u, _ = map_multiplier(mean[:m], count[:m], variance)
            at = of_node[i]
            mu, c = (mean[at], count[at]) if at >= 0 else (0.0, 0.0)
            others = _others(trees, memory, t, i, label)
            share = c / (rows - 1)
            if share > 0.0:
                plain += share / (share + others)
            share = map_share(mu, c, u, variance)
            if share > 0.0:
                by_map += share / (share + others)
            count[own] += 1.0
        if by_map < plain:
            return
    trees.uses_map[t, h] = 1


@routine
def settle_all(trees: Trees, memory: Memory, helped: Helped, p: Record) -> None:
    """All trees on all helped classes."""
    for t in range(trees.tree.shape[0]):
        for h in range(helped.label.shape[0]):
            settle(trees, memory, helped, t, h, p)


@routine
def class_means(
    memory: Memory, slots: NDArray[np.int32], classes: int, columns: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean of each class in these columns, and the deviation of each column; 0 where nothing is known."""
    n = columns.shape[0]
    mean = np.zeros((classes, n))
    seen = np.zeros((classes, n), np.int64)
    first, second, rows = np.zeros(n), np.zeros(n), np.zeros(n)
    for a in range(slots.shape[0]):
        y = memory.label[slots[a]]
        for c in range(n):
            v = memory.rows[slots[a], columns[c]]
            if v == v:
                mean[y, c] += v
                seen[y, c] += 1
                rows[c] += 1.0
                off = v - first[c]
                first[c] += off / rows[c]
                second[c] += off * (v - first[c])
    for y in range(classes):
        for c in range(n):
            mean[y, c] = mean[y, c] / seen[y, c] if seen[y, c] > 0 else first[c]
    for c in range(n):
        second[c] = np.sqrt(second[c] / rows[c]) if rows[c] > 0.0 else 0.0
    return mean, second
