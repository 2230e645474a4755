"""The factory that `river.toml` names: scaled features in, a forest at the end."""

from __future__ import annotations

from river import compose, preprocessing

from streamforest import ConsistentForestClassifier


def model() -> compose.Pipeline:
    """A new pipeline; every step must be one that a snapshot can hold."""
    return preprocessing.StandardScaler() | ConsistentForestClassifier(n_trees=20, seed=1)
