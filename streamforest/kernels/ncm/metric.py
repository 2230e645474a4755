"""The metric of a tree: how much a difference in each column counts.

A metric is a row of weights, one per column, or the inverse of a shrunk covariance (`class_means`). With
weights of one over the variance a column that hardly ever changes would decide everything, so a part of
the mean variance is added.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import routine
from streamforest.kernels.ncm.layout import RAW, WITHIN

_FLOOR = 0.01  # of the mean variance of all columns
_HEAVIEST = 1e20  # weight of a column: products must stay within float32


@routine
def metric_of(
    kind: int, z: NDArray[np.float32], label: NDArray[np.int32], n_classes: int, columns: int
) -> NDArray[np.float32]:
    """The metric RAW, STANDARD or WITHIN by these rows, of which so many columns are in use."""
    n, width = z.shape
    out = np.zeros((1, width), np.float32)
    if kind == RAW:
        out[0, :columns] = 1.0
        return out
    mean = np.zeros((n_classes, width))
    count = np.zeros(n_classes)
    for a in range(n):
        c = label[a] if kind >= WITHIN else 0
        count[c] += 1.0
        for f in range(width):
            mean[c, f] += z[a, f]
    for c in range(n_classes):
        if count[c] > 0:
            for f in range(width):
                mean[c, f] /= count[c]
    square = np.zeros(width)
    for a in range(n):
        c = label[a] if kind == WITHIN else 0
        for f in range(width):
            off = z[a, f] - mean[c, f]
            square[f] += off * off
    total = 0.0
    moving = 0
    for f in range(width):
        total += square[f]
        moving += square[f] > 0.0
    if moving == 0:
        out[0, :columns] = 1.0
        return out
    floor = _FLOOR * total / moving
    for f in range(columns):
        if square[f] > 0.0:
            out[0, f] = np.float32(min(_HEAVIEST, n / (square[f] + floor)))
    return out
