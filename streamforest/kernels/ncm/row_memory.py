"""The rows an NCM forest keeps: how they enter the memory, which of them leave it, how trees read them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.core.simd_distance import LANES
from streamforest.kernels.ncm.layout import Columns, Memory, TrainingRows, Tree, times_in_bag, view
from streamforest.kernels.ncm.leaves import uncount, unlink

SEEN, MEAN, VARIANCE, SHIFT = range(4)
"""What is known of a column: rows of `stats`. Values are stored less SHIFT, the first one that came."""

CATEGORY_COLUMNS = 8
"""Columns of a feature of categories: each of the first eight has one of its own, later ones a random mix."""

_LOOK_BACK = 5000.0  # rows that mean and variance look back on
_FEW = 40  # slots of a run that is sorted by insertion


@kernel
def category_value(code: int, k: int) -> float:
    """The value of a category in the k-th of its columns. Every category is a unit vector."""
    if code < CATEGORY_COLUMNS:
        return 1.0 if k == code else 0.0
    sign = rng.uniform(rng.mix(np.uint64(code)), k) < 0.5
    return 0.35355339059327373 if sign else -0.35355339059327373  # 8 ** -0.5


@routine
def to_columns(
    x: NDArray[np.float64],
    op: NDArray[np.uint8],
    columns: Columns,
    categorical: NDArray[np.uint8],
) -> NDArray[np.float32]:
    """Rows as the memory keeps them: float32, NaN where a value is missing.

    Padding is zero, and a feature without columns is left out. A category that was never learned looks
    like the next new one; `columns.categories` says how many a feature had before the first row.
    """
    column, stats = columns.first, columns.stats
    out = np.zeros((x.shape[0], stats.shape[1]), np.float32)
    known = columns.categories.copy()
    for r in range(x.shape[0]):
        for j in range(min(x.shape[1], column.shape[0])):
            c = column[j]
            if c < 0:
                continue
            v = x[r, j]
            if categorical[j]:
                code = known[j] if v < 0.0 else (0 if v != v else int(v))
                for k in range(CATEGORY_COLUMNS):
                    out[r, c + k] = np.nan if v != v else np.float32(category_value(code, k))
                if v >= known[j] and op[r] & LEARN:
                    known[j] = code + 1
            else:
                out[r, c] = np.float32(v - stats[SHIFT, c]) + np.float32(0.0)
        for j in range(x.shape[1], column.shape[0]):  # features that this batch does not have
            c = column[j]
            if c >= 0:
                for k in range(CATEGORY_COLUMNS if categorical[j] else 1):
                    out[r, c + k] = np.nan
    return out


@kernel
def fill_in(x: NDArray[np.float32], fill: NDArray[np.float32]) -> None:
    """Replace missing values by the column's mean."""
    for r in range(x.shape[0]):
        for f in range(x.shape[1]):
            if x[r, f] != x[r, f]:
                x[r, f] = fill[f]


@routine
def stage(
    memory: Memory,
    stats: NDArray[np.float64],
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    slots: NDArray[np.int32],
    number: int,
    columns: int,
) -> None:
    """Write rows to their slots, the first of them row `number`; slot -1: the row is not learned."""
    for r in range(x.shape[0]):
        slot = slots[r]
        if slot < 0:
            continue
        memory.label[slot] = y[r]
        memory.number[slot] = number
        number += 1
        for f in range(x.shape[1]):
            v = x[r, f]
            memory.rows[slot, f] = v
            if f < columns and v == v:
                stats[SEEN, f] += 1.0
                rate = 1.0 / min(stats[SEEN, f], _LOOK_BACK)
                off = np.float64(v) - stats[MEAN, f]
                stats[MEAN, f] += rate * off
                stats[VARIANCE, f] += rate * (off * (v - stats[MEAN, f]) - stats[VARIANCE, f])


@routine
def evict(
    memory: Memory,
    order: NDArray[np.int32],
    n: int,
    capacity: int,
    of_class: NDArray[np.int64],
    seed: np.uint64,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Remove rows until no more than `capacity` of the `n` are left; the slots and numbers of those removed.

    Each time a random row of the class with the most rows goes (of equals the class known longest).
    `order` has the slots by number, before and after. `of_class` counts the rows of each class.
    """
    victims = np.empty(max(0, n - capacity), np.int32)
    numbers = np.empty(victims.shape[0], np.int64)
    if victims.shape[0] == 0:
        return victims, numbers
    classes = of_class.shape[0]
    start = np.zeros(classes + 1, np.int64)
    for c in range(classes):
        start[c + 1] = start[c] + of_class[c]
    grouped = np.empty(n, np.int32)
    end = start[:classes].copy()
    for a in range(n):
        c = memory.label[order[a]]
        grouped[end[c]] = order[a]
        end[c] += 1
    last = memory.number[order[n - 1]]
    for v in range(victims.shape[0]):
        largest = 0
        for c in range(classes):
            if of_class[c] > of_class[largest]:
                largest = c
        draw = rng.below(rng.key(seed, rng.NCM_MEMORY, last), v, of_class[largest])
        chosen = start[largest] + draw
        victims[v] = grouped[chosen]
        grouped[chosen] = grouped[start[largest] + of_class[largest] - 1]
        of_class[largest] -= 1
    for v in range(victims.shape[0]):
        numbers[v] = memory.number[victims[v]]
        memory.number[victims[v]] = -1
    left = 0
    for a in range(n):
        if memory.number[order[a]] >= 0:
            order[left] = order[a]
            left += 1
    return victims, numbers


@kernel
def forget(
    tree: Tree,
    slots: NDArray[np.int32],
    labels: NDArray[np.int32],
    numbers: NDArray[np.int64],
    bagged: int,
) -> None:
    """Remove rows that left the memory from the tree, if they are in it."""
    info = tree.info[0]
    for a in range(slots.shape[0]):
        i = tree.leaf[slots[a]]
        if i < 0:
            continue
        unlink(tree, slots[a])
        w = times_in_bag(info.seed, info.bag, numbers[a], bagged)
        if w > 0:
            uncount(tree, i, labels[a], w)


@routine
def forget_in_all(
    trees: NDArray[np.int64],
    slots: NDArray[np.int32],
    labels: NDArray[np.int32],
    numbers: NDArray[np.int64],
    bagged: int,
) -> None:
    """Remove rows that left the memory from every tree."""
    for t in range(trees.shape[0]):
        forget(view(trees, t), slots, labels, numbers, bagged)


@routine
def sort_by_number(slots: NDArray[np.int32], number: NDArray[np.int64]) -> None:
    """Sort slots by the numbers of their rows, no two of which are equal: runs by insertion, then merged.

    (`np.argsort` takes five seconds to compile.)
    """
    n = slots.shape[0]
    for begin in range(0, n, _FEW):
        for a in range(begin + 1, min(n, begin + _FEW)):
            slot = slots[a]
            b = a - 1
            while b >= begin and number[slots[b]] > number[slot]:
                slots[b + 1] = slots[b]
                b -= 1
            slots[b + 1] = slot
    run = _FEW
    spare = np.empty(n if n > run else 0, np.int32)
    while run < n:
        for begin in range(0, n, 2 * run):
            middle, end = min(n, begin + run), min(n, begin + 2 * run)
            a, b = begin, middle
            for c in range(begin, end):
                if b >= end or (a < middle and number[slots[a]] < number[slots[b]]):
                    spare[c] = slots[a]
                    a += 1
                else:
                    spare[c] = slots[b]
                    b += 1
        for c in range(n):
            slots[c] = spare[c]
        run *= 2


@routine
def training_rows(
    memory: Memory,
    slots: NDArray[np.int32],
    fill: NDArray[np.float32],
    width: int,
    seed: np.uint64,
    bag: int,
    bagged: int,
) -> TrainingRows:
    """The rows in `slots`, which are in the order of their numbers."""
    n = slots.shape[0]
    z = np.empty((n, width), np.float32)
    label = np.empty(n, np.int32)
    times = np.empty(n, np.int32)
    upper = np.empty(n, np.int32)
    for a in range(n):
        slot = slots[a]
        label[a] = memory.label[slot]
        upper[a] = memory.upper[slot]
        times[a] = times_in_bag(seed, bag, memory.number[slot], bagged)
        for f in range(width):
            v = memory.rows[slot, f]
            z[a, f] = v if v == v else fill[f]
    return TrainingRows(z, slots, label, times, upper)


@routine
def training_rows_of_leaf(
    memory: Memory, tree: Tree, i: int, fill: NDArray[np.float32], bagged: int
) -> TrainingRows:
    """The rows of leaf `i`."""
    n = 0
    slot = tree.node[i].head
    while slot >= 0:
        n += 1
        slot = tree.next[slot]
    slots = np.empty(n, np.int32)
    slot = tree.node[i].head
    for a in range(n):
        slots[a] = slot
        slot = tree.next[slot]
    sort_by_number(slots, memory.number)
    info = tree.info[0]
    return training_rows(memory, slots, fill, tree.cen.shape[1], info.seed, info.bag, bagged)


def padded(columns: int) -> int:
    """The width of a row with so many columns."""
    return max(1, -(-columns // LANES)) * LANES
