"""The deferred exact split test: the rows of a leaf are at hand, so every threshold is looked at.

Denil 2013 (section 3.3) fixes candidate splits when a leaf is born and waits until their statistics
have come in. Here the leaf's rows lie in the ring. Its structure rows choose the split; its estimation
rows only say which splits leave one of them on either side, by where they lie and never by their labels.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels import draws
from streamforest.kernels.compiling import kernel, routine
from streamforest.kernels.entropy import UNIT, xlogx
from streamforest.kernels.ring import Grove, Record, bucket, goes_right, new_leaf, older
from streamforest.kernels.ring_counts import count
from streamforest.kernels.ring_sort import LABEL_BITS, key_bits, pack_key, sort_keys

NATS = UNIT * math.log(2.0)
"""A difference of x·log₂ x in fixed point, as natural logarithms."""

_THRESHOLDS = (
    0.4  # neighbouring thresholds say nearly the same: so many of them count as independent
)
_CANDIDATE_SHARE = 2.0 / 3.0
_BUCKETS = 64
_LABEL = (1 << LABEL_BITS) - 1


@kernel
def _collect(
    g: Grove,
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
def _scan_number(
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
def _scan_category(
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
    counts = np.zeros((_BUCKETS, classes), np.int64)
    sizes = np.zeros(_BUCKETS, np.int64)
    total = np.zeros(classes, np.int64)
    for a in range(m):
        counts[codes[a], labels[a]] += 1
        sizes[codes[a]] += 1
        total[labels[a]] += 1
    group = np.zeros(classes, np.int64)
    group[0] = 1
    if classes > 2:
        for k in range(1, classes - 1):
            group[k] = 1 if draws.uniform(start, k) < 0.5 else 0
    share = np.zeros(_BUCKETS, np.float64)
    order = np.zeros(_BUCKETS, np.int64)
    used = 0
    for b in range(_BUCKETS):
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
    for b in range(_BUCKETS):
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
        for b in range(_BUCKETS):
            if sizes[b] == 0:
                mask |= np.uint64(1) << np.uint64(b)
    return best, mask, right, used - 1, 1 if cut >= 0 else 0


@routine
def _split(g: Grove, s: int, i: int, now: int, p: Record) -> None:
    """Node `i`, whose split has been written, gets two leaves and hands its rows on to them."""
    place = g.place[s]
    first = place.n_nodes
    place.n_nodes += 2
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


@routine
def try_split(
    g: Grove,
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
    start = draws.key(draws.key(seed, draws.RING_SPLIT, g.place[s].generation), i, now)
    wanted = min(float(p.n_candidates), max(2.0, _CANDIDATE_SHARE * n_features))
    k_features = int(wanted)
    if draws.uniform(start, 0) < wanted - k_features:
        k_features += 1
    bits = g.rows.view(np.int32)
    one_bits = np.zeros(1, np.int32)
    one_value = one_bits.view(np.float32)
    order = np.arange(n_features)
    keys = np.empty(n, np.int64)
    spare = np.empty(n, np.int64)
    codes = np.empty(n, np.int64)
    code_labels = np.empty(n, np.int64)
    spread = np.zeros(_BUCKETS, np.int64)
    node = g.node[s, i]
    best = 0
    found = -1
    threshold = np.float32(0.0)
    mask = np.uint64(0)
    missing_right = 0
    is_category = 0
    looked = 0
    used = 0
    for c in range(n_features):
        if used >= k_features:
            break
        z = c + int(draws.uniform(start, 2 * c + 1) * (n_features - c))
        f = order[z]
        order[z] = order[c]
        m = 0
        varied = False
        if categorical[f]:
            for a in range(n):
                v = g.rows[structure[a], f]
                if v == v:
                    codes[m] = bucket(int(v), i)
                    code_labels[m] = labels[a]
                    if codes[m] != codes[0]:
                        varied = True
                    m += 1
            if not varied:
                continue
            used += 1
            spread[:] = 0
            for a in range(e):
                v = g.rows[estimation[a], f]
                if v == v:
                    spread[bucket(int(v), i)] += 1
            grouping = draws.key(start, draws.RING_SPLIT, c)
            gain, sides, right, cuts, ok = _scan_category(
                codes, code_labels, m, spread, classes, grouping, table, best
            )
            looked += cuts
            if ok:
                best = gain
                found = f
                is_category = 1
                mask = sides
                missing_right = 1 if 2 * right > m else 0
            continue
        for a in range(n):
            v = g.rows[structure[a], f]
            if v == v:
                keys[m] = pack_key(bits[structure[a], f], labels[a])
                if (keys[m] ^ keys[0]) > _LABEL:
                    varied = True
                m += 1
        if not varied:  # constant here, or missing: does not count as a candidate
            continue
        used += 1
        low = np.float32(np.inf)
        high = np.float32(-np.inf)
        for a in range(e):
            v = g.rows[estimation[a], f]
            if v < low:
                low = v
            if v > high:
                high = v
        if not low < high:
            continue
        one_value[0] = low
        low_key = pack_key(one_bits[0], 0) >> LABEL_BITS
        one_value[0] = high
        high_key = pack_key(one_bits[0], 0) >> LABEL_BITS
        sort_keys(keys, spare, m)
        gain, at, cuts = _scan_number(keys, m, low_key, high_key, classes, steps, table, best)
        looked += cuts
        if at >= 0:
            best = gain
            found = f
            is_category = 0
            one_bits[0] = key_bits(keys[at])
            a0 = max(one_value[0], low)
            one_bits[0] = key_bits(keys[at + 1])
            a1 = min(one_value[0], high)
            width = np.float64(a1) - np.float64(a0)
            threshold = np.float32(a0 + draws.uniform(start, 2 * c + 2) * width)
            if threshold >= a1 or threshold < a0:
                threshold = a0
            missing_right = 1 if m - at - 1 > at + 1 else 0
    price = 2.0 * (classes - 2) + 2.0 * math.log(max(1.0, _THRESHOLDS * looked))
    if found >= 0 and 2.0 * best * NATS > price:
        node.feature = found
        node.categorical = is_category
        node.threshold = np.float32(0.0) if is_category else threshold
        node.mask = mask if is_category else np.uint64(0)
        node.missing_right = missing_right
        g.stat[s, i].gain = np.float32(best * NATS)
        _split(g, s, i, now, p)
    return n * used
