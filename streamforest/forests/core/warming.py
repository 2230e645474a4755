"""Calling all that a forest will ever call, so that no event has to wait for a kernel to be compiled."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from streamforest.errors import SnapshotError
from streamforest.forests.core import serialization
from streamforest.forests.core.engine import WANTS
from streamforest.forests.core.parameters import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from streamforest.forests.core.base import Forest

ROWS = 640
"""Enough for every epoch at which something new is called."""
_ROOM = 16  # classes, columns, categories


def warm_up(forest: Forest, first_events: bool) -> None:
    """Compile, or load, what a forest calls, by a small one like it; or only what its first events call."""
    if forest.executor == "ray":
        from streamforest.forests.sharded.ray_actors import RayCluster

        RayCluster.connected()
    other = small(forest, n_trees=min(forest.n_trees, 2), executor="threads", n_actors=1)
    if first_events:
        begin(other)
        return
    y = np.arange(ROWS) % 3
    other.advance(np.random.default_rng(0).random((ROWS, 2)) + y[:, None], y)
    other._enlarge(np.full(WANTS, 1_000, np.int64))
    summarise_and_reload(other)


def begin(forest: Any) -> None:
    """What the first events call: answers, rows that are learned, and ends of epochs."""
    forest.answers(np.zeros((2, 1)), ["a", "b"])
    for y in "ab":
        forest.predict_one({0: 1.0})
        forest.learn_one({0: 1.0}, y)


def small(forest: Forest, **changed: Any) -> Any:
    """An empty forest with these parameters changed, and room for what warming up learns, which may be more
    than the forest itself has room for.
    """
    room = {
        "max_classes": max(forest.max_classes, _ROOM),
        "max_features": max(forest.max_features, _ROOM),
        "max_categories": max(forest.max_categories, _ROOM),
        "max_text_bytes": MAX_TEXT_BYTES,
        "taxonomy": None,
    }
    has = forest._get_params()
    return forest.clone({name: value for name, value in (room | changed).items() if name in has})


def summarise_and_reload(forest: Forest) -> None:
    """What a pipeline asks of its model beside learning: a summary, a snapshot, and that it loads."""
    forest.summary()
    with suppress(SnapshotError):  # a run judges its own snapshots, and goes on without one
        serialization.restore(type(forest), *serialization.dump(forest))
