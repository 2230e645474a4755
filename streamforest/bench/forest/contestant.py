"""The form of a contestant: how a model of any library is given its events, and what is known of it.

Each is brought into one of two forms: `OneByOne` (predict, then learn, event after event) or `Batches` (a
whole array at once).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.bench.machine import anonymous_bytes
from streamforest.datasets import Label, Stream

Rows = NDArray[np.float64]

BATCH = 500
"""Rows that a batch-wise contestant is given at once."""


@dataclass(frozen=True)
class Setting:
    """What a model is built for. The stream is there for models that must know all features and
    classes beforehand; ours and River's do not look at it.
    """

    stream: Stream
    trees: int
    seed: int


@dataclass(frozen=True)
class OneByOne:
    """A model that takes one event at a time."""

    encode: Callable[[Rows, Sequence[Label]], Sequence[Any]]
    predict: Callable[[Any], Label | None]
    learn: Callable[[Any, Label], object]


@dataclass(frozen=True)
class Batches:
    """A model that predicts and learns `size` rows in one call, each row before learning it."""

    advance: Callable[[Rows, Sequence[Label]], Sequence[Label | None]]
    size: int = BATCH


Contestant = OneByOne | Batches


@dataclass(frozen=True)
class ModelSpec:
    """A contestant before it is built.

    Parameters
    ----------
    name
        What `--model` calls it.
    about
        What the table calls it.
    build
        Makes a fresh model.
    forest
        Class of this package that the model is; None for a rival.
    batches_of
        Name of the same model by dicts, for a batch-wise contestant.
    optional
        A rival that need not be installed: where it cannot be built or fails a smoke run, its row
        says why, and the benchmark has not failed.
    has_trees
        Whether the number of trees applies to it.
    memory
        Measures memory in use; what a run adds to it is the model's size.
    packages
        Packages whose versions decide what a rival answers.
    extra
        Only run when it is named: a variant of another one.
    baseline
        A rule that looks at no feature: a row of the table, but no rival.
    """

    name: str
    about: str
    build: Callable[[Setting], Contestant]
    forest: str | None = None
    batches_of: str | None = None
    optional: bool = False
    has_trees: bool = True
    memory: Callable[[], int | None] = anonymous_bytes
    packages: tuple[str, ...] = ("river",)
    extra: bool = False
    baseline: bool = False

    @property
    def ours(self) -> bool:
        """One of this package's forests."""
        return self.forest is not None

    @property
    def rival(self) -> bool:
        """What our forests are compared with."""
        return not self.ours and not self.baseline


def by_dicts(model: Any, features: Sequence[str], categorical: Sequence[str] = ()) -> OneByOne:
    """Any River-style classifier; the columns named `categorical` as strings."""

    def encode(X: Rows, labels: Sequence[Label]) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = [dict(zip(features, row)) for row in X.tolist()]
        for name in categorical:
            for x in events:
                x[name] = f"{x[name]:g}"
        return events

    return OneByOne(encode, model.predict_one, model.learn_one)
