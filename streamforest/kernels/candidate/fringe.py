"""Candidate splits of active leaves: where they are kept, how events move them, which is best.

An active leaf holds up to `m` candidate points in each of its `n_dims` dimensions. For each candidate
and child there is one class histogram per stream (Denil 2013, section 3.3); a forest without streams
(Saffari 2009) has one. All of a leaf's counts form one block:

    dims    [n_dims]               the candidate dimensions
    filled  [n_dims]               how many points each has so far
    classes [row_room]             the class of each row below
    totals  [streams, n_dims·m, 2] events of each child
    rows    [row_room, streams, n_dims·m, 2] the same by class

so that an event touches its class' row and the totals, both contiguous. A class gets a row when its
first event comes: leaves deep in a tree that knows hundreds of classes stay small. The gain of a
candidate is kept up to date (`score`, in units of entropy.UNIT): with D(n) the step of x·log₂ x,

    n·gain = Σ xlogx(children's class counts) − Σ xlogx(children's totals)
             − Σ xlogx(parent's class counts) + xlogx(parent's total)

changes by D(child's class) − D(child) − D(parent's class) + D(parent): O(1) a candidate, whatever the
number of classes. The parent's histogram of a candidate, counted since the candidate was created, is
the sum of its children's, so none is stored.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import Record, Trees, in_right_set
from streamforest.kernels.core import rng
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.entropy import xlogx_step

POINT_BYTES = 24  # of one candidate outside the block: its point, its score, its birth
_NUMBER, _CATEGORY, _MISSING = range(3)
FULL_COUNT = (
    1 << 30
)  # counts are 32 bits: a leaf that met this many events stops collecting for good


@kernel
def block_size(n_dims: int, m: int, streams: int, rows: int) -> int:
    """Entries of a block with room for `rows` classes."""
    counts = 2 * streams * n_dims * m
    return 2 * n_dims + counts + rows * (1 + counts)


@kernel
def leaf_bytes(n_dims: int, m: int, streams: int, rows: int) -> int:
    """Bytes that `rows` classes in the fringe cost at one leaf: what `max_fringe_bytes` bounds."""
    return 4 * block_size(n_dims, m, streams, rows) + POINT_BYTES * n_dims * m


@kernel
def live_rows(leaf: Record) -> int:
    """Class rows that count: those in use, at least those reserved on activation."""
    return int(max(leaf.rows, leaf.reserved))


@kernel
def n_dimensions(seed: np.uint64, node: int, lam: float, n_features: int) -> int:
    """min(1 + Poisson(λ), D) for a leaf (Denil 2013, section 3.3)."""
    extra, _ = rng.poisson(lam, rng.key(seed, rng.DIMENSIONS, node), 0)
    return min(1 + extra, n_features)


@kernel
def _draw_dimensions(dims: NDArray[np.int32], start: np.uint64, n_features: int) -> None:
    """Distinct dimensions, uniformly: the first steps of a Fisher–Yates shuffle."""
    pool = np.arange(n_features)
    for a in range(dims.shape[0]):
        b = a + int(rng.uniform(start, a) * (n_features - a))
        f = pool[b]
        pool[b] = pool[a]
        dims[a] = f


@kernel
def has_row(trees: Trees, t: int, i: int, y: int) -> bool:
    """Whether class `y` has its row in the block of leaf `i`."""
    leaf = trees.leaf[t, i]
    at = leaf.block + 2 * leaf.n_dims
    for k in range(leaf.rows):  # noqa: SIM110 (numba knows no generators)
        if trees.block[t, at + k] == y:
            return True
    return False


@kernel
def growth(trees: Trees, t: int, i: int, y: int, m: int, streams: int) -> int:
    """Entries that `block` must have free before class `y` can be counted at active leaf `i`."""
    leaf = trees.leaf[t, i]
    if leaf.block < 0:
        return block_size(leaf.n_dims, m, streams, max(2, leaf.reserved))
    if leaf.rows == leaf.row_room and not has_row(trees, t, i, y):
        return block_size(leaf.n_dims, m, streams, 2 * leaf.row_room)
    return 0


@kernel
def open_block(trees: Trees, t: int, i: int, m: int, streams: int) -> None:
    """Lay out the block of a freshly activated leaf and draw its dimensions."""
    leaf = trees.leaf[t, i]
    tree = trees.tree[t]
    leaf.block = tree.block_top
    leaf.points = tree.point_top
    leaf.rows = 0
    leaf.row_room = max(2, leaf.reserved)
    size = block_size(leaf.n_dims, m, streams, leaf.row_room)
    trees.block[t, leaf.block : leaf.block + size] = 0
    n = leaf.n_dims * m
    trees.point[t, leaf.points : leaf.points + n] = 0.0
    trees.score[t, leaf.points : leaf.points + n] = 0
    trees.born[t, leaf.points : leaf.points + n] = tree.n_estimation
    tree.block_top += size
    tree.point_top += n
    # the count of dimensions took its draws from the start of this node's sequence: use another
    start = rng.mix(rng.key(tree.seed, rng.DIMENSIONS, i))
    _draw_dimensions(trees.block[t, leaf.block : leaf.block + leaf.n_dims], start, leaf.drawn_from)


@kernel
def class_row(trees: Trees, t: int, i: int, y: int, m: int, streams: int) -> int:
    """Offset of the row of class `y`, made if need be. The arena has room: see `growth`."""
    leaf = trees.leaf[t, i]
    block = trees.block
    counts = 2 * streams * leaf.n_dims * m
    classes = leaf.block + 2 * leaf.n_dims
    for k in range(leaf.rows):
        if block[t, classes + k] == y:
            return int(classes + leaf.row_room + counts * (1 + k))
    tree = trees.tree[t]
    if leaf.rows == leaf.row_room:  # full: move to a place with twice the rows
        room = 2 * leaf.row_room
        new = tree.block_top
        size = block_size(leaf.n_dims, m, streams, room)
        block[t, new : new + size] = 0
        head = 2 * leaf.n_dims + leaf.rows
        block[t, new : new + head] = block[t, leaf.block : leaf.block + head]
        old_counts = classes + leaf.row_room
        new_counts = new + 2 * leaf.n_dims + room
        body = counts * (1 + leaf.rows)
        block[t, new_counts : new_counts + body] = block[t, old_counts : old_counts + body]
        tree.block_top += size
        leaf.block = new
        leaf.row_room = room
        classes = new + 2 * leaf.n_dims
    before = live_rows(leaf)
    block[t, classes + leaf.rows] = y
    leaf.rows += 1
    tree.fringe_bytes += leaf_bytes(leaf.n_dims, m, streams, live_rows(leaf)) - leaf_bytes(
        leaf.n_dims, m, streams, before
    )
    return int(classes + leaf.row_room + counts * leaf.rows)


@kernel
def add_points(
    trees: Trees,
    t: int,
    i: int,
    x: NDArray[np.float64],
    m: int,
    categorical: NDArray[np.uint8],
) -> None:
    """Project a structure event onto every candidate dimension that still wants points.

    A number that is there already adds nothing, so the points of a dimension are distinct; a
    dimension the event lacks gets none. Of categories, every other candidate is the event's own
    value, the rest are random sets.
    """
    leaf = trees.leaf[t, i]
    block = trees.block
    for j in range(leaf.n_dims):
        filled = block[t, leaf.block + leaf.n_dims + j]
        f = block[t, leaf.block + j]
        v = x[f]
        if filled == m or v != v:
            continue
        at = leaf.points + j * m
        known = False
        for s in range(filled):
            known = known or trees.point[t, at + s] == v
        if categorical[f] and (known or filled % 2 == 1):
            start = rng.key(trees.tree[t].seed, rng.THRESHOLDS, i)
            v = rng.subset(start, j * m + filled)
            known = False
        if not known:
            trees.point[t, at + filled] = v
            trees.score[t, at + filled] = 0
            trees.born[t, at + filled] = trees.tree[t].n_estimation
            block[t, leaf.block + leaf.n_dims + j] = filled + 1


@kernel
def _right(v: float, point: float, kind: int, n_left: int, n_right: int) -> int:
    """Whether an event goes to a candidate's right child; a missing value follows the structure."""
    if kind == _NUMBER:
        return 1 if v > point else 0
    if kind == _CATEGORY:
        return in_right_set(v, point)
    return 1 if n_right > n_left else 0


@kernel
def _structure_step(
    v: float,
    kind: int,
    points: NDArray[np.float64],
    counts: NDArray[np.int32],
    totals: NDArray[np.int32],
    scores: NDArray[np.int64],
    steps: NDArray[np.int64],
) -> None:
    """One structure event at the candidates of one dimension."""
    for s in range(points.shape[0]):
        c0 = counts[2 * s]
        c1 = counts[2 * s + 1]
        n0 = totals[2 * s]
        n1 = totals[2 * s + 1]
        right = _right(v, points[s], kind, n0, n1)
        c = c1 if right else c0
        n = n1 if right else n0
        if n0 + n1 < steps.shape[0]:  # the largest of the four
            scores[s] += steps[c] - steps[n] - steps[c0 + c1] + steps[n0 + n1]
        else:
            scores[s] += (
                xlogx_step(c, steps)
                - xlogx_step(n, steps)
                - xlogx_step(c0 + c1, steps)
                + xlogx_step(n0 + n1, steps)
            )
        counts[2 * s] = c0 + 1 - right
        counts[2 * s + 1] = c1 + right
        totals[2 * s] = n0 + 1 - right
        totals[2 * s + 1] = n1 + right


@kernel
def observe_structure(
    trees: Trees,
    t: int,
    i: int,
    x: NDArray[np.float64],
    row: int,
    m: int,
    categorical: NDArray[np.uint8],
    steps: NDArray[np.int64],
) -> None:
    """Count an event in the structural histograms of every candidate, and move the gains."""
    leaf = trees.leaf[t, i]
    n_dims = leaf.n_dims
    block = leaf.block
    total = block + 2 * n_dims + leaf.row_room
    point = leaf.points
    for j in range(n_dims):
        f = trees.block[t, block + j]
        filled = trees.block[t, block + n_dims + j]
        v = x[f]
        kind = _MISSING if v != v else (_CATEGORY if categorical[f] else _NUMBER)
        _structure_step(
            v,
            kind,
            trees.point[t, point : point + filled],
            trees.block[t, row : row + 2 * filled],
            trees.block[t, total : total + 2 * filled],
            trees.score[t, point : point + filled],
            steps,
        )
        point += m
        row += 2 * m
        total += 2 * m


@kernel
def _estimation_step(
    v: float,
    kind: int,
    points: NDArray[np.float64],
    totals: NDArray[np.int32],
    counts: NDArray[np.int32],
    reached: NDArray[np.int32],
) -> None:
    """One estimation event at the candidates of one dimension."""
    for s in range(points.shape[0]):
        k = 2 * s + _right(v, points[s], kind, totals[2 * s], totals[2 * s + 1])
        counts[k] += 1
        reached[k] += 1


@kernel
def observe_estimation(
    trees: Trees,
    t: int,
    i: int,
    x: NDArray[np.float64],
    row: int,
    m: int,
    categorical: NDArray[np.uint8],
) -> None:
    """Count an event in the estimation histograms of every candidate. Forests with two streams."""
    leaf = trees.leaf[t, i]
    n_dims = leaf.n_dims
    block = leaf.block
    total = block + 2 * n_dims + leaf.row_room
    point = leaf.points
    other = 2 * n_dims * m  # from the structural counts to the estimation counts
    for j in range(n_dims):
        f = trees.block[t, block + j]
        filled = trees.block[t, block + n_dims + j]
        v = x[f]
        kind = _MISSING if v != v else (_CATEGORY if categorical[f] else _NUMBER)
        _estimation_step(
            v,
            kind,
            trees.point[t, point : point + filled],
            trees.block[t, total : total + 2 * filled],
            trees.block[t, row + other : row + other + 2 * filled],
            trees.block[t, total + other : total + other + 2 * filled],
        )
        point += m
        row += 2 * m
        total += 2 * m


@kernel
def best_candidate(
    trees: Trees, t: int, i: int, m: int, counted: int, at_least: float
) -> tuple[int, float]:
    """The candidate with the largest n·gain / n among those with `at_least` events in both children.

    `counted` is the stream whose events must be there. Ties go to the candidate created first in
    the dimension drawn first. Returns (-1, 0) if none is valid, else the candidate and n·gain / n in
    units of entropy.UNIT.
    """
    leaf = trees.leaf[t, i]
    n_dims = leaf.n_dims
    block = trees.block[t, leaf.block :]
    totals = block[2 * n_dims + leaf.row_room :]
    reached = totals[2 * n_dims * m * counted :]
    scores = trees.score[t, leaf.points :]
    least = np.int64(math.ceil(at_least))
    best = -1
    best_gain = 0.0
    for j in range(n_dims):
        first = j * m
        for c in range(first, first + block[n_dims + j]):
            if min(reached[2 * c], reached[2 * c + 1]) < least:
                continue
            gain = scores[c] / (totals[2 * c] + totals[2 * c + 1])
            if best < 0 or gain > best_gain:
                best = c
                best_gain = gain
    return best, best_gain
