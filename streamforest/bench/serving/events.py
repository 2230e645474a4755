"""The events of the benchmark: a generated stream of 20 numbers and 10 classes, the same for both servers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

FEATURES = 20
CLASSES = 10


def training_events(count: int, seed: int = 0) -> Iterator[tuple[dict[str, float], int]]:
    """Events with their labels: a cloud around a centre for each class."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(0, 2, (CLASSES, FEATURES))
    for _ in range(count):
        y = int(draw.integers(CLASSES))
        row = (centres[y] + draw.normal(0, 1.5, FEATURES)).round(4).tolist()
        yield {f"f{i}": value for i, value in enumerate(row)}, y
