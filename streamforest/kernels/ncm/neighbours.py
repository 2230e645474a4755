"""The rows of a leaf as neighbours: a tree's second opinion.

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
from streamforest.kernels.ncm.layout import FULL_PLAIN, RAW, Memory, Tree
from streamforest.kernels.ncm.row_memory import SEEN, VARIANCE

ALIKE, STANDARDISED = range(2)
"""Distances of neighbours: all columns alike, or each over its variance."""

_NEAREST = 8.0  # nearer than the usual distance over this counts no more
_STEEPEST = 1e38  # scale of a column: float32 has values whose square over it is no number
_FLOOR = 0.01  # of the mean variance of all columns, added to each


@kernel
def distance_of(tree: Tree) -> int:
    """Which of the two distances goes with the metric of a tree."""
    kind = tree.info[0].metric
    return ALIKE if kind in (RAW, FULL_PLAIN) else STANDARDISED


@kernel
def newest(tree: Tree, leaf: int, most: int, slots: NDArray[np.int64], t: int) -> int:
    """The slots of the newest `most` rows of a leaf, to `slots[t]`. Returns how many there are."""
    n = 0
    slot = tree.node[leaf].head
    while slot >= 0 and n < most:
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
    metric: NDArray[np.float32],
    usual: NDArray[np.float64],
    x: NDArray[np.float32],
    r: int,
    square: NDArray[np.float32],
    votes: NDArray[np.int64],
) -> float:
    """Add the rows in the first `n` slots of `slots[t]`, those of a leaf, to `votes[r, 2]`; the squared
    distance of the nearest, or -1.
    """
    kind = distance_of(tree)
    a = 0
    while a + 4 <= n:
        square[a], square[a + 1], square[a + 2], square[a + 3] = lane_distance4(
            memory.rows, slots[t, a], slots[t, a + 1], slots[t, a + 2], slots[t, a + 3],
            x, r, metric, kind,
        )  # fmt: skip
        a += 4
    while a < n:
        square[a] = lane_distance(memory.rows, slots[t, a], x, r, metric, kind)
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
            votes[r, 2, memory.label[slots[t, a]]] += np.int64(np.rint(q * q * VOTE_UNIT))
    return least


@routine
def settle_distances(stats: NDArray[np.float64], metric: NDArray[np.float32]) -> None:
    """Both distances anew from the statistics of the columns."""
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
            metric[kind, SCALE, f] = np.float32(min(np.sqrt(scale), _STEEPEST))
            metric[kind, CAP, f] = np.float32(np.inf)
            metric[kind, GAP, f] = np.float32(2.0 * variance * scale)
