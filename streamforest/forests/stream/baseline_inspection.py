"""Looking into the baselines: what each makes of the features, in all and for one event."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.stream.baselines import (
    BUCKETS,
    CLASSES,
    COUNT,
    FARTHEST,
    FEATURES,
    INVERSE,
    LOG,
    MEAN,
    SMALLEST,
    T_COUNT,
    T_LOG,
    T_WEIGHT,
    VARIANCE,
    WEIGHT,
    Baselines,
    says_something,
)

Array = NDArray[np.float64]


def bayes_importances(p: Baselines, n_features: int) -> Array:
    """Nats that each feature by itself tells of the class, as naive Bayes sees it."""
    out = np.zeros(n_features)
    for f in range(int(p.size[FEATURES])):
        cut = slice(0, int(p.size[CLASSES]))
        if p.room[f] > 0:
            rows = slice(int(p.first[f]), int(p.first[f] + p.room[f]))
            out[f] = _information(p.table[T_COUNT, rows, cut])
        else:
            out[f] = _separation(*p.plane[[COUNT, MEAN, VARIANCE], f, cut])
    return out


def _information(counts: Array) -> float:
    """Mutual information of the rows and columns of a table of counts."""
    joint = counts / max(counts.sum(), 1e-300)
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    some = joint > 1e-12
    return max(0.0, float((joint[some] * np.log(joint[some] / apart[some])).sum()))


def _separation(count: Array, mean: Array, variance: Array) -> float:
    """How much narrower Gaussians of the classes are than one of all."""
    share = count / max(count.sum(), 1e-300)
    centre = share @ mean
    whole = share @ (variance + (mean - centre) ** 2)
    if not whole > SMALLEST:
        return 0.0
    within = np.maximum(variance, 1e-3 * whole)
    return max(0.0, float(-0.5 * share @ np.log(within / whole)))


def linear_importances(p: Baselines, spread: Array, n_features: int) -> Array:
    """Standard deviation of what each feature adds to the scores of the linear rule."""
    out = np.zeros(n_features)
    classes = slice(0, int(p.size[CLASSES]))
    for f in range(int(p.size[FEATURES])):
        if p.room[f] == BUCKETS:
            rows = slice(int(p.first[f]), int(p.first[f]) + BUCKETS)
            seen = p.table[T_COUNT, rows, classes].sum(axis=1)
            weight = _centred(p.table[T_WEIGHT, rows, classes])
            share = seen / max(seen.sum(), 1e-300)
            out[f] = np.sqrt((share @ (weight - share @ weight) ** 2).mean())
        elif spread[1, f] > SMALLEST:
            out[f] = np.sqrt((_centred(p.plane[WEIGHT, f, classes]) ** 2).mean())
    return out


def _centred(weight: Array) -> Array:
    """What is added to all classes alike decides nothing."""
    out: Array = weight - weight.mean(axis=-1, keepdims=True)
    return out


def bayes_says(
    p: Baselines, spread: Array, x: Array, categorical: NDArray[np.uint8], zero: bool
) -> Array:
    """What each feature of an event adds to the score of each class, in nats: [feature, class]."""
    classes = int(p.size[CLASSES])
    out = np.zeros((len(x), classes))
    for f in range(min(len(x), int(p.size[FEATURES]))):
        if not says_something(x[f], categorical[f], zero):
            continue
        if zero and not categorical[f]:
            share = p.present[:classes] + int(p.size[FEATURES])
            out[f] = np.log((p.plane[COUNT, f, :classes] + 1.0) / share)
        if p.room[f] > 0:
            if (row := _row_of(p, f, x[f], categorical[f])) >= 0:
                out[f] += p.table[T_LOG, row, :classes] - p.plane[LOG, f, :classes]
        elif spread[1, f] > SMALLEST:
            mean, inverse, log = p.plane[[MEAN, INVERSE, LOG], f, :classes]
            out[f] += -0.5 * ((x[f] - mean) ** 2 * inverse + log)
    return out


def linear_says(
    p: Baselines, spread: Array, x: Array, categorical: NDArray[np.uint8], zero: bool
) -> Array:
    """The same for the linear rule."""
    classes = int(p.size[CLASSES])
    out = np.zeros((len(x), classes))
    for f in range(min(len(x), int(p.size[FEATURES]))):
        if not categorical[f]:
            centre = 0.0 if zero else spread[0, f]
            z = np.nan_to_num((x[f] - centre) * spread[2, f])
            out[f] = np.clip(z, -FARTHEST, FARTHEST) * p.plane[WEIGHT, f, :classes]
        elif p.room[f] > 0 and (row := _row_of(p, f, x[f], True)) >= 0:
            out[f] = p.table[T_WEIGHT, row, :classes]
    return out


def _row_of(p: Baselines, f: int, v: float, is_category: bool) -> int:
    """`plain.row_of`, which is not worth compiling for this."""
    if is_category:
        return int(p.first[f]) + (int(v) & (BUCKETS - 1)) if v >= 0.0 else -1
    (at,) = np.nonzero(p.value[f, : p.met[f]] == v)
    return int(p.first[f] + at[0]) if len(at) else -1
