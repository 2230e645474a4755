"""The newest rows as neighbours: a short memory for streams that change all the time, or at once.

Forests need some hundred events to unlearn. The three nearest of the last few dozen rows do not: what is
older than a window does not exist. How far back it pays to look changes too, so every row has ten *views*:
five windows of 32 to 512 rows, each with two distances, one between values as they come and one in standard
deviations. The views' hits fade within some 30 events, and the answer is the sum of all views weighted by
the exponential of their hits, as of each row.

The ring stands with a column of the stream in a row of memory: distances from all rows are then sums
side by side, in the order of the columns whatever the machine adds at once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.operations import LEARN

SLOTS = 512
METRICS = 2
NEAREST = 3
SEEN, MEAN, VARIANCE, INVERSE = range(4)
"""Rows of `columns`: values seen of a column, mean, variance, and 1/variance as of the last epoch."""

_WINDOWS = np.array([32, 64, 128, 256, 512])
VIEWS = METRICS * len(_WINDOWS)
_MEMORY = 0.97  # of hits, an event
MOST_HITS = 1 / (1 - _MEMORY)
_STATISTICS = 2_000  # events that means and variances remember
_CLOSE = 1e-6  # what a row at no distance has, in distances of the third nearest
_UNIT = float(1 << 32)


class Recent(NamedTuple):
    """The ring, and what is known of views and columns."""

    rows: NDArray[np.float32]  # [columns, SLOTS], NaN: missing
    labels: NDArray[np.int32]  # [SLOTS]
    hits: NDArray[np.float64]  # [VIEWS]
    columns: NDArray[np.float64]  # [4, columns]
    best: NDArray[np.int64]  # [VIEWS], what each view said of the last row


@kernel
def _distances(
    recent: Recent,
    x: NDArray[np.float64],
    categorical: NDArray[np.uint8],
    begin: int,
    end: int,
    raw: NDArray[np.float64],
    scaled: NDArray[np.float64],
) -> None:
    """Squared distances of a row from those in some of the slots; a missing value says nothing."""
    raw, scaled = raw[begin:end], scaled[begin:end]
    raw[:] = 0.0
    scaled[:] = 0.0
    for f in range(min(x.shape[0], recent.rows.shape[0])):
        value = float(np.float32(x[f]))
        if math.isnan(value):
            continue
        column = recent.rows[f, begin:end]  # counted from zero, or the loop would not be vectorised
        if f < categorical.shape[0] and categorical[f]:
            for t in range(end - begin):
                other = float(column[t])
                apart = 0.0 if other == value or other != other else 1.0
                raw[t] += apart
                scaled[t] += apart
            continue
        inverse = recent.columns[INVERSE, f]
        for t in range(end - begin):
            apart = value - float(column[t])
            square = apart * apart
            square = square if square == square else 0.0
            raw[t] += square
            scaled[t] += square * inverse


@kernel
def _view(
    distance: NDArray[np.float64],
    label: NDArray[np.int64],
    n: int,
    weight: NDArray[np.float64],
) -> int:
    """Weights of the nearest rows, which sum to one, and the class with the largest share."""
    far = distance[n - 1]
    total = 0.0
    for q in range(n):
        weight[q] = 1.0 / (math.sqrt(distance[q] / far) + _CLOSE) if far > 0.0 else 1.0
        total += weight[q]
    best, largest = -1, 0.0
    for q in range(n):
        weight[q] /= total
        share = 0.0
        for other in range(q + 1):
            if label[other] == label[q]:
                share += weight[other]
        if share > largest:
            best, largest = label[q], share
    return best


@kernel
def _answer(
    recent: Recent,
    number: int,
    most: int,
    x: NDArray[np.float64],
    categorical: NDArray[np.uint8],
    raw: NDArray[np.float64],
    scaled: NDArray[np.float64],
    mixed: NDArray[np.float64],
    votes: NDArray[np.int64],
) -> None:
    """What the views say of a row after `number` learned ones, and their sum in `votes`."""
    kept = min(number, most)
    end = (number - 1) % SLOTS + 1
    begin = end - kept  # below zero: the older ones stand at the end of the ring
    for part in range(1 if begin >= 0 else 2):
        low = max(0, begin) if part == 0 else SLOTS + begin
        _distances(recent, x, categorical, low, end if part == 0 else SLOTS, raw, scaled)
    largest = recent.hits.max()
    total = 0.0
    for v in range(VIEWS):
        total += math.exp(recent.hits[v] - largest)
    near = np.empty(NEAREST)
    label = np.empty(NEAREST, np.int64)
    weight = np.empty(NEAREST)
    mixed[:] = 0.0
    view = 0
    for metric in range(METRICS):
        distance = raw if metric == 0 else scaled
        n, t = 0, 0
        for w in range(len(_WINDOWS)):
            while t < min(kept, _WINDOWS[w]):
                slot = (number - 1 - t) % SLOTS
                d = distance[slot]
                if n < NEAREST or d < near[NEAREST - 1]:
                    n = min(n + 1, NEAREST)
                    q = n - 1
                    while q > 0 and near[q - 1] > d:
                        near[q] = near[q - 1]
                        label[q] = label[q - 1]
                        q -= 1
                    near[q] = d
                    label[q] = recent.labels[slot]
                t += 1
            recent.best[view] = _view(near, label, n, weight)
            share = math.exp(recent.hits[view] - largest) / total
            for q in range(n):
                mixed[label[q]] += share * weight[q]
            view += 1
    for k in range(mixed.shape[0]):
        votes[k] = np.int64(np.rint(_UNIT * mixed[k]))


@kernel
def _learn(
    recent: Recent,
    number: int,
    x: NDArray[np.float64],
    y: int,
    categorical: NDArray[np.uint8],
) -> None:
    """Let the row into the ring, after `number` others."""
    slot = number % SLOTS
    recent.labels[slot] = y
    for f in range(recent.rows.shape[0]):
        value = np.float32(x[f]) if f < x.shape[0] else np.float32(np.nan)
        recent.rows[f, slot] = value
        if math.isnan(value) or (f < categorical.shape[0] and categorical[f]):
            continue
        column = recent.columns
        column[SEEN, f] += 1.0
        rate = max(1.0 / column[SEEN, f], 1.0 / _STATISTICS)
        apart = float(value) - column[MEAN, f]
        column[MEAN, f] += rate * apart
        column[VARIANCE, f] = (1.0 - rate) * (column[VARIANCE, f] + rate * apart * apart)


@routine
def advance(
    recent: Recent,
    number: int,
    most: int,
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    categorical: NDArray[np.uint8],
    reuse: bool,
    votes: NDArray[np.int64],
    voice: int,
) -> None:
    """Take the ring through rows, the first learned of which is `number`: answers, then learning.

    `most` rows are looked at; the answers are one voice of votes [rows, voices, classes]. With `reuse` they
    are those of the call before, about this very row.
    """
    raw, scaled = np.empty(SLOTS), np.empty(SLOTS)
    mixed = np.empty(votes.shape[2])
    for r in range(X.shape[0]):
        if number == 0:
            recent.best[:] = -1
        elif not reuse:
            _answer(recent, number, most, X[r], categorical, raw, scaled, mixed, votes[r, voice])
        if op[r] & LEARN:
            for v in range(VIEWS):
                hit = 1.0 if recent.best[v] == y[r] else 0.0
                recent.hits[v] = _MEMORY * recent.hits[v] + hit
            _learn(recent, number, X[r], y[r], categorical)
            number += 1


@routine
def settle(columns: NDArray[np.float64]) -> None:
    """At the end of an epoch: the variances that distances are measured in from now on."""
    for f in range(columns.shape[1]):
        variance = columns[VARIANCE, f]
        least = 1e-12 * columns[MEAN, f] * columns[MEAN, f] + 1e-200
        columns[INVERSE, f] = 1.0 / variance if variance > least else 0.0
