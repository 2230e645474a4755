"""Which nodes of an NCM tree a retraining works on (Ristin 2016, section 4.5), and compacting a tree."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.entropy import UNIT, xlogx
from streamforest.kernels.ncm.layout import Memory, Tree, times_in_bag

QUALITY, SIZE, UNIFORM = range(3)
"""What makes a node likely to be drawn: a subtree that separates classes badly, a small subtree, nothing."""

_LEAST_QUALITY = 1e-6


class Survey(NamedTuple):
    """A tree in preorder: its nodes, and the rows below each.

    The subtree of the node at place q is places q to `end[q]`; its rows are `row[start[q]]` to
    `row[start[end[q]]]`.
    """

    node: NDArray[np.int32]  # [places]
    place: NDArray[np.int32]  # [nodes] -1: not part of the tree
    end: NDArray[np.int32]  # [places]
    depth: NDArray[np.int32]  # [places]
    start: NDArray[np.int64]  # [places + 1]
    row: NDArray[np.int32]  # slots by leaf, within a leaf by number


@routine
def survey(tree: Tree, slots: NDArray[np.int32]) -> Survey:
    """The preorder of a tree whose rows are in `slots`, in the order of their numbers."""
    n = tree.info[0].n_nodes
    node = np.empty(n, np.int32)
    place = np.full(n, -1, np.int32)
    depth = np.zeros(n, np.int32)
    stack = np.empty((n + 1, 2), np.int32)
    stack[0, 0] = 0
    stack[0, 1] = 0
    high = 1
    q = 0
    while high > 0:
        high -= 1
        i, d = stack[high, 0], stack[high, 1]
        node[q] = i
        place[i] = q
        depth[q] = d
        q += 1
        left = tree.node[i].left
        if left >= 0:
            stack[high, 0] = left + 1
            stack[high, 1] = d + 1
            stack[high + 1, 0] = left
            stack[high + 1, 1] = d + 1
            high += 2
    end = np.empty(q, np.int32)
    for a in range(q - 1, -1, -1):
        left = tree.node[node[a]].left
        end[a] = a + 1 if left < 0 else end[place[left + 1]]
    start = np.zeros(q + 1, np.int64)
    for b in range(slots.shape[0]):
        start[place[tree.leaf[slots[b]]] + 1] += 1
    for a in range(q):
        start[a + 1] += start[a]
    row = np.empty(slots.shape[0], np.int32)
    next_row = start[:q].copy()
    for b in range(slots.shape[0]):
        a = place[tree.leaf[slots[b]]]
        row[next_row[a]] = slots[b]
        next_row[a] += 1
    return Survey(node[:q], place, end, depth[:q], start, row)


@routine
def depth_of(tree: Tree) -> int:
    """Splits above the deepest leaf."""
    none = np.empty(0, np.int32)
    return int(survey(tree, none).depth.max())


@routine
def _qualities(
    tree: Tree, memory: Memory, view: Survey, bagged: int, classes: int, table: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Q(n): how much purer the leaves below a node are than the node itself, in bits per row."""
    info = tree.info[0]
    places = view.node.shape[0]
    weight = np.zeros(places)
    impurity = np.zeros(places, np.int64)  # rows · entropy, in whole units
    below = np.zeros(places + 1, np.int64)  # of the leaves before a place
    count = np.zeros(classes, np.int64)
    for q in range(places):
        total = 0
        for b in range(view.start[q], view.start[view.end[q]]):
            slot = view.row[b]
            w = times_in_bag(info.seed, info.bag, memory.number[slot], bagged)
            count[memory.label[slot]] += w
            total += w
        value = xlogx(total, table)
        for b in range(view.start[q], view.start[view.end[q]]):
            y = memory.label[view.row[b]]
            value -= xlogx(count[y], table)
            count[y] = 0
        weight[q] = total
        impurity[q] = value
        below[q + 1] = below[q] + (value if tree.node[view.node[q]].left < 0 else 0)
    out = np.full(places, _LEAST_QUALITY)
    for q in range(places):
        if weight[q] > 0:
            gain = impurity[q] - (below[view.end[q]] - below[q])
            out[q] = max(_LEAST_QUALITY, gain * UNIT / weight[q])
    return out


@routine
def draw_nodes(
    tree: Tree,
    memory: Memory,
    view: Survey,
    pi: float,
    mode: int,
    bagged: int,
    classes: int,
    table: NDArray[np.int64],
) -> NDArray[np.int32]:
    """A share `pi` of the splitting nodes, rounded up, without replacement; upper ones first.

    Chances are one over quality, one over size plus one, or equal. Every node draws an exponential
    time whose mean is one over its chance, and the nodes with the shortest times are taken.
    """
    places = view.node.shape[0]
    splits = 0
    for q in range(places):
        if tree.node[view.node[q]].left >= 0:
            splits += 1
    wanted = math.ceil(pi * splits - 1e-9)
    if mode == QUALITY:
        slow = _qualities(tree, memory, view, bagged, classes, table)
    else:
        slow = np.ones(places)
        if mode == SIZE:
            for q in range(places):
                slow[q] = view.end[q] - q + 1.0
    info = tree.info[0]
    start = rng.key(info.seed, rng.NCM_NODES, info.rounds)
    time = np.full(places, np.inf)
    for q in range(places):
        if tree.node[view.node[q]].left >= 0:
            time[q] = -math.log(1.0 - rng.uniform(start, q)) * slow[q]
    first = np.argsort(time)[:wanted]
    keys = np.empty(wanted, np.int64)
    for a in range(wanted):
        keys[a] = np.int64(view.depth[first[a]]) * (1 << 32) + first[a]
    keys.sort()
    out = np.empty(wanted, np.int32)
    for a in range(wanted):
        out[a] = view.node[keys[a] & 0xFFFFFFFF]
    return out


@routine
def compact(tree: Tree, slots: NDArray[np.int32], to: Tree) -> None:
    """Copy the tree to `to`, whose arrays are as long: upper nodes first, without gaps."""
    info = to.info[0]
    place_of = np.full(tree.info[0].n_nodes, -1, np.int32)
    order = np.empty(tree.info[0].n_nodes, np.int32)
    order[0] = 0
    n = 1
    rows = 0
    top = 0
    a = 0
    while a < n:
        i = order[a]
        place_of[i] = a
        here = tree.node[i]
        there = to.node[a]
        to.node[a] = here
        if here.left >= 0:
            order[n] = here.left
            order[n + 1] = here.left + 1
            there.left = n
            n += 2
            there.first = rows
            for j in range(here.k):
                _copy_row(tree, here.first + j, to, rows + j)
            rows += here.k
        else:
            there.hist = top
            for e in range(2 * here.room):
                to.hist[top + e] = tree.hist[here.hist + e]
            top += 2 * here.room
        a += 1
    info.n_nodes = n
    info.n_rows = rows
    info.hist_top = top
    for b in range(slots.shape[0]):
        to.leaf[slots[b]] = place_of[tree.leaf[slots[b]]]


@kernel
def _copy_row(tree: Tree, j: int, to: Tree, row: int) -> None:
    to.half[row] = tree.half[j]
    to.side[row] = tree.side[j]
    to.label[row] = tree.label[j]
    for f in range(tree.cen.shape[1]):
        to.cen[row, f] = tree.cen[j, f]
