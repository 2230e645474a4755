"""Sets with many classes, cut into training and test rows, with classes in a given order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamforest.datasets.generated import digit_images
from streamforest.datasets.recorded import RecordedSet, missing_file
from streamforest.errors import ConfigError

NAMES = ("omniglot964", "clinc150", "caltech101", "leaf99", "isolet", "letter", "mnist14", "digits")
"""Sets of the benchmark; the last one comes with the package."""

_MOST_TRAINING, _MOST_TEST = 20_000, 5_000
_TEST_SHARE = 0.2  # of each class, where a set has no test rows of its own
_PER_CLASS = {"caltech101": 30}  # training rows of each class, as is usual for the set
_NO_CLASS = {"caltech101": "BACKGROUND"}  # a class that is none

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClassSet:
    """Rows to learn, sorted by class, and rows to be asked; classes are numbered 0, 1, …"""

    name: str
    X: Floats
    y: Ints
    X_test: Floats
    y_test: Ints

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(self.y.max()) + 1

    def rows_below(self, classes: int) -> int:
        """Training rows of the first `classes` classes."""
        return int(np.searchsorted(self.y, classes))

    def in_order(self, seed: int) -> ClassSet:
        """The same set with its classes, and the rows of each, in another order."""
        rng = np.random.default_rng(seed)
        place = np.argsort(rng.permutation(self.classes))
        shuffled = rng.permutation(len(self.y))
        order = shuffled[np.argsort(place[self.y[shuffled]], kind="stable")]
        return ClassSet(
            self.name, self.X[order], place[self.y[order]], self.X_test, place[self.y_test]
        )

    def first(self, classes: int | None) -> ClassSet:
        """The same set with no more than its first classes; None: all of them."""
        if classes is None or classes >= self.classes:
            return self
        rows, asked = self.rows_below(classes), self.y_test < classes
        return ClassSet(
            self.name, self.X[:rows], self.y[:rows], self.X_test[asked], self.y_test[asked]
        )

    def known(self, classes: int) -> tuple[Floats, Ints]:
        """Test rows of the first `classes` classes."""
        at = self.y_test < classes
        return self.X_test[at], self.y_test[at]


def unavailable(name: str) -> str | None:
    """Why a set cannot be had on this machine; None where it can."""
    if name not in NAMES:
        raise ConfigError(f"set {name!r} is not known; choose from: {', '.join(NAMES)}")
    return None if name == "digits" else missing_file(name)


def load(name: str) -> ClassSet:
    """A set; always the same rows."""
    if name == "digits":
        X, y = digit_images()
        test = None
    else:
        source = RecordedSet.read(name)
        X, y, test = source.x.astype(np.float64) * source.scale, source.y, source.test
        nothing = [
            k
            for k, label in enumerate(source.labels)
            if _NO_CLASS.get(name, "\0") in str(label).upper()
        ]
        keep = ~np.isin(y, nothing)
        X, test = X[keep], None if test is None else test[keep]
        y = np.unique(y[keep], return_inverse=True)[1]
    rng = np.random.default_rng(0)
    if test is None:
        test = _chosen(y, rng, _PER_CLASS.get(name))
    training = rng.permutation(np.flatnonzero(~test))[:_MOST_TRAINING]
    training = training[np.argsort(y[training], kind="stable")]
    asked = rng.permutation(np.flatnonzero(test))[:_MOST_TEST]
    return ClassSet(name, X[training], y[training], X[asked], y[asked])


def _chosen(y: Ints, rng: np.random.Generator, per_class: int | None) -> NDArray[np.bool_]:
    """Test rows of each class: a share, or all beyond a number of training rows."""
    test = np.zeros(len(y), np.bool_)
    for c in range(int(y.max()) + 1):
        rows = rng.permutation(np.flatnonzero(y == c))
        cut = per_class if per_class else len(rows) - max(1, round(_TEST_SHARE * len(rows)))
        test[rows[cut:]] = True
    return test


def per_class(answers: Ints, y: Ints) -> float:
    """Accuracy, the mean over the classes.

    >>> per_class(np.array([0, 0, 1]), np.array([0, 0, 2]))
    0.5
    """
    n = np.bincount(y)
    right = np.bincount(y[answers == y], minlength=len(n))
    return float((right[n > 0] / n[n > 0]).mean())
