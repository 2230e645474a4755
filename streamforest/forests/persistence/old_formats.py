"""Snapshots of earlier formats: what their arrays are called today. One way, when a file is loaded."""

from __future__ import annotations

from typing import Any

_CANDIDATE = {"flat.": "nodes."}
_NAMES: dict[str, dict[str, str]] = {
    "ConsistentForestClassifier": _CANDIDATE,
    "OnlineForestClassifier": _CANDIDATE,
    "StreamForestClassifier": {
        "flat.": "nodes.",
        "plain.": "baselines.",
        "errors": "tree.recent_errors",
        "tree.front": "tree.active",
        "tree.only_tree": "tree.only_tree_wrong",
        "tree.only_rival": "tree.only_challenger_wrong",
        "tree.rival_errors": "tree.challenger_errors",
        "tree.loss_near": "tree.loss_neighbours",
        "shared.power": "shared.vote_power",
        "shared.loss": "shared.mixture_loss",
        "shared.stats": "shared.feature_statistics",
        "shared.spread": "shared.feature_spread",
    },
    "NCMForestClassifier": {
        "leaf": "memory.leaf",
        "columns.of": "columns.of_features",
        "columns.stats": "columns.statistics",
        "means.n": "means.count",
        "means.lens": "means.shrunk_covariance",
        "shared.numbers": "shared.scalars",
        "shared.right": "shared.blend_correct",
        "shared.chosen": "shared.active_metric",
        "rounds.": "retraining.",
        "rounds.clock": "retraining.counters",
        "rounds.begun": "retraining.started",
        "jobs.": "retraining_jobs.",
        "jobs.t": "retraining_jobs.tree",
        "jobs.begun": "retraining_jobs.started",
        "node.k": "node.n_centroids",
        "row.": "centroid.",
        "row.cen": "centroid.values",
    },
}
"""Class -> name in format 1 -> name in format 2; a name that ends in a dot stands for all that begin so."""


def renamed(kind: str, name: str) -> str:
    """The present name of an array of format 1.

    >>> renamed("StreamForestClassifier", "plain.met"), renamed("NCMForestClassifier", "jobs.t")
    ('baselines.met', 'retraining_jobs.tree')
    """
    names = _NAMES.get(kind, {})
    prefix, dot, rest = name.partition(".")
    if name not in names and prefix + dot in names:
        return names[prefix + dot] + rest
    return names.get(name, name)


def upgrade(tensors: dict[str, Any], models: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a file of format 1 under their names of format 2."""
    out = {}
    for name, tensor in tensors.items():
        room, model, number, field = name.split("/", 3)
        kind = str(models[model]["steps"][int(number)]["class"])
        out[f"{room}/{model}/{number}/{renamed(kind, field)}"] = tensor
    return out
