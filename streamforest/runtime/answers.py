"""From posteriors to what a prediction says, and from an error to what a dead letter says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import CapacityError, EventError, InputError, LabelError


def answers(posteriors: NDArray[np.float64], classes: list[Any]) -> tuple[list[Any], list[float]]:
    """Most probable class of each row and its probability; None where no class was known.

    >>> answers(np.array([[0.0, 0.0], [0.25, 0.75]]), ["cat", "dog"])
    ([None, 'dog'], [0.0, 0.75])
    """
    if not classes:
        return [None] * len(posteriors), [0.0] * len(posteriors)
    top = posteriors.argmax(axis=1)  # ties: the class seen first
    best = np.take_along_axis(posteriors, top[:, None], axis=1)[:, 0].tolist()
    labels = [classes[k] if p > 0 else None for k, p in zip(top.tolist(), best)]
    return labels, best


def top_classes(
    posteriors: NDArray[np.float64], classes: list[Any], most: int
) -> list[list[tuple[Any, float]]]:
    """The `most` likeliest classes of each row with their probabilities, those of 0 left out.

    >>> top_classes(np.array([[0.2, 0.8, 0.0]]), ["a", "b", "c"], 3)
    [[('b', 0.8), ('a', 0.2)]]
    """
    if not classes:
        return [[] for _ in posteriors]
    order = np.argsort(-posteriors, axis=1, kind="stable")[:, :most]
    values = np.take_along_axis(posteriors, order, axis=1).tolist()
    return [
        [(classes[k], p) for k, p in zip(row, probabilities) if p > 0]
        for row, probabilities in zip(order.tolist(), values)
    ]


def reason_of(error: InputError) -> str:
    """One short word for why an event was refused."""
    if isinstance(error, EventError):
        return error.reason
    if isinstance(error, CapacityError):
        return "capacity"
    return "label" if isinstance(error, LabelError) else "feature"
