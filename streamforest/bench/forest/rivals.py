"""The rivals: models of River, CapyMOA and onelearn, and two rules that look at no feature.

Every rival gets its own defaults, the number of trees asked for, and its events in its own form (dicts,
CapyMOA instances, rows); making that form is not timed. Libraries are imported inside the builders.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.bench.forest.contestant import ModelSpec, OneByOne, Rows, Setting, by_dicts
from streamforest.bench.machine import java_heap_bytes
from streamforest.datasets import Label


class NoChange:
    """Answers with the label before: what a stream with long runs of one class is worth by itself."""

    def __init__(self) -> None:
        self.last: Label | None = None

    def predict_one(self, x: Any) -> Label | None:
        """The last label."""
        return self.last

    def learn_one(self, x: Any, y: Label) -> None:
        """Remember it."""
        self.last = y


class Majority:
    """Answers with the most frequent label so far, the first seen of equals."""

    def __init__(self) -> None:
        self.counts: dict[Label, int] = {}

    def predict_one(self, x: Any) -> Label | None:
        """The largest class."""
        return max(self.counts, key=self.counts.__getitem__, default=None)

    def learn_one(self, x: Any, y: Label) -> None:
        """Count it."""
        self.counts[y] = self.counts.get(y, 0) + 1


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


def _capymoa(class_name: str, size: str | None, setting: Setting) -> OneByOne:
    """A model of MOA through CapyMOA, which must be told all features and classes beforehand.

    `size` is its name for the number of trees, where it has such a number.
    """
    import capymoa.classifier
    from capymoa.core import LabeledInstance
    from capymoa.stream import Schema

    classes = setting.stream.classes
    index = {label: k for k, label in enumerate(classes)}
    columns = [f"x{i}" for i in range(len(setting.stream.features))]
    schema = Schema.from_custom(
        [*columns, "class"], "class", {"class": [f"c{k}" for k in range(len(classes))]}
    )
    make = getattr(capymoa.classifier, class_name)
    settings: dict[str, Any] = {"schema": schema}
    if "random_seed" in inspect.signature(make).parameters:  # PLASTIC draws nothing
        settings["random_seed"] = setting.seed
    if size is not None:
        settings[size] = setting.trees
    model = make(**settings)

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


_MOA: tuple[tuple[str, str, str, str | None], ...] = (
    ("capymoa-arf", "CapyMOA ARF", "AdaptiveRandomForestClassifier", "ensemble_size"),
    ("capymoa-srp", "CapyMOA SRP", "StreamingRandomPatches", "ensemble_size"),
    ("capymoa-levbag", "CapyMOA LeveragingBagging", "LeveragingBagging", "ensemble_size"),
    ("capymoa-samknn", "CapyMOA SAMkNN", "SAMkNN", None),
    ("capymoa-knn", "CapyMOA kNN", "KNN", None),
    ("capymoa-hat", "CapyMOA HoeffdingAdaptiveTree", "HoeffdingAdaptiveTree", None),
    ("capymoa-plastic", "CapyMOA PLASTIC", "PLASTIC", None),
    # with its own 100 rounds of boosting, whatever number of trees the others have
    ("capymoa-sgbt", "CapyMOA SGBT (100)", "StreamingGradientBoostedTrees", None),
)
"""Name, what the table calls it, class, and the class' name for the number of trees."""

RIVALS: tuple[ModelSpec, ...] = (
    ModelSpec(
        "no-change",
        "no change",
        lambda setting: by_dicts(NoChange(), setting.stream.features),
        has_trees=False,
        packages=(),
        baseline=True,
    ),
    ModelSpec(
        "majority",
        "majority class",
        lambda setting: by_dicts(Majority(), setting.stream.features),
        has_trees=False,
        packages=(),
        baseline=True,
    ),
    ModelSpec("river-tree", "River HoeffdingTree", _river_tree, has_trees=False),
    ModelSpec("river-arf", "River ARF", _river_arf),
    ModelSpec("river-amf", "River AMF", _river_amf),
    ModelSpec("river-amf-minmax", "River MinMaxScaler + AMF", _river_amf_scaled),
    ModelSpec("river-srp", "River SRP", _river_srp),
    *(
        ModelSpec(
            name,
            about,
            partial(_capymoa, class_name, size),
            optional=True,
            has_trees=size is not None,
            memory=java_heap_bytes,
            packages=("capymoa", "java"),
        )
        for name, about, class_name, size in _MOA
    ),
    ModelSpec(
        "onelearn-amf",
        "onelearn AMF",
        _onelearn_amf,
        optional=True,
        packages=("onelearn", "numba"),
    ),
)
