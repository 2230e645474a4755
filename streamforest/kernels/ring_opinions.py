"""The two opinions of a tree on a row: the counts of its leaf, and the nearest rows in its leaf.

Both come from estimation events alone and are smoothed along the path: a node's answer is
(counts + smoothing·its parent's answer)/(n + smoothing), above the root all classes seen are alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.compiling import kernel
from streamforest.kernels.lanes import lane_distance
from streamforest.kernels.ring import Grove, Record, older

VOTE_UNIT = 4294967296.0
"""Votes are integers in units of 2⁻³², so that the order in which trees are added is free."""

COUNTS, NEAR = range(2)
_NEGLIGIBLE = np.float32(1e-3)  # share of the answer that is left to nodes further up
_FAR = np.float32(1e30)


class Answers(NamedTuple):
    """Room for the answers of one tree."""

    opinion: NDArray[np.float32]  # [2, classes]
    distance: NDArray[np.float32]  # [neighbours]
    label: NDArray[np.int64]  # [neighbours]


@kernel
def _power(base: np.float32, exponent: int) -> np.float32:
    out = np.float32(1.0)
    square = base
    left = exponent
    while left > 0:
        if left & 1:
            out *= square
        square *= square
        left >>= 1
    return out


@kernel
def _prior(
    g: Grove, s: int, leaf: int, n_classes: int, smoothing: np.float32, out: Answers
) -> None:
    """What the ancestors of a leaf say, in opinion NEAR."""
    for k in range(n_classes):
        out.opinion[NEAR, k] = np.float32(0.0)
    left = np.float32(1.0)
    i = g.stat[s, leaf].parent
    while i >= 0 and left > _NEGLIGIBLE:
        stat = g.stat[s, i]
        share = left / (np.float32(stat.n) + smoothing)
        for k in range(stat.n_classes):
            y = g.hist[s, stat.hist + k]
            out.opinion[NEAR, y] += share * np.float32(g.hist[s, stat.hist + stat.room + k])
        left = share * smoothing
        i = stat.parent
    rest = left / np.float32(n_classes)
    for k in range(n_classes):
        out.opinion[NEAR, k] += rest


@kernel
def neighbours(
    g: Grove,
    s: int,
    leaf: int,
    now: int,
    p: Record,
    metric: NDArray[np.float32],
    x: NDArray[np.float32],
    r: int,
    out: Answers,
) -> int:
    """Distances and labels of the leaf's newest estimation rows. Returns how many there are."""
    n = 0
    kind = (s >> 1) & 1
    number = g.stat[s, leaf].head
    oldest = now - p.ring_rows
    slot = number % p.slots if number >= 0 else 0
    while number >= 0 and number >= oldest and n < p.neighbours:
        link = g.link[s, slot]
        if link & 1:
            d = lane_distance(g.rows, slot, x, r, metric, kind)
            out.distance[n] = d if d < _FAR else _FAR
            out.label[n] = g.labels[slot]
            n += 1
        number = older(link, number, slot, p.slots)
        slot = (link >> 1) - 1
    return n


@kernel
def weigh(n: int, power: int, out: Answers) -> None:
    """Distances become weights: 1 for the nearest row, falling with the `power`-th power."""
    nearest = _FAR
    for a in range(n):
        if out.distance[a] < nearest:
            nearest = out.distance[a]
    little = np.float32(1e-3) * nearest + np.float32(1e-9)
    for a in range(n):
        out.distance[a] = _power((nearest + little) / (out.distance[a] + little), power)


@kernel
def answer(
    g: Grove,
    s: int,
    leaf: int,
    now: int,
    p: Record,
    metric: NDArray[np.float32],
    x: NDArray[np.float32],
    r: int,
    n_classes: int,
    out: Answers,
) -> None:
    """Both opinions of the tree in place `s` on row `r` of `x`, which falls into `leaf`."""
    smoothing = np.float32(p.smoothing)
    _prior(g, s, leaf, n_classes, smoothing, out)
    stat = g.stat[s, leaf]
    share = np.float32(1.0) / (np.float32(stat.n) + smoothing)
    little = np.float32(p.neighbour_smoothing)
    for k in range(n_classes):
        out.opinion[COUNTS, k] = out.opinion[NEAR, k] * smoothing * share
        out.opinion[NEAR, k] *= little
    for k in range(stat.n_classes):
        y = g.hist[s, stat.hist + k]
        out.opinion[COUNTS, y] += share * np.float32(g.hist[s, stat.hist + stat.room + k])
    n = neighbours(g, s, leaf, now, p, metric, x, r, out)
    weigh(n, p.neighbour_power, out)
    total = little
    for a in range(n):
        out.opinion[NEAR, out.label[a]] += out.distance[a]
        total += out.distance[a]
    share = np.float32(1.0) / total
    for k in range(n_classes):
        out.opinion[NEAR, k] *= share


@kernel
def favourite(out: Answers, which: int, n_classes: int) -> int:
    """The class an opinion gives most to; -1 while no class is known."""
    best = -1
    most = np.float32(-1.0)
    for k in range(n_classes):
        if out.opinion[which, k] > most:
            most = out.opinion[which, k]
            best = k
    return best


@kernel
def vote(out: Answers, weight: float, n_classes: int, votes: NDArray[np.int64], r: int) -> None:
    """Add both opinions to the votes on row `r`."""
    unit = weight * VOTE_UNIT
    for which in range(2):
        for k in range(n_classes):
            votes[r, which, k] += np.int64(np.rint(unit * np.float64(out.opinion[which, k])))
