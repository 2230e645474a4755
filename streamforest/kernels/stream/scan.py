"""The two scans of a split test: every threshold of a number, sets of a category's values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.compiling import routine
from streamforest.kernels.core.entropy import UNIT, xlogx
from streamforest.kernels.stream.sort import LABEL_BITS

NATS = UNIT * math.log(2.0)
"""A difference of x·log₂ x in fixed point, as natural logarithms."""

BUCKETS = 64
"""Of a category, see `ring.bucket`."""

_LABEL = (1 << LABEL_BITS) - 1


@routine
def scan_number(
    keys: NDArray[np.int64],
    m: int,
    low: int,
    high: int,
    classes: int,
    steps: NDArray[np.int64],
    table: NDArray[np.int64],
    best: int,
) -> tuple[int, int, int]:
    """The best threshold between sorted keys: (gain, index below it or -1, thresholds looked at).

    Only gains above `best` count, and only thresholds with an estimation row on both sides: the
    interval [low, high) of values as keys without a label.
    """
    right = np.zeros(classes, np.int64)
    left = np.zeros(classes, np.int64)
    for a in range(m):
        right[keys[a] & _LABEL] += 1
    total = 0
    for k in range(classes):
        total += xlogx(right[k], table)
    base = total - xlogx(m, table)
    at = -1
    looked = 0
    inside = 0
    outside = total
    value = keys[0] >> LABEL_BITS
    for a in range(m - 1):
        k = keys[a] & _LABEL
        inside += steps[left[k]]
        left[k] += 1
        right[k] -= 1
        outside -= steps[right[k]]
        following = keys[a + 1] >> LABEL_BITS
        if following != value:
            looked += 1
            if following > low and value < high:
                gain = inside - xlogx(a + 1, table) + outside - xlogx(m - a - 1, table) - base
                if gain > best:
                    best = gain
                    at = a
            value = following
    return best, at, looked


@routine
def scan_category(
    codes: NDArray[np.int64],
    labels: NDArray[np.int64],
    m: int,
    spread: NDArray[np.int64],
    classes: int,
    start: np.uint64,
    table: NDArray[np.int64],
    best: int,
) -> tuple[int, np.uint64, int, int, int]:
    """The best split of the buckets of a category into two sets.

    With two classes the best of all sets is found by ordering the buckets by the share of one class
    and looking at the cuts (Breiman et al. 1984, theorem 4.5); with more, the classes are first put
    into two groups at random, anew at every test. Buckets are free to be ordered as the labels like,
    so a split must beat the gain that pure chance gives to so many buckets: half a nat for each beyond
    two. Returns (gain less that, mask of the right side, structure rows right, cuts, found).
    """
    counts = np.zeros((BUCKETS, classes), np.int64)
    sizes = np.zeros(BUCKETS, np.int64)
    total = np.zeros(classes, np.int64)
    for a in range(m):
        counts[codes[a], labels[a]] += 1
        sizes[codes[a]] += 1
        total[labels[a]] += 1
    group = np.zeros(classes, np.int64)
    group[0] = 1
    if classes > 2:
        for k in range(1, classes - 1):
            group[k] = 1 if rng.uniform(start, k) < 0.5 else 0
    share = np.zeros(BUCKETS, np.float64)
    order = np.zeros(BUCKETS, np.int64)
    used = 0
    for b in range(BUCKETS):
        if sizes[b] == 0:
            continue
        grouped = 0
        for k in range(classes):
            if group[k]:
                grouped += counts[b, k]
        share[b] = grouped / sizes[b]
        c = used
        while c > 0 and share[order[c - 1]] > share[b]:
            order[c] = order[c - 1]
            c -= 1
        order[c] = b
        used += 1
    base = -xlogx(m, table)
    estimation = 0
    for k in range(classes):
        base += xlogx(total[k], table)
    for b in range(BUCKETS):
        estimation += spread[b]
    chance = int(0.5 * (used - 2) / NATS)
    left = np.zeros(classes, np.int64)
    n = 0
    e = 0
    cut = -1
    for c in range(used - 1):
        b = order[c]
        n += sizes[b]
        e += spread[b]
        gain = -xlogx(n, table) - xlogx(m - n, table) - base - chance
        for k in range(classes):
            left[k] += counts[b, k]
            gain += xlogx(left[k], table) + xlogx(total[k] - left[k], table)
        if gain > best and e > 0 and e < estimation:
            best = gain
            cut = c
    mask = np.uint64(0)
    right = 0
    for c in range(cut + 1, used):
        right += sizes[order[c]]
        mask |= np.uint64(1) << np.uint64(order[c])
    if 2 * right > m:  # buckets that no structure row was in go with the larger side
        for b in range(BUCKETS):
            if sizes[b] == 0:
                mask |= np.uint64(1) << np.uint64(b)
    return best, mask, right, used - 1, 1 if cut >= 0 else 0
