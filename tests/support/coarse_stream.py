"""A stream with labels at two levels: numbers, categories, gaps, features and classes that come later."""

from __future__ import annotations

from typing import Any

import numpy as np

GENUS = {f"species {k}": f"genus {k % 4}" for k in range(10)}


def two_levels(
    n: int, first_coarse: int = 0, seed: int = 0
) -> tuple[list[dict[str, Any]], list[Any], list[Any]]:
    """Events with their classes and categories, None where a label is not told.

    Of the events after `first_coarse` a third has both labels, a third only the category, a third only the
    class. Some categories come without any class at first.
    """
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(10, 5)) * 3
    xs: list[dict[str, Any]] = []
    ys: list[Any] = []
    coarse: list[Any] = []
    for i in range(n):
        k = int(rng.integers(0, min(10, 2 + i // 20)))
        values = centres[k] + rng.normal(size=5)
        x: dict[str, Any] = {f"f{j}": float(v) for j, v in enumerate(values) if i % 11 or j}
        x["shop"] = f"s{int(rng.integers(0, 3 + i // 30))}"
        if i > n // 2:
            x["late"] = float(rng.normal())
        name = f"species {k}"
        kind = int(rng.integers(0, 3)) if i >= first_coarse else 1
        xs.append(x)
        ys.append(None if kind == 2 else name)
        coarse.append(None if kind == 1 else GENUS[name])
    return xs, ys, coarse
