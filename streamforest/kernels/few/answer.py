"""What a leaf answers: plain counts, balanced shares, MAP shares of classes of few rows, the extra level."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import VOTE_UNIT, goes_right
from streamforest.kernels.core import rng
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.few.grow import candidates, draw_test
from streamforest.kernels.few.layout import (
    DRAW_LEVEL,
    MOST_SUPPORT,
    Helped,
    Memory,
    Record,
    Trees,
)
from streamforest.kernels.few.map_estimate import map_share
from streamforest.kernels.few.prior import variance_of

_WORTH_A_LEVEL = 1e-3  # posterior of a class below which a leaf gets no extra level


@kernel
def _count(
    trees: Trees,
    memory: Memory,
    t: int,
    i: int,
    count: NDArray[np.int64],
    present: NDArray[np.int32],
) -> int:
    """Rows of each class in leaf `i`; the classes are listed in `present`. Returns how many they are."""
    node = trees.node[t, i]
    if node.only >= 0:
        present[0] = node.only
        count[node.only] = node.n
        return 1
    n = 0
    at = node.head - 1
    while at >= 0:
        y = memory.label[at]
        if count[y] == 0:
            present[n] = y
            n += 1
        count[y] += 1
        at = trees.next[t, at] - 1
    return n


@kernel
def _prior_mean(trees: Trees, helped: Helped, t: int, h: int, count: NDArray[np.int64]) -> float:
    """µ of a leaf: the mean of its support classes' shares."""
    share = 0.0
    k = 0
    for a in range(MOST_SUPPORT):
        y = helped.support[h, a]
        if y < 0:
            break
        if trees.totals[t, y] > 0:
            k += 1
            share += count[y] / trees.totals[t, y]
    return share / k if k > 0 else 0.0


@kernel
def _is_used(trees: Trees, helped: Helped, t: int, h: int, most: int) -> bool:
    label = helped.label[h]
    return bool(label >= 0 and trees.uses_map[t, h] and 0 < trees.totals[t, label] <= most)


@routine
def _extra_level(
    trees: Trees,
    memory: Memory,
    helped: Helped,
    t: int,
    i: int,
    h: int,
    x: NDArray[np.float64],
    n_features: int,
    p: Record,
    categorical: NDArray[np.uint8],
    mass: NDArray[np.float64],
) -> None:
    """One more split of leaf `i`, between a helped class and its support classes (Rodner 2011, section 5).

    It is trained on all rows of the class, wherever they fell, and on the support rows of this leaf, weighted
    by the posteriors here; those are then shared out again by what is on the side of `x`. Classes that have
    no part in it keep what they have on both sides. Nothing is stored: the split is a function of the
    leaf's rows and of the tree's seed.
    """
    label = helped.label[h]
    local = np.full(trees.totals.shape[1], -1, np.int32)
    classes = np.empty(1 + MOST_SUPPORT, np.int32)
    classes[0] = label
    local[label] = 0
    k = 1
    slots = np.empty(helped.n_members[h] + trees.node[t, i].n, np.int32)
    n = 0
    for a in range(helped.n_members[h]):
        if trees.leaf[t, helped.member[h, a]] > 0:
            slots[n] = helped.member[h, a]
            n += 1
    own = n
    for a in range(MOST_SUPPORT):
        if helped.support[h, a] >= 0:
            local[helped.support[h, a]] = -2
    at = trees.node[t, i].head - 1
    while at >= 0:
        y = memory.label[at]
        if local[y] == -2:
            local[y] = k
            classes[k] = y
            k += 1
        if local[y] > 0:
            slots[n] = at
            n += 1
        at = trees.next[t, at] - 1
    if n == own or own == 0:
        return
    of_row = np.empty(n, np.int32)
    for a in range(n):
        of_row[a] = local[memory.label[slots[a]]]
    weight = np.empty(k)
    whole = 0.0
    for c in range(k):
        weight[c] = mass[classes[c]]
        whole += weight[c]
    test = draw_test(
        memory.rows,
        slots[:n],
        of_row,
        weight,
        rng.key(rng.key(trees.tree[t].seed, DRAW_LEVEL, trees.tree[t].generation), label, i),
        candidates(p.n_candidates, n_features),
        np.arange(n_features),
        categorical,
    )
    if test.feature < 0 or test.gain <= 1e-9 * whole:
        return
    kind = categorical[test.feature]
    side = goes_right(x[test.feature], test.threshold, kind, test.missing_right)
    here = np.zeros(k)
    total = 0.0
    for a in range(n):
        v = memory.rows[slots[a], test.feature]
        if goes_right(v, test.threshold, kind, test.missing_right) == side:
            here[of_row[a]] += weight[of_row[a]]
    for c in range(k):
        total += here[c]
    for c in range(k):
        mass[classes[c]] = here[c] / total * whole


@kernel
def answer(
    trees: Trees,
    memory: Memory,
    helped: Helped,
    t: int,
    i: int,
    x: NDArray[np.float64],
    n_features: int,
    p: Record,
    categorical: NDArray[np.uint8],
    count: NDArray[np.int64],
    mass: NDArray[np.float64],
    present: NDArray[np.int32],
    votes: NDArray[np.int64],
) -> None:
    """Add the answer of leaf `i` for `x` to `votes`; `count` and `mass` are zeros before and after."""
    n = _count(trees, memory, t, i, count, present)
    for k in range(n):
        y = present[k]
        mass[y] = count[y] / trees.totals[t, y] if p.balanced else float(count[y])
    variance = variance_of(p, trees.tree[t].n_nodes)
    for h in range(helped.label.shape[0]):
        if not _is_used(trees, helped, t, h, p.few_rows):
            continue
        y = helped.label[h]
        mean = _prior_mean(trees, helped, t, h, count)
        if mean > 0.0 or count[y] > 0:
            if count[y] == 0:
                present[n] = y
                n += 1
            mass[y] = map_share(mean, count[y], trees.multiplier[t, h], variance)
    total = 0.0
    for k in range(n):
        total += mass[present[k]]
    if total > 0.0:
        for k in range(n):
            mass[present[k]] /= total
        for h in range(helped.label.shape[0]):
            used = _is_used(trees, helped, t, h, p.level_rows)
            if used and mass[helped.label[h]] >= _WORTH_A_LEVEL:
                _extra_level(trees, memory, helped, t, i, h, x, n_features, p, categorical, mass)
        for k in range(n):
            votes[present[k]] += np.int64(np.rint(mass[present[k]] * VOTE_UNIT))
    for k in range(n):
        count[present[k]] = 0
        mass[present[k]] = 0.0
