"""Sets with categories, cut as the paper does: half of the training rows coarse, some of the rest fine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamforest.datasets.generated import digit_images
from streamforest.datasets.recorded import RecordedSet, missing_file, read_categories
from streamforest.errors import ConfigError

NAMES = ("omniglot964", "clinc150", "leaf99", "digits")
"""Sets of the benchmark; the last one comes with the package, its categories are the digit modulo 3."""

_ROWS = {"omniglot964": (14, 6), "clinc150": (40, 10), "leaf99": (7, 3), "digits": (60, 40)}
"""Training and test rows of each class."""
_CATEGORIES = {"omniglot964": 10}  # drawn anew for each seed; all of them elsewhere

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LevelSet:
    """Rows with a class and a category, and those to be asked."""

    name: str
    X: Floats
    y: Ints
    category: Ints
    train: list[Ints]  # rows of each class, in a random order
    test: Ints

    def part(
        self, fine: float, coarse: float, seed: int
    ) -> tuple[Ints, list[int | None], list[int]]:
        """Training rows in a random order, their classes (None: only the category is told), categories."""
        rng = np.random.default_rng([seed, 1])
        with_class: list[int] = []
        without: list[int] = []
        for rows in self.train:
            half = len(rows) // 2
            n = _rounded(coarse * len(rows), rng)
            without += rows[:half][:n].tolist()
            with_class += rows[half:][: max(1, _rounded(fine * len(rows), rng))].tolist()
        order = rng.permutation(np.array(with_class + without, np.int64))
        told = set(with_class)
        labels = [int(self.y[r]) if int(r) in told else None for r in order]
        return order, labels, self.category[order].tolist()


def _rounded(wanted: float, rng: np.random.Generator) -> int:
    return int(wanted) + int(rng.random() < wanted - int(wanted))


def unavailable(name: str) -> str | None:
    """Why a set cannot be had on this machine; None where it can."""
    if name not in NAMES:
        raise ConfigError(f"set {name!r} is not known; choose from: {', '.join(NAMES)}")
    return None if name == "digits" else missing_file(name)


def load(name: str, seed: int) -> LevelSet:
    """A set as this seed cuts it."""
    if name == "digits":
        X, y = digit_images()
        category = y % 3
    else:
        source = RecordedSet.read(name)
        X, y = source.x.astype(np.float64) * source.scale, source.y
        category = read_categories(name)
    rng = np.random.default_rng(seed)
    if name in _CATEGORIES:
        chosen = rng.permutation(int(category.max()) + 1)[: _CATEGORIES[name]]
        keep = np.isin(category, chosen)
        X, y, category = X[keep], y[keep], category[keep]
        y, category = (np.unique(v, return_inverse=True)[1].astype(np.int64) for v in (y, category))
    training, asked = _ROWS[name]
    train, test = [], []
    for k in range(int(y.max()) + 1):
        rows = rng.permutation(np.flatnonzero(y == k))
        train.append(rows[:training])
        test.append(rows[training : training + asked])
    return LevelSet(name, X, y, category, train, np.concatenate(test))
