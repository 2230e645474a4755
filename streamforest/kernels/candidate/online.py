"""The online random forest: one event at one tree (Saffari et al. 2009, section 2).

The same leaves and candidates as the consistent forest, with one stream: every event a tree sees
(online bagging, Poisson(1) times) chooses splits and feeds answers alike, and the candidates are
random tests drawn when a leaf opens instead of points of events.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.fringe import (
    FULL_COUNT,
    best_candidate,
    class_row,
    observe_structure,
    open_block,
)
from streamforest.kernels.candidate.grow import answer_row, fill_fringe, split_and_total
from streamforest.kernels.candidate.layout import (
    Record,
    SharedArrays,
    Trees,
    count,
    descend,
    new_leaf,
)
from streamforest.kernels.core import rng
from streamforest.kernels.core.array_table import ArrayTable, array
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.entropy import UNIT
from streamforest.kernels.core.operations import LEARN

PARAMS = np.dtype(
    [
        ("min_gain", "f8"),
        ("n_features", "i8"),
        ("n_thresholds", "i8"),
        ("min_samples", "i8"),
        ("max_depth", "i8"),
        ("max_fringe_bytes", "i8"),
        ("max_nodes", "i8"),
        ("hard", "i8"),
        ("balanced", "i8"),
    ],
    align=True,
)

STREAMS = 1
ALL = 0  # the one stream
UNLIMITED = 1 << 40


@kernel
def _fill(trees: Trees, t: int, p: Record, n_features: int) -> None:
    fill_fringe(
        trees,
        t,
        n_features,
        0.0,
        p.n_features,
        p.n_thresholds,
        STREAMS,
        p.max_depth,
        UNLIMITED,
        p.max_fringe_bytes,
        p.max_nodes,
    )


@kernel
def _draw_tests(
    trees: Trees,
    t: int,
    i: int,
    m: int,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    categorical: NDArray[np.uint8],
) -> None:
    """Random tests in the range seen: thresholds for numbers, values and sets for categories."""
    leaf = trees.leaf[t, i]
    start = rng.key(trees.tree[t].seed, rng.THRESHOLDS, i)
    for j in range(leaf.n_dims):
        f = trees.block[t, leaf.block + j]
        if not low[f] < high[f]:
            continue  # nothing to tell apart
        for s in range(m):
            u = rng.uniform(start, j * m + s)
            if not categorical[f]:
                point = low[f] + u * (high[f] - low[f])
                if not np.isfinite(point):  # the range itself is beyond all numbers
                    point = (1.0 - u) * low[f] + u * high[f]
            elif s % 2 == 0:
                point = np.floor(u * (high[f] + 1.0))
            else:
                point = rng.subset(start, j * m + s)
            trees.point[t, leaf.points + j * m + s] = point
        trees.block[t, leaf.block + leaf.n_dims + j] = m


@kernel
def _learn(
    trees: Trees,
    t: int,
    i: int,
    x: NDArray[np.float64],
    y: int,
    w: int,
    p: Record,
    n_features: int,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    ready: bool,
    categorical: NDArray[np.uint8],
    steps: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    count(trees, t, i, y, w)
    if p.balanced:
        totals[t, y] += w
    leaf = trees.leaf[t, i]
    if not leaf.active or leaf.met >= FULL_COUNT:
        return
    m = p.n_thresholds
    if leaf.block < 0:
        if not ready:
            return
        open_block(trees, t, i, m, STREAMS)
        _draw_tests(trees, t, i, m, low, high, categorical)
    leaf.met += w
    row = class_row(trees, t, i, y, m, STREAMS)
    for _ in range(w):
        observe_structure(trees, t, i, x, row, m, categorical, steps)
    if leaf.n - leaf.errors < p.min_samples:  # met since its birth: inherited events do not count
        return
    c, gain = best_candidate(trees, t, i, m, ALL, 1.0)
    if c >= 0 and gain * UNIT >= p.min_gain:
        split_and_total(trees, t, i, c, m, STREAMS, ALL, categorical, p.balanced, totals)
        left = trees.node[t, i].left
        for side in range(2):
            trees.leaf[t, left + side].errors = trees.leaf[t, left + side].n
        _fill(trees, t, p, n_features)


@kernel
def poor_tree(trees: Trees, n: int, gamma: float) -> int:
    """The tree to be discarded at event `n`, or -1 (Saffari et al. 2009, section 2.3).

    One of the trees that saw more than 1/γ events is drawn; it goes with the probability of its
    out-of-bag error.
    """
    old = 0
    for t in range(trees.tree.shape[0]):
        if trees.tree[t].n_seen * gamma > 1.0:
            old += 1
    if old == 0:
        return -1
    start = rng.key(trees.tree[0].seed, rng.DISCARD, n)
    left = int(rng.uniform(start, 0) * old)
    for t in range(trees.tree.shape[0]):
        tree = trees.tree[t]
        if tree.n_seen * gamma > 1.0:
            if left == 0:
                return t if rng.uniform(start, 1) * tree.n_oob < tree.oob_errors else -1
            left -= 1
    return -1


@kernel
def restart(trees: Trees, t: int) -> None:
    """Tree `t` starts again from one leaf, with other draws."""
    tree = trees.tree[t]
    tree.seed = rng.mix(tree.seed + rng.GOLDEN)
    tree.n_seen = 0
    tree.n_nodes = 1
    tree.n_active = 0
    tree.fringe_bytes = 0
    tree.n_oob = 0
    tree.oob_errors = 0
    tree.hist_top = 0
    tree.block_top = 0
    tree.point_top = 0
    new_leaf(trees, t, 0, 0, 0)


class ForestArrays(NamedTuple):
    """What belongs to this forest and to no single tree."""

    params: Annotated[NDArray[np.void], array(PARAMS, 1)]
    # ranges of the features as of this epoch
    low: Annotated[NDArray[np.float64], array(np.float64, "ranges")]
    high: Annotated[NDArray[np.float64], array(np.float64, "ranges")]


ARRAYS = ArrayTable(Trees, SharedArrays, ForestArrays)
_view = ARRAYS.view


@kernel
def advance(
    addresses: NDArray[np.int64],
    first: int,
    last: int,
    want: NDArray[np.int64],
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    n_features: NDArray[np.int64],
    reuse: bool,
    votes: NDArray[np.int64],
    ready: bool,
) -> bool:
    """The same as the consistent forest's.

    A leaf draws its tests once the forest is `ready` (ranges are known); until then it only counts.
    """
    trees, shared, own = _view(addresses)
    p = own.params[0]
    progress, routes = shared.progress, shared.routes
    categorical, steps, totals = shared.categorical, shared.steps, shared.totals
    for t in range(first, last):
        this = trees.tree[t]
        for r in range(progress[t], x.shape[0]):
            i = routes[t] if reuse else descend(trees, t, x[r])
            learns = op[r] & LEARN
            if learns and this.n_nodes == 1 and this.n_active == 0:
                _fill(trees, t, p, n_features[r])
            if not answer_row(
                trees,
                t,
                i,
                y[r],
                op[r],
                p.hard,
                p.balanced,
                totals,
                p.n_thresholds,
                STREAMS,
                want,
                votes[r],
            ):
                return False
            routes[t] = i
            if learns:
                start = rng.key(this.seed, rng.BAG, this.n_seen)
                w, _ = rng.poisson(1.0, start, 0)
                this.n_seen += 1
                if w == 0:
                    this.n_oob += 1
                    if trees.leaf[t, i].best != y[r]:
                        this.oob_errors += 1
                else:
                    _learn(
                        trees,
                        t,
                        i,
                        x[r],
                        y[r],
                        w,
                        p,
                        n_features[r],
                        own.low,
                        own.high,
                        ready,
                        categorical,
                        steps,
                        totals,
                    )
            progress[t] = r + 1
    progress[first:last] = 0
    return True
