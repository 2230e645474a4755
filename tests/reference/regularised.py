"""The split score of a regularised NCM forest in plain Python (Ristin et al. 2015, equations 3 to 8)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


def entropy(labels: Sequence[int]) -> float:
    """In nats."""
    n = len(labels)
    return -sum(k / n * math.log(k / n) for k in Counter(labels).values()) if n else 0.0


def gain(labels: Sequence[int], left: Sequence[bool]) -> float:
    """Information gain of a split, over rows that carry a label."""
    n = len(labels)
    if n == 0:
        return 0.0
    sides = [[y for y, a in zip(labels, left) if a == side] for side in (True, False)]
    return entropy(labels) - sum(len(side) / n * entropy(side) for side in sides)


def score(
    fine: Sequence[int | None],
    coarse: Sequence[int | None],
    left: Sequence[bool],
    method: str,
    weight: float,
    lambda_reg: float,
    centroids: int,
) -> float:
    """U_fine + λ·U_coarse − λ_reg·|set| of a split, by the rules of a method.

    `fine` is None for rows without a class; with "nn-h" it has the estimated ones.
    """
    of_fine = [r for r, y in enumerate(fine) if y is not None]
    if method == "joint":
        of_coarse = [r for r, y in enumerate(fine) if y is None and coarse[r] is not None]
    else:
        of_coarse = [r for r, g in enumerate(coarse) if g is not None]

    def of(labels: Sequence[int | None], rows: list[int]) -> float:
        return gain([int(labels[r] or 0) for r in rows], [left[r] for r in rows])

    total = of(fine, of_fine) - lambda_reg * centroids
    return total + weight * of(coarse, of_coarse) if method != "rncmf" else total
