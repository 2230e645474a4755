"""The rows of a leaf as neighbours: a tree's second expert.

Each row of the leaf an event falls into counts for its class, the more the nearer it is. Nearness is
measured against what is usual in the whole forest, not in the leaf: so the sum over the trees is one
weighted vote of all rows that share a leaf with the event somewhere, each as often as it does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import VOTE_UNIT
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.simd_distance import CAP, GAP, SCALE, lane_distance, lane_distance4
from streamforest.kernels.ncm.layout import FULL_IDENTITY, NEIGHBOURS, RAW, Memory, Tree
from streamforest.kernels.ncm.row_memory import SEEN, VARIANCE

ALIKE, STANDARDISED = range(2)
"""Distances of neighbours: all columns alike, or each divided by its variance."""

_NEAREST = 8.0  # a row nearer than the usual distance over this has no more weight
_STEEPEST = 1e38  # largest scale of a column: beyond it float32 overflows
_FLOOR = 0.01  # of the mean variance of all columns, added to each


@kernel
def distance_of(tree: Tree) -> int:
    """Which of the two distances goes with the metric of a tree."""
    kind = tree.info[0].metric
    return ALIKE if kind in (RAW, FULL_IDENTITY) else STANDARDISED


@kernel
def newest(tree: Tree, leaf: int, max_rows: int, slots: NDArray[np.int64], t: int) -> int:
    """Write the slots of the newest rows of a leaf to `slots[t]`; how many there are, at most `max_rows`."""
    n = 0
    slot = tree.node[leaf].head
    while slot >= 0 and n < max_rows:
        slots[t, n] = slot
        slot = tree.next[slot]
        n += 1
    return n


@kernel
def vote_of_neighbours(
    tree: Tree,
    slots: NDArray[np.int64],
    t: int,
    n: int,
    memory: Memory,
    scales: NDArray[np.float32],
    usual: NDArray[np.float64],
    x: NDArray[np.float32],
    r: int,
    square: NDArray[np.float32],
    votes: NDArray[np.int64],
) -> float:
    """Add the rows in the first `n` slots of `slots[t]`, those of a leaf, to `votes[r, NEIGHBOURS]`.

    Returns the squared distance of the nearest, or -1. `usual` is what that is on average.
    """
    kind = distance_of(tree)
    a = 0
    while a + 4 <= n:
        square[a], square[a + 1], square[a + 2], square[a + 3] = lane_distance4(
            memory.rows, slots[t, a], slots[t, a + 1], slots[t, a + 2], slots[t, a + 3],
            x, r, scales, kind,
        )  # fmt: skip
        a += 4
    while a < n:
        square[a] = lane_distance(memory.rows, slots[t, a], x, r, scales, kind)
        a += 1
    reach = usual[kind]
    least = -1.0
    for a in range(n):
        d = float(square[a])
        if d < np.inf and (least < 0.0 or d < least):
            least = d
        if reach > 0.0 and d < np.inf:
            q = min(_NEAREST, reach / (d + 1e-3 * reach))
            q = q * q * q
            votes[r, NEIGHBOURS, memory.label[slots[t, a]]] += np.int64(np.rint(q * q * VOTE_UNIT))
    return least


@routine
def update_scales(stats: NDArray[np.float64], scales: NDArray[np.float32]) -> None:
    """Both distances by the statistics of the columns as they are now."""
    total = 0.0
    moving = 0
    for f in range(stats.shape[1]):
        if stats[VARIANCE, f] > 0:
            total += stats[VARIANCE, f]
            moving += 1
    level = total / moving if moving > 0 else 1.0
    for f in range(stats.shape[1]):
        variance = stats[VARIANCE, f]
        for kind in range(2):
            scale = 0.0
            if stats[SEEN, f] > 0:
                scale = 1.0 / (level if kind == ALIKE else variance + _FLOOR * level)
            scales[kind, SCALE, f] = np.float32(min(np.sqrt(scale), _STEEPEST))
            scales[kind, CAP, f] = np.float32(np.inf)
            scales[kind, GAP, f] = np.float32(2.0 * variance * scale)
