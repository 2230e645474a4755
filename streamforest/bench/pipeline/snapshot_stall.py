"""How long a snapshot of a large model stalls the stream, compared with a memory copy of its bytes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamforest import ConsistentForestClassifier
from streamforest.errors import SnapshotError
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.processing.adapters import wrap_model

GOAL = 3.0
_FEATURES, _CLASSES = 50, 10
_ROUNDS = 7


@dataclass(frozen=True)
class Stall:
    """Medians over a few rounds, each a copy and a snapshot in turn."""

    megabytes: float
    copy_seconds: float
    """A copy to new memory, which a snapshot needs."""
    warm_seconds: float
    """A copy to memory that is already mapped, the fastest possible."""
    stall_seconds: float
    longest_seconds: float
    """The longest that one event took while a snapshot was written in the background."""

    @property
    def times(self) -> float:
        """The stall as a multiple of the fastest copy of the same bytes."""
        return self.stall_seconds / min(self.copy_seconds, self.warm_seconds)


def measure_stall(megabytes: int = 100) -> Stall:
    """Grow a forest to this size, then take snapshots of it as the loop does."""
    draw = np.random.default_rng(0)
    model = ConsistentForestClassifier(n_trees=50, seed=0)
    while model.summary()["total_bytes"] < megabytes * 1_000_000:
        X = draw.normal(0, 1, (2_000, _FEATURES))
        model.advance(X, draw.integers(_CLASSES, size=2_000).tolist())
    size = int(model.summary()["total_bytes"])
    block, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    target[:] = 0
    event = draw.normal(0, 1, (1, _FEATURES))
    copies, warm, stalls, longest = [], [], [], 0.0
    with tempfile.TemporaryDirectory() as work:
        snapshots, wrapped = SnapshotFolder(Path(work)), wrap_model(model)
        for number in range(_ROUNDS):
            copies.append(_timed(block.copy))
            warm.append(_timed(lambda: np.copyto(target, block)))
            stalls.append(_timed(partial(snapshots.begin, {"main": wrapped}, {}, number, 0, {})))
            while snapshots.busy:
                longest = max(longest, _timed(lambda: model.advance(event, [0])))
            snapshots.wait()
            if (failure := snapshots.take_failure()) is not None:
                raise SnapshotError(failure.message)
    copied, warmed, stalled = (float(np.median(times)) for times in (copies, warm, stalls))
    return Stall(size / 1e6, copied, warmed, stalled, longest)


def _timed(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    kept = call()
    seconds = time.perf_counter() - begun
    del kept
    return seconds


def describe(stall: Stall) -> str:
    """The result as one sentence."""
    verdict = "ok" if stall.times <= GOAL else "missed"
    return (
        f"snapshot of a model of {stall.megabytes:.0f} MB: the stream waits "
        f"{stall.stall_seconds * 1e3:.0f} ms, a copy of the bytes takes "
        f"{stall.warm_seconds * 1e3:.0f} ms (to new memory {stall.copy_seconds * 1e3:.0f} ms): "
        f"{stall.times:.1f} times (goal {GOAL:.0f}: {verdict}); "
        f"while it is written no event takes longer than {stall.longest_seconds * 1e3:.0f} ms"
    )
