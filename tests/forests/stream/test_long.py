"""A stream that goes on for millions of events and changes for good every tenth of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from streamforest import StreamForestClassifier

TENTHS = 10


def _changing(n: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ten concepts of n / 10 events each, in batches: four classes around new centres every time."""
    rng = np.random.default_rng(seed)
    for _ in range(TENTHS):
        centres = rng.normal(size=(4, 5)) * 1.5
        for _ in range(0, n // TENTHS, 500):
            y = rng.integers(0, 4, 500)
            yield centres[y] + rng.normal(size=(500, 5)), y


def _run(n: int, n_trees: int) -> tuple[list[float], list[int], list[float]]:
    """Events a CPU second, bytes and accuracy of each tenth."""
    model = StreamForestClassifier(n_trees=n_trees, seed=1)
    speeds, sizes, accuracies = [], [], []
    spent = right = 0.0
    for k, (X, y) in enumerate(_changing(n), start=1):
        begun = time.process_time()
        P = model.advance(X, y)
        spent += time.process_time() - begun
        index = {label: c for c, label in enumerate(model.classes_)}
        right += (P.argmax(axis=1) == [index[label] for label in y.tolist()]).sum()
        if k * 500 % (n // TENTHS) == 0:
            speeds.append(n / TENTHS / spent)
            sizes.append(model.summary()["total_bytes"])
            accuracies.append(right / (n / TENTHS))
            spent = right = 0.0
    return speeds, sizes, accuracies


def test_memory_is_flat_and_every_change_is_survived() -> None:
    _, sizes, accuracies = _run(100_000, n_trees=3)
    # within the stated bounds: ring, lists, nodes with their histograms, errors
    assert sizes[-1] < 3_000_000
    assert sizes[-1] < 1.6 * sizes[2]
    assert min(accuracies) > 0.7


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_million_events_with_a_change_every_500_000() -> None:
    speeds, sizes, accuracies = _run(5_000_000, n_trees=20)
    for tenth, (speed, size, accuracy) in enumerate(zip(speeds, sizes, accuracies), start=1):
        print(f"tenth {tenth}: {speed:.0f} events/s, {size / 1e6:.1f} MB, accuracy {accuracy:.4f}")
    assert speeds[-1] > 0.8 * speeds[1]
    assert sizes[-1] < 1.1 * sizes[1]
