"""Two baselines of the whole forest, without trees: naive Bayes and a linear rule.

Neither has a structure that labels could be used for twice, so both learn from every event. They are
cheap, they are right from the first events on, and on streams whose classes are smooth clouds they are
hard to beat; where they are not, the mix (`mixing.py`) leaves them aside.

*Naive Bayes*: a Gaussian for each feature and class; a number that has shown no more than FEW distinct
values is counted value by value instead, and so is a category (by buckets). Counts fade.
*Linear*: softmax regression on standardised features, a weight a bucket for categories, by stochastic
gradients with a step size of its own for each weight (Duchi et al. 2011); what that remembers fades.

Planes are [feature, class]: the loop over classes is the inner one, and no sum depends on how a compiler
orders it. A missing value says nothing to either.

*Sparse rows* (what an event lacks is 0): neither looks at zeros, so that a bag of words costs what its words
cost. Naive Bayes asks how often a class has the feature at all (a multinomial over the features an event
has), and what values it has then; the linear rule does not centre.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.array_table import array
from streamforest.kernels.core.compiling import kernel

FEW = 16
BUCKETS = 64

COUNT, MEAN, VARIANCE, INVERSE, LOG, WEIGHT, SQUARES = range(7)
PLANES = 7
"""Of each feature and class: events (fading), mean and variance of its values; what naive Bayes reads,
1/variance and log variance, or for counted values in LOG the logarithm of what their counts are divided
by; weight and sum of squared gradients of the linear rule."""

T_COUNT, T_LOG, T_WEIGHT, T_SQUARES = range(4)
TABLES = 4
"""Of each counted value and class: events (fading), log(events + 1); for categories weight and squared
gradients."""

N, LOG_N, BIAS, BIAS_SQUARES = range(4)
"""Of each class, rows of `share`: events (fading), their logarithm; the linear rule's constant."""

CLASSES, FEATURES, EMPTY, LIVE, TOP, SILENT = range(6)
"""What `size` holds: classes and features seen, features among them that have had no value yet; rows of
tables in use, and the first unused one (between them lie those of tables that were given up); 1 once the
bound on bytes has been passed."""

_FLOOR = 1e-3  # least variance of a class, as a share of that of all
FARTHEST = 4.0  # standard deviations beyond which a value pulls no harder
SMALLEST = 1e-60  # a variance below this is none


class Baselines(NamedTuple):
    """The arrays of naive Bayes and the linear rule."""

    size: Annotated[NDArray[np.int64], array(np.int64, 6)]
    plane: Annotated[NDArray[np.float64], array(np.float64, PLANES, "features", "classes")]
    share: Annotated[NDArray[np.float64], array(np.float64, 4, "classes")]
    # rows of the feature's table: 0 (none), FEW or BUCKETS; the first of them
    room: Annotated[NDArray[np.int32], array(np.int32, "features")]
    first: Annotated[NDArray[np.int32], array(np.int32, "features")]
    # distinct values met; FEW + 1: a number with too many; those values
    met: Annotated[NDArray[np.int32], array(np.int32, "features")]
    value: Annotated[NDArray[np.float64], array(np.float64, "features", FEW)]
    table: Annotated[NDArray[np.float64], array(np.float64, TABLES, "table rows", "classes")]
    # of sparse rows: numbers other than 0 that a class has had (fading)
    present: Annotated[NDArray[np.float64], array(np.float64, "classes")]


@kernel
def says_something(v: float, is_category: int, zero: int) -> bool:
    """Whether a value is there; in sparse rows a number of 0 is not."""
    return bool(v == v and (zero == 0 or v != 0.0 or is_category))


@kernel
def find_active(
    x: NDArray[np.float64],
    r: int,
    features: int,
    categorical: NDArray[np.uint8],
    zero: int,
    active: NDArray[np.int64],
) -> int:
    """The features that row `r` says something of, in their order. Returns how many."""
    n = 0
    for f in range(features):
        if says_something(x[r, f], categorical[f], zero):
            active[n] = f
            n += 1
    return n


@kernel
def row_of(p: Baselines, f: int, v: float, is_category: int) -> int:
    """The row of a value in the table of feature `f`; -1 if it was never learned."""
    if is_category:
        return -1 if v < 0.0 else p.first[f] + (int(v) & (BUCKETS - 1))
    for k in range(p.met[f]):
        if p.value[f, k] == v:
            return p.first[f] + k  # type: ignore[no-any-return]
    return -1


@kernel
def settle(p: Baselines, spread: NDArray[np.float64], f: int, c: int) -> None:
    """What naive Bayes reads for feature `f` and class `c`, from what it knows of them."""
    n = p.plane[COUNT, f, c]
    if p.room[f] > 0:
        p.plane[LOG, f, c] = math.log(n + max(1, p.met[f]))
        return
    all_of_it = spread[1, f]
    if n == 0.0:
        p.plane[MEAN, f, c] = spread[0, f]
    if all_of_it > SMALLEST:
        variance = (n * p.plane[VARIANCE, f, c] + all_of_it) / (n + 1.0) + _FLOOR * all_of_it
        p.plane[INVERSE, f, c] = 1.0 / variance
        p.plane[LOG, f, c] = math.log(variance)
    else:
        p.plane[INVERSE, f, c] = 0.0
        p.plane[LOG, f, c] = 0.0


@kernel
def _softmax(score: NDArray[np.float64], n: int) -> None:
    largest = -np.inf
    for c in range(n):
        largest = max(largest, score[c])
    total = 0.0
    for c in range(n):
        score[c] = math.exp(score[c] - largest)
        total += score[c]
    for c in range(n):
        score[c] /= total


@kernel
def bayes(
    p: Baselines,
    spread: NDArray[np.float64],
    x: NDArray[np.float64],
    r: int,
    active: NDArray[np.int64],
    n: int,
    classes: int,
    features: int,
    categorical: NDArray[np.uint8],
    zero: int,
    score: NDArray[np.float64],
) -> None:
    """The posterior of naive Bayes for row `r`, whose first `n` features are `active`, in `score`."""
    for c in range(classes):
        score[c] = p.share[LOG_N, c]
    numbers = 0
    for a in range(n):
        f = active[a]
        v = x[r, f]
        if zero and not categorical[f]:
            numbers += 1
            for c in range(classes):
                score[c] += math.log(p.plane[COUNT, f, c] + 1.0)
        if p.room[f] > 0:
            row = row_of(p, f, v, categorical[f])
            if row >= 0:
                for c in range(classes):
                    score[c] += p.table[T_LOG, row, c] - p.plane[LOG, f, c]
        elif spread[1, f] > SMALLEST:
            for c in range(classes):
                off = v - p.plane[MEAN, f, c]
                score[c] -= 0.5 * (off * off * p.plane[INVERSE, f, c] + p.plane[LOG, f, c])
    if zero:
        for c in range(classes):
            score[c] -= numbers * math.log(p.present[c] + features)
    _softmax(score, classes)


@kernel
def standardise(
    spread: NDArray[np.float64],
    x: NDArray[np.float64],
    r: int,
    active: NDArray[np.int64],
    n: int,
    categorical: NDArray[np.uint8],
    zero: int,
    z: NDArray[np.float64],
) -> None:
    """The `active` numbers of row `r` in standard deviations from their means; from 0 in sparse rows."""
    for a in range(n):
        f = active[a]
        z[f] = 0.0
        if not categorical[f]:
            centre = 0.0 if zero else spread[0, f]
            z[f] = min(FARTHEST, max(-FARTHEST, (x[r, f] - centre) * spread[2, f]))


@kernel
def linear(
    p: Baselines,
    x: NDArray[np.float64],
    r: int,
    z: NDArray[np.float64],
    active: NDArray[np.int64],
    n: int,
    classes: int,
    categorical: NDArray[np.uint8],
    score: NDArray[np.float64],
) -> None:
    """The posterior of the linear rule for row `r`, whose numbers are `z`, in `score`."""
    for c in range(classes):
        score[c] = p.share[BIAS, c]
    for a in range(n):
        f = active[a]
        if z[f] != 0.0:
            for c in range(classes):
                score[c] += z[f] * p.plane[WEIGHT, f, c]
        elif categorical[f] and x[r, f] >= 0.0 and p.room[f] > 0:
            row = row_of(p, f, x[r, f], 1)
            for c in range(classes):
                score[c] += p.table[T_WEIGHT, row, c]
    _softmax(score, classes)
