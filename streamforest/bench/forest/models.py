"""The contestants: every forest of the registry, and the rivals, each one `register(ModelSpec(...))`.

Each is brought into one of two forms: `OneByOne` (predict, then learn, event after event) or
`Batches` (a whole array at once). Every rival gets its own defaults, the number of trees asked for,
and its events in its own form (dicts, CapyMOA instances, rows); making that form is not timed.

Libraries are imported inside the builders: the registry itself loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.bench.machine import anonymous_bytes, java_heap_bytes
from streamforest.datasets import Label, Stream
from streamforest.errors import ConfigError
from streamforest.forests.core import registry

Rows = NDArray[np.float64]

BATCH = 500
"""Rows that a batch-wise contestant is given at once."""


@dataclass(frozen=True)
class Setting:
    """What a model is built for. The stream is there for models that must know all features and
    classes beforehand; ours and River's do not look at it.
    """

    stream: Stream
    trees: int
    seed: int


@dataclass(frozen=True)
class OneByOne:
    """A model that takes one event at a time."""

    encode: Callable[[Rows, Sequence[Label]], Sequence[Any]]
    predict: Callable[[Any], Label | None]
    learn: Callable[[Any, Label], object]


@dataclass(frozen=True)
class Batches:
    """A model that predicts and learns `size` rows in one call, each row before learning it."""

    advance: Callable[[Rows, Sequence[Label]], Sequence[Label | None]]
    size: int = BATCH


Contestant = OneByOne | Batches


@dataclass(frozen=True)
class ModelSpec:
    """A contestant before it is built.

    Parameters
    ----------
    name
        What `--model` calls it.
    about
        What the table calls it.
    build
        Makes a fresh model.
    forest
        Class of this package that the model is; None for a rival.
    batches_of
        Name of the same model by dicts, for a batch-wise contestant.
    optional
        A rival that need not be installed: where it cannot be built or fails a smoke run, its row
        says why, and the benchmark has not failed.
    has_trees
        Whether the number of trees applies to it.
    memory
        Measures memory in use; what a run adds to it is the model's size.
    packages
        Packages whose versions decide what a rival answers.
    extra
        Only run when it is named: a variant of another one.
    """

    name: str
    about: str
    build: Callable[[Setting], Contestant]
    forest: str | None = None
    batches_of: str | None = None
    optional: bool = False
    has_trees: bool = True
    memory: Callable[[], int | None] = anonymous_bytes
    packages: tuple[str, ...] = ("river",)
    extra: bool = False

    @property
    def ours(self) -> bool:
        """Not a rival."""
        return self.forest is not None


_SPECS: dict[str, ModelSpec] = {}  # rivals and variants


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
        raise ConfigError(f"model {name!r} is not known; choose from: {', '.join(specs)}")
    return specs[name]


def by_dicts(model: Any, features: Sequence[str], categorical: Sequence[str] = ()) -> OneByOne:
    """Any River-style classifier; the columns named `categorical` as strings."""

    def encode(X: Rows, labels: Sequence[Label]) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = [dict(zip(features, row)) for row in X.tolist()]
        for name in categorical:
            for x in events:
                x[name] = f"{x[name]:g}"
        return events

    return OneByOne(encode, model.predict_one, model.learn_one)


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
    return {spec.name: spec for spec in ours} | _SPECS


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


def _river_tree(setting: Setting) -> OneByOne:
    from river.tree import HoeffdingTreeClassifier

    return by_dicts(HoeffdingTreeClassifier(), setting.stream.features)


def _river_arf(setting: Setting) -> OneByOne:
    from river.forest import ARFClassifier

    model = ARFClassifier(n_models=setting.trees, seed=setting.seed)
    return by_dicts(model, setting.stream.features)


def _river_amf(setting: Setting) -> OneByOne:
    from river.forest import AMFClassifier

    model = AMFClassifier(n_estimators=setting.trees, seed=setting.seed)
    return by_dicts(model, setting.stream.features)


def _river_amf_scaled(setting: Setting) -> OneByOne:
    from river.forest import AMFClassifier
    from river.preprocessing import MinMaxScaler

    model = MinMaxScaler() | AMFClassifier(n_estimators=setting.trees, seed=setting.seed)
    return by_dicts(model, setting.stream.features)


def _river_srp(setting: Setting) -> OneByOne:
    from river.ensemble import SRPClassifier

    model = SRPClassifier(n_models=setting.trees, seed=setting.seed)
    return by_dicts(model, setting.stream.features)


def _capymoa(class_name: str, setting: Setting) -> OneByOne:
    """A forest of MOA through CapyMOA, which must be told all features and classes beforehand."""
    import capymoa.classifier
    from capymoa.core import LabeledInstance
    from capymoa.stream import Schema

    classes = setting.stream.classes
    index = {label: k for k, label in enumerate(classes)}
    columns = [f"x{i}" for i in range(len(setting.stream.features))]
    schema = Schema.from_custom(
        [*columns, "class"], "class", {"class": [f"c{k}" for k in range(len(classes))]}
    )
    model = getattr(capymoa.classifier, class_name)(
        schema=schema, random_seed=setting.seed, ensemble_size=setting.trees
    )

    def encode(X: Rows, labels: Sequence[Label]) -> list[Any]:
        return [
            LabeledInstance.from_array(schema, row, index[label]) for row, label in zip(X, labels)
        ]

    def predict(instance: Any) -> Label | None:
        k = model.predict(instance)
        return None if k is None else classes[k]

    def learn(instance: Any, label: Label) -> None:
        model.train(instance)

    return OneByOne(encode, predict, learn)


def _onelearn_amf(setting: Setting) -> OneByOne:
    """onelearn's Mondrian forest; it must be told the number of classes beforehand.

    Its last version (0.3.0) looks for a warning where NumPy no longer has it; nothing else of it needs
    old packages.
    """
    import numpy.core.numeric as old_home

    if not hasattr(old_home, "ComplexWarning"):
        old_home.ComplexWarning = np.exceptions.ComplexWarning
    from onelearn import AMFClassifier

    classes = setting.stream.classes
    index = {label: k for k, label in enumerate(classes)}
    model = AMFClassifier(
        n_classes=len(classes), n_estimators=setting.trees, random_state=setting.seed
    )
    learned = False

    def encode(X: Rows, labels: Sequence[Label]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        return [
            (row[None, :].astype(np.float32), np.array([index[label]], dtype=np.float32))
            for row, label in zip(X, labels)
        ]

    def predict(event: tuple[NDArray[Any], NDArray[Any]]) -> Label | None:
        return classes[int(model.predict_proba(event[0])[0].argmax())] if learned else None

    def learn(event: tuple[NDArray[Any], NDArray[Any]], label: Label) -> None:
        nonlocal learned
        model.partial_fit(*event)
        learned = True

    return OneByOne(encode, predict, learn)


register_variant(
    "stream-still", "StreamForest without challengers", "StreamForestClassifier", drift=False
)
register_variant(
    "stream-categories",
    "StreamForest, codes as strings",
    "StreamForestClassifier",
    as_strings=True,
)
register(ModelSpec("river-tree", "River HoeffdingTree", _river_tree, has_trees=False))
register(ModelSpec("river-arf", "River ARF", _river_arf))
register(ModelSpec("river-amf", "River AMF", _river_amf))
register(ModelSpec("river-amf-minmax", "River MinMaxScaler + AMF", _river_amf_scaled))
register(ModelSpec("river-srp", "River SRP", _river_srp))
register(
    ModelSpec(
        "capymoa-arf",
        "CapyMOA ARF",
        partial(_capymoa, "AdaptiveRandomForestClassifier"),
        optional=True,
        memory=java_heap_bytes,
        packages=("capymoa", "java"),
    )
)
register(
    ModelSpec(
        "capymoa-srp",
        "CapyMOA SRP",
        partial(_capymoa, "StreamingRandomPatches"),
        optional=True,
        memory=java_heap_bytes,
        packages=("capymoa", "java"),
    )
)
register(
    ModelSpec(
        "onelearn-amf",
        "onelearn AMF",
        _onelearn_amf,
        optional=True,
        packages=("onelearn", "numba"),
    )
)
