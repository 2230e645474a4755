"""How new an event is to an NCM forest: its distance from the class means and from the rows of its leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.simd_distance import lane_distance
from streamforest.kernels.ncm.layout import Means, Tree
from streamforest.kernels.ncm.neighbours import STANDARDISED, distance_of


@kernel
def far_from_rows(tree: Tree, least: float, usual: NDArray[np.float64]) -> np.float32:
    """The distance of the nearest row of a leaf, divided by the usual one; NaN while that is unknown."""
    scale = usual[distance_of(tree)]
    return np.float32(least / scale) if scale > 0.0 else np.float32(np.nan)


@kernel
def far_from_means(
    means: Means, scales: NDArray[np.float32], x: NDArray[np.float32], r: int
) -> np.float32:
    """The distance of row `r` from the nearest class mean, divided by that of the class' own events."""
    least = np.inf
    for k in range(means.n.shape[0]):
        if means.n[k] > 1 and means.spread[k] > 0.0:
            d = float(lane_distance(means.mean, k, x, r, scales, STANDARDISED))
            least = min(least, d / means.spread[k])
    return np.float32(least) if least < np.inf else np.float32(np.nan)


def novelty(distances: NDArray[np.float32], scores: NDArray[np.int64]) -> NDArray[np.float64]:
    """√(distance from means · distance from rows), divided by the share of the votes for the answer.

    `distances` has a row for each tree and one for the class means. NaN is unknown: the other distance
    stands for it. Before anything is known an event is infinitely new.
    """
    known = ~np.isnan(distances[:-1])
    n = known.sum(axis=0)
    rows = np.where(known, distances[:-1], 0.0).sum(axis=0, dtype=np.float64) / np.maximum(n, 1)
    means = distances[-1].astype(np.float64)
    means = np.where(np.isnan(means), rows, means)
    out: NDArray[np.float64] = np.sqrt(means * np.where(n > 0, rows, means))
    total = scores.sum(axis=1)
    top = scores.max(axis=1, initial=0)
    answered = total > 0
    out[answered] *= total[answered] / top[answered]
    out[~answered] = np.inf
    return out
