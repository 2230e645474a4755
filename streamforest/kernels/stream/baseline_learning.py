"""How the two baselines learn, and stay within their bound on bytes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import VOTE_UNIT
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.stream.baseline_epochs import LEAST, settle_feature
from streamforest.kernels.stream.baselines import (
    BIAS,
    BIAS_SQUARES,
    BUCKETS,
    CLASSES,
    COUNT,
    EMPTY,
    FEATURES,
    FEW,
    LIVE,
    LOG_N,
    MEAN,
    PLANES,
    SILENT,
    SQUARES,
    T_COUNT,
    T_LOG,
    T_SQUARES,
    T_WEIGHT,
    TABLES,
    TOP,
    VARIANCE,
    WEIGHT,
    Baselines,
    N,
    bayes,
    find_active,
    linear,
    row_of,
    settle,
    standardise,
)

_STEP_START = 1e-2
_NO_PULL = 1e-3  # gradients below this are left out

WANT_CLASSES, WANT_FEATURES, WANT_ROWS = range(3)


@routine
def _learn_linear(
    p: Baselines,
    x: NDArray[np.float64],
    r: int,
    z: NDArray[np.float64],
    active: NDArray[np.int64],
    n_active: int,
    y: int,
    features: int,
    categorical: NDArray[np.uint8],
    score: NDArray[np.float64],
    pulled: NDArray[np.int64],
) -> None:
    """One step against the gradient; `score` holds what the linear rule said of this row.

    The more of the `features` share a step, the smaller it is.
    """
    step = 1.0 / math.sqrt(features + 1.0)
    n = 0
    for c in range(p.size[CLASSES]):
        score[c] -= 1.0 if c == y else 0.0
        if abs(score[c]) >= _NO_PULL:
            pulled[n] = c
            n += 1
            p.share[BIAS_SQUARES, c] += score[c] * score[c]
            root = math.sqrt(p.share[BIAS_SQUARES, c] + _STEP_START)
            p.share[BIAS, c] -= step * score[c] / root
    dense = 2 * n > p.size[CLASSES]
    if dense:  # then all classes, of which some are not pulled at all, are quicker in a row
        for c in range(p.size[CLASSES]):
            score[c] = score[c] if abs(score[c]) >= _NO_PULL else 0.0
    for a in range(n_active):
        f = active[a]
        if z[f] != 0.0 and dense:
            for c in range(p.size[CLASSES]):
                q = score[c] * z[f]
                p.plane[SQUARES, f, c] += q * q
                p.plane[WEIGHT, f, c] -= step * q / math.sqrt(p.plane[SQUARES, f, c] + _STEP_START)
        elif z[f] != 0.0:
            for k in range(n):
                c = pulled[k]
                q = score[c] * z[f]
                p.plane[SQUARES, f, c] += q * q
                root = math.sqrt(p.plane[SQUARES, f, c] + _STEP_START)
                p.plane[WEIGHT, f, c] -= step * q / root
        elif categorical[f] and x[r, f] >= 0.0:
            row = row_of(p, f, x[r, f], 1)
            for k in range(n):
                c = pulled[k]
                p.table[T_SQUARES, row, c] += score[c] * score[c]
                root = math.sqrt(p.table[T_SQUARES, row, c] + _STEP_START)
                p.table[T_WEIGHT, row, c] -= step * score[c] / root


@kernel
def _give_up_table(p: Baselines, spread: NDArray[np.float64], f: int) -> None:
    """A number has too many values to be counted: a Gaussian from here on."""
    p.room[f] = 0
    p.met[f] = FEW + 1
    p.size[LIVE] -= FEW
    settle_feature(p, spread, f)


@kernel
def _row_to_count(
    p: Baselines, spread: NDArray[np.float64], f: int, v: float, is_category: int
) -> int:
    """The row of a value that is being learned, a new one if need be; -1 without a table."""
    row = row_of(p, f, v, is_category)
    if is_category:
        for c in range(p.size[CLASSES]):
            if p.table[T_COUNT, row, c] > 0.0:
                return row
    elif row >= 0:
        return row
    elif p.met[f] == FEW:
        _give_up_table(p, spread, f)
        return -1
    else:
        row = p.first[f] + p.met[f]
        p.value[f, p.met[f]] = v
    p.met[f] += 1
    settle_feature(p, spread, f)
    return row


@routine
def _count_values(
    p: Baselines,
    spread: NDArray[np.float64],
    x: NDArray[np.float64],
    r: int,
    active: NDArray[np.int64],
    n: int,
    y: int,
    categorical: NDArray[np.uint8],
) -> None:
    """Naive Bayes learns the values that are counted one by one."""
    for a in range(n):
        f = active[a]
        v = x[r, f]
        if p.room[f] > 0:
            row = _row_to_count(p, spread, f, v, categorical[f])
            if row >= 0:
                p.table[T_COUNT, row, y] += 1.0
                p.table[T_LOG, row, y] = math.log(p.table[T_COUNT, row, y] + 1.0)


@routine
def _learn_bayes(
    p: Baselines,
    spread: NDArray[np.float64],
    x: NDArray[np.float64],
    r: int,
    active: NDArray[np.int64],
    n: int,
    y: int,
    categorical: NDArray[np.uint8],
    zero: int,
) -> None:
    """Naive Bayes learns class, means and variances; those of categories mean nothing to anyone."""
    p.share[N, y] += 1.0
    p.share[LOG_N, y] = math.log(p.share[N, y])
    for a in range(n):
        f = active[a]
        v = x[r, f]
        if zero and not categorical[f]:
            p.present[y] += 1.0
        p.plane[COUNT, f, y] += 1.0
        if p.plane[COUNT, f, y] <= 1.0:
            # the first value, or all before it faded: mean + (v - mean) is v only up to rounding
            p.plane[MEAN, f, y] = v
            p.plane[VARIANCE, f, y] = 0.0
        else:
            rate = 1.0 / p.plane[COUNT, f, y]
            off = v - p.plane[MEAN, f, y]
            p.plane[MEAN, f, y] += rate * off
            # a rate near one may round the mean beyond v: no variance comes of that
            square = max(0.0, off * (v - p.plane[MEAN, f, y]))
            p.plane[VARIANCE, f, y] += rate * (square - p.plane[VARIANCE, f, y])
        settle(p, spread, f, y)


@kernel
def _is_new(p: Baselines, f: int) -> bool:
    """Whether a row that has a value of feature `f` is the first."""
    return bool(f >= p.size[FEATURES] or p.met[f] == 0)


@kernel
def _new_rows(
    p: Baselines,
    active: NDArray[np.int64],
    n: int,
    categorical: NDArray[np.uint8],
    count_numbers: bool,
) -> int:
    """Rows of tables that the new features of a row get."""
    rows = 0
    for a in range(n):
        f = active[a]
        if _is_new(p, f):
            rows += BUCKETS if categorical[f] else FEW if count_numbers else 0
    return rows


@routine
def _make_room(
    p: Baselines,
    bound: int,
    spread: NDArray[np.float64],
    active: NDArray[np.int64],
    n: int,
    y: int,
    known: int,
    categorical: NDArray[np.uint8],
    want: NDArray[np.int64],
) -> bool:
    """Before a row is learned: its class, features and tables are entered. False: arrays too small.

    Where they would take more than `bound` bytes, the tables of numbers are given up; where even that is
    not enough, both experts fall silent for good.
    """
    if y < p.size[CLASSES] and known <= p.size[FEATURES] and p.size[EMPTY] == 0:
        return True
    classes = max(p.size[CLASSES], y + 1)
    features = max(p.size[FEATURES], known)
    count_numbers = True
    rows = _new_rows(p, active, n, categorical, count_numbers)
    if 8 * classes * (PLANES * features + TABLES * (p.size[LIVE] + rows)) > bound:
        for f in range(p.size[FEATURES]):
            if p.room[f] > 0 and not categorical[f]:
                _give_up_table(p, spread, f)
        count_numbers = False
        rows = _new_rows(p, active, n, categorical, count_numbers)
        if 8 * classes * (PLANES * features + TABLES * (p.size[LIVE] + rows)) > bound:
            p.size[SILENT] = 1
            return True
    want[WANT_CLASSES] = classes
    want[WANT_FEATURES] = features
    want[WANT_ROWS] = p.size[TOP] + rows
    if (
        classes > p.plane.shape[2]
        or features > p.plane.shape[1]
        or want[WANT_ROWS] > p.table.shape[1]
    ):
        return False
    p.size[EMPTY] += features - p.size[FEATURES]
    for a in range(n):
        f = active[a]
        if not _is_new(p, f):
            continue
        p.size[EMPTY] -= 1
        if categorical[f] or count_numbers:
            p.room[f] = BUCKETS if categorical[f] else FEW
            p.first[f] = p.size[TOP]
            p.size[TOP] += p.room[f]
            p.size[LIVE] += p.room[f]
        else:
            p.met[f] = FEW + 1
    p.size[FEATURES] = features
    for c in range(p.size[CLASSES], classes):
        p.share[N, c] = LEAST
        p.share[LOG_N, c] = math.log(LEAST)
        for f in range(features):
            settle(p, spread, f, c)
    p.size[CLASSES] = classes
    return True


@kernel
def advance(
    p: Baselines,
    bound: int,
    spread: NDArray[np.float64],
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    known: NDArray[np.int64],
    categorical: NDArray[np.uint8],
    zero: int,
    progress: int,
    reuse: bool,
    votes: NDArray[np.int64],
    expert: int,
    want: NDArray[np.int64],
) -> int:
    """Move both experts through the rows: predict, then learn.

    Votes go to `votes[:, expert]` and the one after it; with `reuse` they stand there already. Like the
    `progress` given, the number returned counts half rows, answered and learned: less than two a row
    when arrays are too small for what `want` then says.
    """
    size = p.size
    score = np.zeros(votes.shape[2] + 1)
    pulled = np.zeros(votes.shape[2] + 1, np.int64)
    z = np.zeros(x.shape[1])
    active = np.zeros(x.shape[1], np.int64)
    for r in range(progress >> 1, x.shape[0]):
        answered = reuse or progress == 2 * r + 1
        learns = op[r] & LEARN
        if size[SILENT]:
            break
        features = min(known[r], size[FEATURES])
        classes = size[CLASSES]
        n_active = find_active(x, r, known[r], categorical, zero, active)
        n = n_active  # of which the experts know
        while n > 0 and active[n - 1] >= features:
            n -= 1
        if not answered:
            bayes(p, spread, x, r, active, n, classes, features, categorical, zero, score)
            for c in range(classes):
                votes[r, expert, c] = np.int64(np.rint(VOTE_UNIT * score[c]))
        if not answered or learns:
            standardise(spread, x, r, active, n_active, categorical, zero, z)
            linear(p, x, r, z, active, n, classes, categorical, score)
        if not answered:
            for c in range(classes):
                votes[r, expert + 1, c] = np.int64(np.rint(VOTE_UNIT * score[c]))
        if learns:
            if not _make_room(
                p, bound, spread, active, n_active, y[r], known[r], categorical, want
            ):
                return 2 * r + 1
            if size[SILENT]:
                break
            for c in range(classes, size[CLASSES]):
                score[c] = 0.0
            shared = n_active if zero else known[r]
            _learn_linear(p, x, r, z, active, n_active, y[r], shared, categorical, score, pulled)
            if size[LIVE] > 0:
                _count_values(p, spread, x, r, active, n_active, y[r], categorical)
            _learn_bayes(p, spread, x, r, active, n_active, y[r], categorical, zero)
    return 2 * len(x)
