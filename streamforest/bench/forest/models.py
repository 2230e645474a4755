"""The contestants: every forest of the registry, variants of ours, and the rivals.

Libraries are imported inside the builders: this table itself loads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamforest.bench.forest.contestant import Batches, ModelSpec, Rows, by_dicts
from streamforest.bench.forest.rivals import RIVALS
from streamforest.datasets import Label
from streamforest.errors import ConfigError
from streamforest.forests.core import registry
from streamforest.text import nearest

_SPECS: dict[str, ModelSpec] = {}  # variants of ours, and what others register


def register(spec: ModelSpec) -> None:
    """Make a contestant known by its name."""
    if spec.name in _all_specs():
        raise ConfigError(f"a model called {spec.name!r} is registered already; rename one")
    _SPECS[spec.name] = spec


def names(extra: bool = False) -> list[str]:
    """Who is run when nobody is named, in the order of the table; or the variants beyond them.

    >>> "river-arf" in names(), "stream-still" in names(), "stream-still" in names(extra=True)
    (True, False, True)
    """
    return [name for name, spec in _all_specs().items() if spec.extra == extra]


def get_spec(name: str) -> ModelSpec:
    """The entry for a name; an unknown name is refused with the list of known ones."""
    specs = _all_specs()
    if name not in specs:
        raise ConfigError(f"model {name!r} is not known; {nearest(name, list(specs))}")
    return specs[name]


def by_batches(model: Any, features: Sequence[str]) -> Batches:
    """One of our forests through `advance`, with the label of each row's largest posterior.

    Columns in the order of their names, as they come from dicts: the same forest to the last bit.
    """
    columns = np.argsort(np.array(features))

    def advance(X: Rows, labels: Sequence[Label]) -> list[Label | None]:
        posteriors = model.advance(X[:, columns], labels)
        if posteriors.shape[1] == 0:
            return [None] * len(X)
        best = posteriors.argmax(axis=1)
        known = posteriors[np.arange(len(X)), best] > 0
        classes = list(model.classes_)
        return [classes[k] if ok else None for k, ok in zip(best.tolist(), known.tolist())]

    return Batches(advance)


def our_forest(class_name: str, trees: int, seed: int, **params: Any) -> Any:
    """One of this package's classifiers by the name of its class."""
    import streamforest

    return getattr(streamforest, class_name)(n_trees=trees, seed=seed, n_jobs=1, **params)


def _all_specs() -> dict[str, ModelSpec]:
    """All contestants, the forests of the registry first."""
    ours = [
        spec for forest in registry.entries() if forest.in_benchmark for spec in _our_specs(forest)
    ]
    return {spec.name: spec for spec in (*ours, *_SPECS.values(), *RIVALS)}


def _our_specs(forest: registry.Entry) -> list[ModelSpec]:
    """One of our classifiers twice: by dicts and by batches."""
    class_name = forest.class_name
    about = class_name.removesuffix("Classifier")
    return [
        ModelSpec(
            forest.kind,
            f"{about}, dicts",
            lambda setting: by_dicts(
                our_forest(class_name, setting.trees, setting.seed), setting.stream.features
            ),
            forest=class_name,
        ),
        ModelSpec(
            f"{forest.kind}-batch",
            f"{about}, batches",
            lambda setting: by_batches(
                our_forest(class_name, setting.trees, setting.seed), setting.stream.features
            ),
            forest=class_name,
            batches_of=forest.kind,
        ),
    ]


def register_variant(
    name: str, about: str, class_name: str, as_strings: bool = False, **params: Any
) -> None:
    """Enter one of our classifiers with other parameters, or with categories as strings."""
    register(
        ModelSpec(
            name,
            about,
            lambda setting: by_dicts(
                our_forest(class_name, setting.trees, setting.seed, **params),
                setting.stream.features,
                setting.stream.categorical if as_strings else (),
            ),
            forest=class_name,
            extra=True,
        )
    )


register_variant(
    "stream-still", "StreamForest without challengers", "StreamForestClassifier", drift=False
)
register_variant(
    "stream-categories",
    "StreamForest, codes as strings",
    "StreamForestClassifier",
    as_strings=True,
)
