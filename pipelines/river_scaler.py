"""A forest inside a River pipeline: scaled features in, progressive validation out.

python pipelines/river_scaler.py
"""

from __future__ import annotations

from river import datasets, evaluate, metrics, preprocessing

from streamforest import ConsistentForestClassifier


def main() -> None:
    """Score the pipeline on River's image segments, each event predicted before it is learned."""
    model = preprocessing.StandardScaler() | ConsistentForestClassifier(n_trees=20, seed=1)
    evaluate.progressive_val_score(
        datasets.ImageSegments(), model, metrics.Accuracy(), print_every=500
    )


if __name__ == "__main__":
    main()
