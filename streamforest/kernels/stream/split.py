"""The deferred exact split test: the rows of a leaf are at hand, so every threshold is looked at.

Denil 2013 (section 3.3) fixes candidate splits when a leaf is born and waits until their statistics
have come in. Here the leaf's rows lie in the ring. Its structure rows choose the split; its estimation
rows only say which splits leave one of them on either side, by where they lie and never by their labels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.stream.histogram import count
from streamforest.kernels.stream.layout import (
    Record,
    TreeArrays,
    bucket,
    goes_right,
    new_leaf,
    older,
)
from streamforest.kernels.stream.scan import BUCKETS, NATS, scan_category, scan_number
from streamforest.kernels.stream.sort import LABEL_BITS, key_bits, pack_key, sort_keys

_THRESHOLDS = (
    0.4  # neighbouring thresholds say nearly the same: so many of them count as independent
)
_CANDIDATE_SHARE = 2.0 / 3.0
_PATIENCE = (
    0.25  # of `test_rows`: so many rows without a split that pays, and a category splits anyhow
)
_LABEL = (1 << LABEL_BITS) - 1
_WIDE = 512  # features beyond which candidates of sparse rows are drawn from those that rows have
_SPARSE_TRIES = 4  # draws for each candidate, at most


_SPLIT = np.dtype(
    [
        ("gain", "i8"),  # over all rows, in units of entropy.UNIT
        ("looked", "i8"),  # thresholds and cuts looked at so far
        ("mask", "u8"),
        ("feature", "i4"),
        ("threshold", "f4"),
        ("categorical", "u1"),
        ("missing_right", "u1"),
    ],
    align=True,
)
"""The best split so far; the fields are those of a node."""


class _Rows(NamedTuple):
    """The rows of a test."""

    n: int  # structure rows
    e: int  # estimation rows
    structure: NDArray[np.int64]  # their slots
    estimation: NDArray[np.int64]
    labels: NDArray[np.int64]  # of the structure rows, numbered within the node
    keys: NDArray[np.int64]  # room to sort in
    spare: NDArray[np.int64]


@kernel
def _collect(
    g: TreeArrays,
    s: int,
    i: int,
    now: int,
    p: Record,
    structure: NDArray[np.int64],
    estimation: NDArray[np.int64],
) -> tuple[int, int]:
    """Slots of the leaf's newest rows, by stream, until `test_rows` of either kind have been met."""
    n = 0
    e = 0
    number = g.stat[s, i].head
    while number >= 0 and number >= now - p.ring_rows and n < p.test_rows and e < p.test_rows:
        slot = number % p.slots
        link = g.link[s, slot]
        if link & 1:
            estimation[e] = slot
            e += 1
        else:
            structure[n] = slot
            n += 1
        number = older(link, number, slot, p.slots)
    return n, e


@routine
def _split(g: TreeArrays, s: int, i: int, now: int, p: Record) -> None:
    """Node `i`, whose split has been written, gets two leaves and hands its rows on to them."""
    tree_slot = g.tree_slot[s]
    first = tree_slot.n_nodes
    tree_slot.n_nodes += 2
    node = g.node[s, i]
    node.left = first
    for c in range(2):
        new_leaf(g, s, first + c, i)
    tails = np.full(2, -1, np.int64)
    number = g.stat[s, i].head
    while number >= 0 and number >= now - p.ring_rows:
        slot = number % p.slots
        link = g.link[s, slot]
        c = goes_right(g.rows[slot, node.feature], node, i)
        child = g.stat[s, first + c]
        if tails[c] < 0:
            child.head = number
        else:
            g.link[s, tails[c]] = 2 * (slot + 1) + (g.link[s, tails[c]] & 1)
        tails[c] = slot
        if link & 1:
            count(g, s, first + c, g.labels[slot])
        else:
            child.n_structure += 1
        number = older(link, number, slot, p.slots)
    for c in range(2):
        if tails[c] >= 0:
            g.link[s, tails[c]] &= 1
    g.stat[s, i].head = -1


@kernel
def _try_category(
    g: TreeArrays,
    i: int,
    f: int,
    rows: _Rows,
    classes: int,
    start: np.uint64,
    table: NDArray[np.int64],
    room: NDArray[np.void],
) -> bool:
    """Hold the best split of a category against that in `room`. False if it has one value only."""
    best = room[0]
    m = 0
    varied = False
    for a in range(rows.n):
        v = g.rows[rows.structure[a], f]
        if v == v:
            rows.keys[m] = bucket(int(v), i)
            rows.spare[m] = rows.labels[a]
            if rows.keys[m] != rows.keys[0]:
                varied = True
            m += 1
    if not varied:
        return False
    spread = np.zeros(BUCKETS, np.int64)
    for a in range(rows.e):
        v = g.rows[rows.estimation[a], f]
        if v == v:
            spread[bucket(int(v), i)] += 1
    gain, mask, right, cuts, found = scan_category(
        rows.keys, rows.spare, m, spread, classes, start, table, best.gain
    )
    best.looked += cuts
    if found:
        best.gain = gain
        best.feature = f
        best.categorical = 1
        best.mask = mask
        best.threshold = np.float32(0.0)
        best.missing_right = 1 if 2 * right > m else 0
    return True


@kernel
def _try_number(
    g: TreeArrays,
    f: int,
    rows: _Rows,
    classes: int,
    u: float,
    steps: NDArray[np.int64],
    table: NDArray[np.int64],
    room: NDArray[np.void],
) -> bool:
    """Hold the best threshold of a number against `room`. False if it is constant or missing.

    The threshold lies in the gap between two structure rows, at the share `u` of the part of it that
    leaves an estimation row on either side.
    """
    best = room[0]
    bits = g.rows.view(np.int32)
    m = 0
    varied = False
    for a in range(rows.n):
        v = g.rows[rows.structure[a], f]
        if v == v:
            rows.keys[m] = pack_key(bits[rows.structure[a], f], rows.labels[a])
            if (rows.keys[m] ^ rows.keys[0]) > _LABEL:
                varied = True
            m += 1
    if not varied:
        return False
    low = np.float32(np.inf)
    high = np.float32(-np.inf)
    for a in range(rows.e):
        v = g.rows[rows.estimation[a], f]
        if v < low:
            low = v
        if v > high:
            high = v
    if not low < high:
        return True
    one_bits = np.zeros(1, np.int32)
    one_value = one_bits.view(np.float32)
    one_value[0] = low
    low_key = pack_key(one_bits[0], 0) >> LABEL_BITS
    one_value[0] = high
    high_key = pack_key(one_bits[0], 0) >> LABEL_BITS
    sort_keys(rows.keys, rows.spare, m)
    gain, at, cuts = scan_number(rows.keys, m, low_key, high_key, classes, steps, table, best.gain)
    best.looked += cuts
    if at >= 0:
        one_bits[0] = key_bits(rows.keys[at])
        below = max(one_value[0], low)
        one_bits[0] = key_bits(rows.keys[at + 1])
        above = min(one_value[0], high)
        threshold = np.float32(below + u * (np.float64(above) - np.float64(below)))
        if threshold >= above or threshold < below:
            threshold = below
        best.gain = gain
        best.feature = f
        best.categorical = 0
        best.mask = np.uint64(0)
        best.threshold = threshold
        best.missing_right = 1 if m - at - 1 > at + 1 else 0
    return True


@kernel
def _draw_present(
    g: TreeArrays, rows: _Rows, u: float, n_features: int, tried: NDArray[np.int64], c: int
) -> int:
    """A feature that one of the structure rows has, drawn by `u`; -1 if it was among the first `c` tried.

    Among thousands of sparse features nearly all are 0 in a leaf. From a random place in a random row on,
    the next one that is not.
    """
    a = int(u * rows.n)
    f = int((u * rows.n - a) * n_features)
    slot = rows.structure[a]
    for _ in range(n_features):
        v = g.rows[slot, f]
        if v == v and v != 0.0:
            break
        f = f + 1 if f + 1 < n_features else 0
    tried[c] = f
    for b in range(c):
        if tried[b] == f:
            return -1
    return f


@routine
def try_split(
    g: TreeArrays,
    s: int,
    i: int,
    now: int,
    seed: np.uint64,
    p: Record,
    n_features: int,
    categorical: NDArray[np.uint8],
    steps: NDArray[np.int64],
    table: NDArray[np.int64],
) -> int:
    """Split leaf `i` if its structure rows say so. Returns the work done: rows times features sorted.

    Accepted when 2·N·gain > 2·(classes − 2) + 2·ln(max(1, 0.4·M)): Akaike's price for the further
    parameters of two class distributions instead of one, and for having looked at M thresholds.

    A category need not pay for ever: where classes follow from two categories together and from
    neither alone, no first split of either pays, and any opens the way to those that do.
    """
    structure = np.empty(p.test_rows, np.int64)
    estimation = np.empty(p.test_rows, np.int64)
    n, e = _collect(g, s, i, now, p, structure, estimation)
    if n < 2 or e < 2:
        return n
    # classes get numbers within the node, by order of appearance among its structure rows: nothing
    # here may depend on the order in which labels of the other stream first came
    local = np.full(g.voter[s >> 1].n_classes, -1, np.int64)
    labels = np.empty(n, np.int64)
    classes = 0
    for a in range(n):
        y = g.labels[structure[a]]
        if local[y] < 0:
            local[y] = classes
            classes += 1
        labels[a] = local[y]
    if classes < 2:
        return n
    rows = _Rows(n, e, structure, estimation, labels, np.empty(n, np.int64), np.empty(n, np.int64))
    start = rng.key(rng.key(seed, rng.RING_SPLIT, g.tree_slot[s].generation), i, now)
    wanted = min(float(p.n_candidates), max(2.0, _CANDIDATE_SHARE * n_features))
    candidates = int(wanted)
    if rng.uniform(start, 0) < wanted - candidates:
        candidates += 1
    # the array itself is handed around: a record does not keep the array alive that it lies in
    room = np.zeros(1, _SPLIT)
    room[0].feature = -1
    sparse = p.zero and n_features > _WIDE
    tries = min(n_features, _SPARSE_TRIES * candidates) if sparse else n_features
    order = np.arange(tries)
    used = 0
    for c in range(tries):
        if used >= candidates:
            break
        if sparse:
            f = _draw_present(g, rows, rng.uniform(start, 2 * c + 1), n_features, order, c)
            if f < 0:
                continue
        else:
            z = c + int(rng.uniform(start, 2 * c + 1) * (n_features - c))
            f = order[z]
            order[z] = order[c]
        if categorical[f]:
            grouping = rng.key(start, rng.RING_SPLIT, c)
            counts = _try_category(g, i, f, rows, classes, grouping, table, room)
        else:
            u = rng.uniform(start, 2 * c + 2)
            counts = _try_number(g, f, rows, classes, u, steps, table, room)
        if counts:
            used += 1
    price = 2.0 * (classes - 2) + 2.0 * math.log(max(1.0, _THRESHOLDS * room[0].looked))
    pays = 2.0 * room[0].gain * NATS > price
    waited = room[0].categorical and n + e >= _PATIENCE * p.test_rows
    if room[0].feature >= 0 and (pays or waited):
        node = g.node[s, i]
        node.feature = room[0].feature
        node.categorical = room[0].categorical
        node.threshold = room[0].threshold
        node.mask = room[0].mask
        node.missing_right = room[0].missing_right
        g.stat[s, i].gain = np.float32(room[0].gain * NATS)
        _split(g, s, i, now, p)
    return n * used
