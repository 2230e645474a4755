"""The two experts of a tree on a row: the counts of its leaf, and the nearest rows in its leaf.

Both come from estimation events alone and are smoothed along the path: a node's answer is
(counts + smoothing·its parent's answer)/(n + smoothing), above the root all classes seen are alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.prefetch import prefetch
from streamforest.kernels.core.simd_distance import lane_distance, lane_distance4
from streamforest.kernels.stream.layout import Record, TreeArrays, older

VOTE_UNIT = 4294967296.0
"""Votes are integers in units of 2⁻³², so that the order in which trees are added is free."""

COUNTS, NEAR = range(2)
_NEGLIGIBLE = np.float32(1e-3)  # share of the answer that is left to nodes further up
_FAR = np.float32(1e30)
_SPARSE_WORK = 32 * 1024
"""Values of neighbours that a tree looks at for a sparse row: fewer rows where they are wide."""


class Answers(NamedTuple):
    """Room for the answers of one tree."""

    expert: NDArray[np.float32]  # [2, classes]
    slot: NDArray[np.int32]  # [neighbours]
    weight: NDArray[np.float32]  # [neighbours] what a row counts
    square: NDArray[np.float32]  # [neighbours] its distance, then powers of how near it is


@kernel
def _prior(
    g: TreeArrays, s: int, leaf: int, n_classes: int, smoothing: np.float32, out: Answers
) -> None:
    """What the ancestors of a leaf say, in expert NEAR."""
    for k in range(n_classes):
        out.expert[NEAR, k] = np.float32(0.0)
    left = np.float32(1.0)
    i = g.stat[s, leaf].parent
    while i >= 0 and left > _NEGLIGIBLE:
        stat = g.stat[s, i]
        share = left / (np.float32(stat.n) + smoothing)
        for k in range(stat.n_classes):
            y = g.hist[s, stat.hist + k]
            out.expert[NEAR, y] += share * np.float32(g.hist[s, stat.hist + stat.room + k])
        left = share * smoothing
        i = stat.parent
    rest = left / np.float32(n_classes)
    for k in range(n_classes):
        out.expert[NEAR, k] += rest


@kernel
def heard(p: Record, n_features: int) -> int:
    """How many neighbours a row of so many features is compared with, at most."""
    if p.zero and p.neighbours * n_features > _SPARSE_WORK:
        return max(1, _SPARSE_WORK // n_features)
    return p.neighbours  # type: ignore[no-any-return]


@kernel
def neighbours(
    g: TreeArrays, s: int, leaf: int, now: int, p: Record, most: int, slot: NDArray[np.int32]
) -> int:
    """The slots of the leaf's newest estimation rows, `most` of them. Returns how many there are."""
    n = 0
    number = g.stat[s, leaf].head
    oldest = now - p.ring_rows
    at = number % p.slots if number >= 0 else 0
    rows = g.rows.ctypes.data
    width = 4 * g.rows.shape[1]
    while number >= 0 and number >= oldest and n < most:
        link = g.link[s, at]
        if link & 1:
            slot[n] = at
            prefetch(rows + at * width)  # while the rest of the list is walked
            n += 1
        number = older(link, number, at, p.slots)
        at = (link >> 1) - 1
    return n


@kernel
def weigh(
    g: TreeArrays,
    metric: NDArray[np.float32],
    kind: int,
    power: int,
    x: NDArray[np.float32],
    r: int,
    n: int,
    out: Answers,
) -> None:
    """What `n` rows count by their distance: the nearest 1, falling with the `power`-th power.

    Loops that ask nothing of each other's results, so that they become vector instructions.
    """
    slot, weight, square = out.slot, out.weight, out.square
    a = 0
    while a + 4 <= n:
        square[a], square[a + 1], square[a + 2], square[a + 3] = lane_distance4(
            g.rows, slot[a], slot[a + 1], slot[a + 2], slot[a + 3], x, r, metric, kind
        )
        a += 4
    while a < n:
        square[a] = lane_distance(g.rows, slot[a], x, r, metric, kind)
        a += 1
    nearest = _FAR
    for a in range(n):
        square[a] = square[a] if square[a] < _FAR else _FAR
        if square[a] < nearest:
            nearest = square[a]
    little = np.float32(1e-3) * nearest + np.float32(1e-9)
    for a in range(n):
        square[a] = (nearest + little) / (square[a] + little)
        weight[a] = np.float32(1.0)
    while power > 0:
        if power & 1:
            for a in range(n):
                weight[a] *= square[a]
        for a in range(n):
            square[a] *= square[a]
        power >>= 1


@kernel
def answer(
    g: TreeArrays,
    s: int,
    leaf: int,
    now: int,
    p: Record,
    most: int,
    metric: NDArray[np.float32],
    x: NDArray[np.float32],
    r: int,
    n_classes: int,
    out: Answers,
) -> None:
    """Both experts of the tree in tree slot `s` on row `r` of `x`, which falls into `leaf`."""
    smoothing = np.float32(p.smoothing)
    _prior(g, s, leaf, n_classes, smoothing, out)
    stat = g.stat[s, leaf]
    share = np.float32(1.0) / (np.float32(stat.n) + smoothing)
    little = np.float32(p.neighbour_smoothing)
    for k in range(n_classes):
        out.expert[COUNTS, k] = out.expert[NEAR, k] * smoothing * share
        out.expert[NEAR, k] *= little
    for k in range(stat.n_classes):
        y = g.hist[s, stat.hist + k]
        out.expert[COUNTS, y] += share * np.float32(g.hist[s, stat.hist + stat.room + k])
    n = neighbours(g, s, leaf, now, p, most, out.slot)
    weigh(g, metric, (s >> 1) & 1, p.neighbour_power, x, r, n, out)
    total = little
    y = 0
    of_class = out.expert[NEAR, y]  # the sum of the class met last, not yet written back
    for a in range(n):
        label = g.labels[out.slot[a]]
        if label != y:
            out.expert[NEAR, y] = of_class
            y = label
            of_class = out.expert[NEAR, y]
        of_class += out.weight[a]
        total += out.weight[a]
    out.expert[NEAR, y] = of_class
    share = np.float32(1.0) / total
    for k in range(n_classes):
        out.expert[NEAR, k] *= share


@kernel
def favourite(out: Answers, which: int, n_classes: int) -> int:
    """The class an expert gives most to; -1 while no class is known."""
    best = -1
    largest = np.float32(-1.0)
    for k in range(n_classes):
        if out.expert[which, k] > largest:
            largest = out.expert[which, k]
            best = k
    return best


@kernel
def vote(out: Answers, weight: float, n_classes: int, votes: NDArray[np.int64], r: int) -> None:
    """Add both experts to the votes on row `r`."""
    unit = weight * VOTE_UNIT
    for which in range(2):
        for k in range(n_classes):
            votes[r, which, k] += np.int64(np.rint(unit * np.float64(out.expert[which, k])))
