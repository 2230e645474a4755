"""Event streams with everything that real ones bring."""

from __future__ import annotations

from typing import Any

import numpy as np

Events = tuple[list[dict[Any, Any]], list[Any]]


def growing_stream(n: int, seed: int = 0) -> Events:
    """Classes and features that appear over time, in any order of keys; missing values; a category."""
    rng = np.random.default_rng(seed)
    xs: list[dict[Any, Any]] = []
    ys: list[Any] = []
    for i in range(n):
        y = int(rng.integers(0, min(3 + i * 12 // n, 12)))
        names = [f"f{j}" for j in range(4 + i * 4 // n)]
        rng.shuffle(names)
        x: dict[Any, Any] = {name: float(rng.normal() + y * (int(name[1:]) % 3)) for name in names}
        if rng.random() < 0.1:
            x.pop("f0")
        if rng.random() < 0.05:
            x["f1"] = None
        if rng.random() < 0.4:
            x["kind"] = f"v{(y * 7 + int(rng.integers(0, 2))) % 5}"
        xs.append(x)
        ys.append(f"class {y}")
    return xs, ys


def blobs(n: int, n_classes: int = 4, n_features: int = 6, seed: int = 0) -> tuple[Any, Any]:
    """Gaussian blobs as arrays: (X, y)."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_classes, n_features)) * 2.0
    y = rng.integers(0, n_classes, n)
    return centres[y] + rng.normal(size=(n, n_features)), y
