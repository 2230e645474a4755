"""The size and shape of an NCM forest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.ncm.metric_choice import METRIC_NAMES
from streamforest.forests.ncm.presets import NODES
from streamforest.kernels.ncm.layout import NODE, TARGETS
from streamforest.kernels.ncm.node_sampling import depth_of
from streamforest.kernels.ncm.row_memory import padded

if TYPE_CHECKING:
    from streamforest.forests.ncm.forest import NCMForestClassifier


def summary(forest: NCMForestClassifier) -> dict[str, Any]:
    """See `NCMForestClassifier.summary`."""
    trees = forest._trees
    nodes = [int(tree.info["n_nodes"][0]) for tree in trees]
    jobs = forest._retraining.jobs
    under_way = [job.before for job in jobs if job.before is not None]
    kinds = [METRIC_NAMES[int(tree.info["metric"][0])] for tree in trees]
    return {
        "learned": forest._n_learned,
        "classes": len(forest._labels),
        "features": len(forest._features),
        "trees": len(trees),
        "nodes": sum(nodes),
        "depth": max(depth_of(tree) for tree in trees),
        "centroids": sum(int(tree.info["n_rows"][0]) for tree in trees),
        "memory_rows": forest._memory.n,
        "memory_bytes": sum(array.nbytes for array in forest._memory.arrays),
        "tree_bytes": ncm_arrays.nbytes(trees) + ncm_arrays.nbytes(under_way),
        "total_bytes": total_bytes(forest),
        "max_bytes": max_bytes(forest),
        "trees_grown": forest._retraining.n_grown,
        "trees_under_way": len(jobs),
        "metrics": {kind: kinds.count(kind) for kind in METRIC_NAMES if kind in kinds},
        "expert_weights": forest._blend.weights(),
        "tree_error": round(float(forest.tree_errors().mean()), 4),
        "capacity": forest._features.totals(),
    }


def total_bytes(forest: NCMForestClassifier) -> int:
    """All arrays as allocated, those of trees under way included."""
    jobs = forest._retraining.jobs
    under_way = [tree for job in jobs for tree in (job.before, job.result) if tree is not None]
    parts = forest._memory, forest._means, forest._columns
    return (
        ncm_arrays.nbytes(forest._trees)
        + ncm_arrays.nbytes(under_way)
        + sum(part.nbytes for part in parts)
    )


def max_bytes(forest: NCMForestClassifier) -> int:
    """What all arrays can take at most with the features and classes there are, slack included.

    Arrays are up to twice as long as what they hold. While a tree is under way there is one more.
    """
    memory = int(forest._parameters["memory"])
    columns, classes = forest._columns.n, max(8, len(forest._labels))
    width = padded(max(1, columns) * 3 // 2)
    slots = 2 * (memory + int(forest._parameters["swap_after"]) + 2 * EPOCH)
    side = padded(max(1, min(columns, ncm_width.FULL_WIDTH)) * 3 // 2)
    whole = max(side * side, width)
    centroids = ncm_width.centroids_for(memory, forest.n_trees, columns)
    tree = 12 * slots + 2 * NODES * (memory + EPOCH) * NODE.itemsize
    tree += int(1.5 * (centroids + EPOCH) * (4 * width + 9))
    tree += 4 * 20 * memory + 4 * whole
    means = 2 * classes * (1 + TARGETS) * (4 * width + 12) + (8 + 4 * TARGETS) * whole
    return slots * (4 * width + 16) + 2 * forest.n_trees * tree + means + 1_000 * width
