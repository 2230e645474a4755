"""From posteriors to what a prediction says, and from an error to what a dead letter says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import CapacityError, EventError, InputError, LabelError

Likely = list[tuple[Any, float]]
"""Classes with their probabilities, the likeliest first."""


def answers(posteriors: NDArray[np.float64], classes: list[Any]) -> list[Any]:
    """Most probable class of each row; None where no class was known.

    >>> answers(np.array([[0.0, 0.0], [0.25, 0.75]]), ["cat", "dog"])
    [None, 'dog']
    """
    if not classes:
        return [None] * len(posteriors)
    top = posteriors.argmax(axis=1)  # ties: the class seen first
    labels = [classes[k] for k in top.tolist()]
    unknown = posteriors[np.arange(len(top)), top] <= 0
    for i in np.flatnonzero(unknown).tolist():
        labels[i] = None
    return labels


def top_classes(posteriors: NDArray[np.float64], classes: list[Any], most: int) -> list[Likely]:
    """The `most` likeliest classes of each row with their probabilities, those of 0 left out.

    >>> top_classes(np.array([[0.2, 0.8, 0.0]]), ["a", "b", "c"], 3)
    [[('b', 0.8), ('a', 0.2)]]
    """
    if not classes:
        return [[] for _ in posteriors]
    order = np.argsort(-posteriors, axis=1, kind="stable")[:, :most]
    values = np.take_along_axis(posteriors, order, axis=1)
    named = classes.__getitem__
    ranked = [
        list(zip(map(named, row), probabilities))
        for row, probabilities in zip(order.tolist(), values.tolist())
    ]
    there = (values > 0).sum(axis=1)
    for i in np.flatnonzero(there < order.shape[1]).tolist():
        del ranked[i][there[i] :]
    return ranked


def plain_novelty(values: NDArray[np.float64] | None, rows: int) -> list[float | None]:
    """Novelty as predictions carry it: no number where there is none, and six digits.

    >>> plain_novelty(np.array([1.23456789, np.inf]), 2), plain_novelty(None, 1)
    ([1.23457, None], [None])
    """
    if values is None:
        return [None] * rows
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]


def reason_of(error: InputError) -> str:
    """One short word for why an event was refused."""
    if isinstance(error, EventError):
        return error.reason
    if isinstance(error, CapacityError):
        return "capacity"
    return "label" if isinstance(error, LabelError) else "feature"
