"""The consistent online forest: one event at one tree (Denil 2013, sections 3.2 to 3.6)."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.fringe import (
    FULL_COUNT,
    add_points,
    best_candidate,
    class_row,
    observe_estimation,
    observe_structure,
    open_block,
)
from streamforest.kernels.candidate.grow import answer_row, fill_fringe, split_and_total
from streamforest.kernels.candidate.layout import Record, SharedArrays, Trees, count, descend
from streamforest.kernels.core import rng
from streamforest.kernels.core.array_table import ArrayTable, array
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.entropy import UNIT
from streamforest.kernels.core.operations import LEARN

PARAMS = np.dtype(
    [
        ("lam", "f8"),
        ("tau", "f8"),
        ("alpha0", "f8"),
        ("alpha_growth", "f8"),
        ("beta_factor", "f8"),
        ("p_structure", "f8"),
        ("p_ignore", "f8"),
        ("n_splits", "i8"),
        ("max_fringe", "i8"),
        ("max_fringe_bytes", "i8"),
        ("max_nodes", "i8"),
        ("hard", "i8"),
        ("balanced", "i8"),
    ],
    align=True,
)

STREAMS = 2
STRUCTURE, ESTIMATION, IGNORE = range(3)


@kernel
def stream_of(seed: np.uint64, n: int, p_structure: float, p_ignore: float) -> int:
    """The stream that event `n` belongs to in the tree with this seed."""
    u = rng.uniform(rng.key(seed, rng.STREAM, n), 0)
    if u < p_ignore:
        return IGNORE
    return STRUCTURE if u < p_ignore + (1.0 - p_ignore) * p_structure else ESTIMATION


@kernel
def _fill(trees: Trees, t: int, p: Record, n_features: int) -> None:
    fill_fringe(
        trees,
        t,
        n_features,
        p.lam,
        0,
        p.n_splits,
        STREAMS,
        0,
        p.max_fringe,
        p.max_fringe_bytes,
        p.max_nodes,
    )


@kernel
def _learn_estimation(
    trees: Trees,
    t: int,
    i: int,
    x: NDArray[np.float64],
    y: int,
    p: Record,
    categorical: NDArray[np.uint8],
    totals: NDArray[np.int64],
) -> None:
    """Estimation events feed the answers: this leaf's, and those its candidate children would give."""
    leaf = trees.leaf[t, i]
    if leaf.best != y:
        leaf.errors += 1
    count(trees, t, i, y, 1)
    if p.balanced:
        totals[t, y] += 1
    trees.tree[t].n_estimation += 1
    if leaf.active and leaf.met < FULL_COUNT:
        if leaf.block < 0:
            open_block(trees, t, i, p.n_splits, STREAMS)
        leaf.met += 1
        row = class_row(trees, t, i, y, p.n_splits, STREAMS)
        observe_estimation(trees, t, i, x, row, p.n_splits, categorical)


@kernel
def _learn_structure(
    trees: Trees,
    t: int,
    i: int,
    x: NDArray[np.float64],
    y: int,
    p: Record,
    n_features: int,
    categorical: NDArray[np.uint8],
    steps: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    """Structure events place the candidates, choose between them and split the leaf."""
    leaf = trees.leaf[t, i]
    if not leaf.active or leaf.met >= FULL_COUNT:
        return
    m = p.n_splits
    if leaf.block < 0:
        open_block(trees, t, i, m, STREAMS)
    leaf.met += 1
    row = class_row(trees, t, i, y, m, STREAMS)
    add_points(trees, t, i, x, m, categorical)
    observe_structure(trees, t, i, x, row, m, categorical, steps)
    alpha = p.alpha0 * math.pow(p.alpha_growth, trees.node[t, i].depth)
    if leaf.n < 2.0 * alpha:  # no candidate can have alpha on both sides
        return
    c, gain = best_candidate(trees, t, i, m, ESTIMATION, alpha)
    if c >= 0 and (gain * UNIT > p.tau or leaf.n >= p.beta_factor * alpha):
        split_and_total(trees, t, i, c, m, STREAMS, ESTIMATION, categorical, p.balanced, totals)
        _fill(trees, t, p, n_features)


class ForestArrays(NamedTuple):
    """What belongs to this forest and to no single tree."""

    params: Annotated[NDArray[np.void], array(PARAMS, 1)]


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
) -> bool:
    """Take trees `first` to `last` through the rows of a batch: predict, then learn, row by row.

    `progress[t]` rows are done (all zero again when the batch is finished). Returns False when an
    array is too small for what comes next, with `want` filled in; after enlarging it the same call
    goes on where it stopped. `routes` keeps the leaf of the last row of each tree; with `reuse` it is
    the leaf of row 0, known from predicting it.
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
                p.n_splits,
                STREAMS,
                want,
                votes[r],
            ):
                return False
            routes[t] = i
            if learns:
                stream = stream_of(this.seed, this.n_seen, p.p_structure, p.p_ignore)
                this.n_seen += 1
                if stream == ESTIMATION:
                    _learn_estimation(trees, t, i, x[r], y[r], p, categorical, totals)
                elif stream == STRUCTURE:
                    _learn_structure(
                        trees, t, i, x[r], y[r], p, n_features[r], categorical, steps, totals
                    )
            progress[t] = r + 1
    progress[first:last] = 0
    return True
