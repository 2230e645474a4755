"""A forest inside a River pipeline: scaled features in, progressive validation out.

python pipelines/river_scaler.py

`river.toml` names `model` as its factory: the same pipeline as the model of `streamforest run`.
"""

from __future__ import annotations

from river import compose, datasets, evaluate, metrics, preprocessing

from streamforest import ConsistentForestClassifier


def model() -> compose.Pipeline:
    """A new pipeline; every step is one that a snapshot can hold."""
    return preprocessing.StandardScaler() | ConsistentForestClassifier(n_trees=20, seed=1)


def main() -> None:
    """Score the pipeline on River's image segments, each event predicted before it is learned."""
    evaluate.progressive_val_score(
        datasets.ImageSegments(), model(), metrics.Accuracy(), print_every=500
    )


if __name__ == "__main__":
    main()
