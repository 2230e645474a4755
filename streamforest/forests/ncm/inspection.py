"""The size and shape of an NCM forest."""

from __future__ import annotations

from typing import Any

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.ncm.metric_choice import METRIC_NAMES
from streamforest.forests.ncm.presets import NODES
from streamforest.forests.ncm.retraining import Parts, RetrainScheduler
from streamforest.kernels.ncm.layout import NODE, TARGETS
from streamforest.kernels.ncm.node_sampling import depth_of
from streamforest.kernels.ncm.row_memory import padded


def summary(parts: Parts, retraining: RetrainScheduler, classes: int) -> dict[str, Any]:
    """See `NCMForestClassifier.summary`."""
    trees, jobs = parts.trees, retraining.jobs
    info = trees.info()
    under_way = [job.before for job in jobs if job.before is not None]
    kinds = [METRIC_NAMES[kind] for kind in info["metric"].tolist()]
    return {
        "trees": len(trees),
        "nodes": int(info["n_nodes"].sum()),
        "depth": max(depth_of(tree) for tree in trees),
        "centroids": int(info["n_rows"].sum()),
        "memory_rows": parts.memory.n,
        "memory_bytes": sum(array.nbytes for array in parts.memory.arrays),
        "tree_bytes": ncm_arrays.nbytes(trees) + ncm_arrays.nbytes(under_way),
        "total_bytes": total_bytes(parts, retraining),
        "max_bytes": max_bytes(parts, classes),
        "trees_grown": retraining.n_grown,
        "trees_under_way": len(jobs),
        "metrics": {kind: kinds.count(kind) for kind in METRIC_NAMES if kind in kinds},
        "expert_weights": parts.blend.weights(),
        "tree_error": round(float(info["error"].mean()), 4),
    }


def total_bytes(parts: Parts, retraining: RetrainScheduler) -> int:
    """All arrays as allocated, those of trees under way included."""
    under_way = [
        tree for job in retraining.jobs for tree in (job.before, job.result) if tree is not None
    ]
    trees = ncm_arrays.nbytes(parts.trees) + ncm_arrays.nbytes(under_way)
    return trees + parts.columns.nbytes + parts.memory.nbytes + parts.means.nbytes


def max_bytes(parts: Parts, classes: int) -> int:
    """What all arrays can take at most with the features and classes there are, slack included.

    Arrays are up to twice as long as what they hold. While a tree is under way there is one more.
    """
    n_trees, columns, rows = len(parts.trees), parts.columns.n, parts.memory.capacity
    width = padded(max(1, columns) * 3 // 2)
    slots = 2 * (rows + parts.memory.swap_after + 2 * EPOCH)
    side = padded(max(1, min(columns, ncm_width.FULL_WIDTH)) * 3 // 2)
    whole = max(side * side, width)
    centroids = ncm_width.centroids_for(rows, n_trees, columns)
    tree = 12 * slots + 2 * NODES * (rows + EPOCH) * NODE.itemsize
    tree += int(1.5 * (centroids + EPOCH) * (4 * width + 9))
    tree += 4 * 20 * rows + 4 * whole
    means = 2 * max(8, classes) * (1 + TARGETS) * (4 * width + 12) + (8 + 4 * TARGETS) * whole
    return slots * (4 * width + 16) + 2 * n_trees * tree + means + 1_000 * width
