"""An NCM forest as the arrays of a snapshot: those of its parts, and its trees.

What follows from the rest is left out: histograms and chains from the leaf of each row, the places of
centroids from the order of the nodes. Trees of jobs are stored finished, after the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.features import FeatureTable
from streamforest.forests.core.serialization import demand
from streamforest.forests.ncm.column_scales import Take
from streamforest.forests.ncm.retraining import Parts, RetrainScheduler
from streamforest.forests.ncm.row_memory import memory_seed
from streamforest.forests.ncm.tree_state import dump_trees, restore_trees
from streamforest.kernels.ncm.layout import TARGETS


def dump(parts: Parts, retraining: RetrainScheduler, classes: int) -> dict[str, NDArray[Any]]:
    """The arrays of a snapshot of a forest with so many classes."""
    columns, memory, means, blend, _ = parts
    arrays = {
        **memory.dump(columns.n),
        **columns.dump(),
        **means.dump(classes, columns),
        # numbers of three parts, which stand in one array
        "shared.scalars": np.array([means.shrunk_weight, retraining.credit, *blend.scalars()]),
        **blend.dump(),
        **retraining.dump(),
        **dump_trees(parts, retraining.jobs),
    }
    return {name: np.ascontiguousarray(array).ravel() for name, array in arrays.items()}


def restore(
    parts: Parts,
    retraining: RetrainScheduler,
    take: Take,
    features: FeatureTable,
    classes: int,
    learned: int,
) -> None:
    """The state that `dump` described; `take(name, dtype, size)` gives an array or refuses it."""
    columns, memory, means, blend, trees = parts
    columns.restore(take, features, learned)
    memory.restore(take, columns.n, classes, learned)
    means.restore(take, columns, classes, learned)
    trees.bound_centroids(columns.counting)
    scalars = take("shared.scalars", np.float64, 4 + TARGETS)
    demand(np.isfinite(scalars) & (scalars >= 0), "shared.scalars")
    means.shrunk_weight = float(scalars[0])
    blend.restore(take, scalars[2:])
    retraining.restore(take, float(scalars[1]), classes, learned)
    restore_trees(take, parts, retraining.jobs, classes, learned)
    # a forest without a seed parameter has drawn its own, and goes on with it
    memory.seed = retraining.metrics.seed = memory_seed(trees.info()["seed"][0])
