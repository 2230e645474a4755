"""What happens to the two baselines between epochs: they fade, and follow the spread of the features."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.stream.baselines import (
    BIAS_SQUARES,
    CLASSES,
    COUNT,
    FEATURES,
    LOG_N,
    MEAN,
    SMALLEST,
    SQUARES,
    T_COUNT,
    T_LOG,
    T_SQUARES,
    TOP,
    VARIANCE,
    Baselines,
    N,
    settle,
)

FADE_EVERY = 512
"""Learned events between two fadings."""

_MEMORY = 2000.0  # events that naive Bayes looks back on
_STEP_MEMORY = 5000.0  # events that the linear rule's step sizes look back on
LEAST = 1e-30  # a count that has faded to this stays there: the value has been met


@routine
def settle_feature(p: Baselines, spread: NDArray[np.float64], f: int) -> None:
    """What naive Bayes reads of a feature, made of its counts, means and variances."""
    for c in range(p.size[CLASSES]):
        settle(p, spread, f, c)


@kernel
def _pooled(p: Baselines, f: int) -> tuple[float, float]:
    """Mean and variance of the values of feature `f` that naive Bayes has learned, of all classes."""
    count = 0.0
    mean = 0.0
    for c in range(p.size[CLASSES]):
        count += p.plane[COUNT, f, c]
        mean += p.plane[COUNT, f, c] * p.plane[MEAN, f, c]
    if not count > 0.0:
        return 0.0, 0.0
    mean /= count
    square = 0.0
    for c in range(p.size[CLASSES]):
        off = p.plane[MEAN, f, c] - mean
        square += p.plane[COUNT, f, c] * (p.plane[VARIANCE, f, c] + off * off)
    return mean, square / count


@routine
def settle_spread(
    p: Baselines,
    mean: NDArray[np.float64],
    variance: NDArray[np.float64],
    spread: NDArray[np.float64],
    everything: bool,
    zero: int,
) -> None:
    """Mean and variance of the features as of this epoch, and what naive Bayes makes of them.

    That is made anew for features that had no variance before; for all if `everything`. Of sparse rows
    naive Bayes wants mean and variance of the numbers other than 0, the linear rule the root mean square.
    """
    for f in range(min(p.size[FEATURES], mean.shape[0])):
        flat = not spread[1, f] > SMALLEST
        if zero:
            spread[0, f], spread[1, f] = _pooled(p, f)
            square = variance[f] + mean[f] * mean[f]
        else:
            spread[0, f] = mean[f]
            spread[1, f] = variance[f]
            square = variance[f]
        spread[2, f] = 1.0 / math.sqrt(square) if square > SMALLEST else 0.0
        if everything or (flat and spread[1, f] > SMALLEST):
            settle_feature(p, spread, f)


@routine
def fade(p: Baselines) -> None:
    """Forget a little of the past; `settle_spread` of everything has to follow."""
    keep = math.exp(-FADE_EVERY / _MEMORY)
    keep_steps = math.exp(-FADE_EVERY / _STEP_MEMORY)
    for c in range(p.size[CLASSES]):
        p.share[N, c] = max(LEAST, keep * p.share[N, c])
        p.share[LOG_N, c] = math.log(p.share[N, c])
        p.share[BIAS_SQUARES, c] *= keep_steps
        p.present[c] *= keep
    for f in range(p.size[FEATURES]):
        for c in range(p.size[CLASSES]):
            p.plane[COUNT, f, c] *= keep
            p.plane[SQUARES, f, c] *= keep_steps
    for row in range(p.size[TOP]):
        for c in range(p.size[CLASSES]):
            if p.table[T_COUNT, row, c] > 0.0:
                p.table[T_COUNT, row, c] = max(LEAST, keep * p.table[T_COUNT, row, c])
                p.table[T_LOG, row, c] = math.log(p.table[T_COUNT, row, c] + 1.0)
            p.table[T_SQUARES, row, c] *= keep_steps


@routine
def take_logs(p: Baselines) -> None:
    """The logarithms that a snapshot leaves out; `T_LOG` follows from the counts."""
    for row in range(p.size[TOP]):
        for c in range(p.size[CLASSES]):
            p.table[T_LOG, row, c] = math.log(p.table[T_COUNT, row, c] + 1.0)
