"""The two forests inside an auto forest: how they are made, asked, and found in a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core import warming
from streamforest.forests.core.base import Forest
from streamforest.forests.core.engine import next_boundary
from streamforest.forests.ncm.forest import NCMForestClassifier
from streamforest.forests.stream.forest import StreamForestClassifier
from streamforest.kernels.core import beside
from streamforest.kernels.core.operations import PREDICT

FAMILIES = ("stream", "ncm")
_COMPILE_NCM = """
import streamforest
ncm = streamforest.NCMForestClassifier(seed=0)
ncm.warm_up(first_events=True)
print(flush=True)
ncm.warm_up()
streamforest.StreamForestClassifier(seed=0).warm_up()
"""
_OP_PREDICT = np.full(1, PREDICT, np.uint8)


def plant(forest: Any, seed: int) -> tuple[Forest, Forest]:
    """A stream forest and an NCM forest with the parameters of an auto forest, on its tables of features
    and labels.
    """
    common = {
        name: getattr(forest, name)
        for name in (
            "max_classes",
            "max_features",
            "max_categories",
            "max_text_bytes",
            "nonfinite",
            "on_capacity",
            "absent",
        )
    }
    stream = StreamForestClassifier(
        n_trees=forest.n_trees,
        ring_rows=forest.ring_rows,
        max_ring_bytes=forest.max_ring_bytes,
        max_plain_bytes=forest.max_plain_bytes,
        max_nodes=forest.max_nodes,
        drift=forest.drift,
        seed=seed,
        **common,
    )
    ncm = NCMForestClassifier(
        n_trees=ncm_trees(forest.n_trees),
        memory=forest.memory,
        swap_after=forest.swap_after,
        drift=forest.drift,
        seed=seed,
        **common,
    )
    families: tuple[Forest, Forest] = (stream, ncm)
    for family in families:
        family._features, family._labels = forest._features, forest._labels
        family._scratch()
    return families


def compile_beside() -> None:
    """On a machine's first start, have the NCM forest's kernels compiled by a second process, and what the
    stream forest needs later.
    """
    beside.start("ncm.entry", "NCM forest", _COMPILE_NCM)


def warm_up(forest: Any, first_events: bool) -> None:
    """Compile, or load, all that an auto forest calls, or what its first events call."""
    compile_beside()
    stream, ncm = forest._families
    stream.warm_up(first_events)
    warming.begin(warming.small(forest))
    if not first_events:
        beside.wait()
        ncm.warm_up()


def ncm_trees(n_trees: int) -> int:
    """Trees of the NCM forest beside so many of the stream forest.

    >>> ncm_trees(20), ncm_trees(1)
    (25, 2)
    """
    return -(-5 * n_trees // 4)


def epoch_start(learned: int) -> int:
    """Where the epoch began in which the event after so many lies.

    >>> [epoch_start(n) for n in (0, 1, 2, 3, 63, 64, 100, 128)]
    [0, 1, 2, 2, 32, 64, 64, 128]
    """
    if learned == 0:
        return 0
    boundary = next_boundary(learned)
    return boundary // 2 if boundary <= 64 else boundary - 64


def scores_of(family: Forest, X: NDArray[np.float64]) -> NDArray[Any]:
    """What a family says of one row; its routing is kept for learning the row."""
    if family._one_votes.shape[-1] != len(family._labels):
        family._one_votes = family._new_votes(1)
    family._one_votes.fill(0)
    family._call_one(X, _OP_PREDICT, False)
    return family._mix_one()


def taking(take: Callable[..., NDArray[Any]], name: str) -> Callable[..., NDArray[Any]]:
    """The arrays of one family."""

    def of_family(key: str, dtype: Any, size: int | None = None) -> NDArray[Any]:
        return take(f"{name}.{key}", dtype, size)

    return of_family
