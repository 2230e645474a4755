"""What forests say of themselves: every kind explains an answer and ranks its features."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from support.events import growing_stream

from streamforest import (
    AutoForestClassifier,
    ConsistentForestClassifier,
    NCMForestClassifier,
    OnlineForestClassifier,
    StreamForestClassifier,
)
from streamforest.errors import ParameterError
from streamforest.forests.core import registry
from streamforest.forests.core.explanation import NOTHING_LEARNED
from streamforest.forests.ncm import explaining
from streamforest.forests.persistence.snapshot import encode
from streamforest.kernels.candidate.layout import descend
from streamforest.kernels.ncm.advance import LEAF

KINDS = [forest.load() for forest in registry.entries()]


def _learned(kind: Any, events: int = 900, **params: Any) -> tuple[Any, list[Any], list[Any]]:
    xs, ys = growing_stream(events)
    model = kind(n_trees=4, seed=1, **params)
    model.advance(xs, ys)
    return model, xs, ys


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_forest_explains_an_answer(kind: Any) -> None:
    fresh = kind(n_trees=2, seed=1)
    assert fresh.debug_one({"a": 1.0}) == NOTHING_LEARNED
    assert fresh.feature_importances() == {}
    model, xs, _ = _learned(kind)
    before = encode({"main": model})
    for x in (*xs[::300], {}, {"never seen": "x"}):
        found = model.explain_one(x)
        posterior = model.predict_proba_one(x)
        assert found.answer[0][0] == model.predict_one(x)
        assert found.answer[0][1] == pytest.approx(max(posterior.values()), abs=1e-6)
        assert sum(expert.share for expert in found.experts) == pytest.approx(1, abs=1e-6)
        text = found.text()
        assert text == model.debug_one(x)
        assert "tree " in text
        assert "leaf " in text
        assert json.loads(json.dumps(found.jsonable()))["forest"] == found.forest
    assert encode({"main": model}) == before
    with pytest.raises(ParameterError, match="tree=99: use 0 to 3"):
        model.debug_one(xs[0], tree=99)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_question_in_between_changes_nothing_that_is_learned(kind: Any) -> None:
    xs, ys = growing_stream(300)
    asked, alone = kind(n_trees=2, seed=1), kind(n_trees=2, seed=1)
    for i, (x, y) in enumerate(zip(xs, ys)):
        for model in (asked, alone):
            model.predict_one(x)
        asked.debug_one(xs[i // 2])
        for model in (asked, alone):
            model.learn_one(x, y)
    assert encode({"main": asked}) == encode({"main": alone})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_forest_ranks_its_features(kind: Any) -> None:
    rng = np.random.default_rng(0)
    model = kind(n_trees=4, seed=1)
    y = rng.integers(0, 3, 2_000)
    rows = [
        {"clear": k + 0.3 * float(rng.normal()), "noise": float(rng.normal()), "tag": "abc"[k]}
        for k in y.tolist()
    ]
    model.advance(rows, y.tolist())
    found = model.feature_importances()
    assert list(found) == ["clear", "noise", "tag"]
    assert sum(found.values()) == pytest.approx(1)
    assert found["noise"] < 0.2 < found["clear"] + found["tag"]
    assert found["noise"] < min(found["clear"], found["tag"])
    with pytest.raises(ParameterError, match="expert='magic': use None or one of "):
        model.feature_importances("magic")


@pytest.mark.parametrize("kind", [ConsistentForestClassifier, OnlineForestClassifier])
def test_the_path_ends_in_the_leaf_of_the_kernel(kind: Any) -> None:
    model, xs, _ = _learned(kind, 1_500)
    rows, _ = model._encode(xs, np.zeros(len(xs), np.bool_))
    sides = set()
    for x, row in zip(xs[::50], rows[::50]):
        for t in range(4):
            path = model.explain_one(x, t).tree
            leaf = descend(model._trees, t, row)
            assert path.leaf[0].startswith(f"leaf {leaf}, ")
            assert len(path.path) == model._trees.node["depth"][t, leaf]
            sides |= {re.sub(r".*: ", "", step) for step in path.path}
    assert sides == {"left", "right"}


@pytest.mark.parametrize("split", ["ncm", "svm"])
def test_the_path_of_an_ncm_tree_ends_in_the_leaf_of_the_kernel(split: str) -> None:
    model, xs, _ = _learned(NCMForestClassifier, 1_500, split=split)
    rows, _ = model._encode(xs, np.zeros(len(xs), np.bool_))
    steps = 0
    for x, row in zip(xs[::50], rows[::50]):
        explaining._ask(model, 0, 4, row[None, :])
        leaves = model._routes[:, LEAF].tolist()
        for t in range(4):
            path = model.explain_one(x, t).tree
            steps += len(path.path)
            assert path.leaf[0].startswith(f"leaf {leaves[t]}, ")
    assert steps > 100


def test_the_class_means_are_ranked_as_the_kernel_ranks_them() -> None:
    model, xs, _ = _learned(NCMForestClassifier, 1_500)
    for x in xs[::50]:
        means = next(e for e in model.explain_one(x).experts if e.name == "means")
        nearest = means.because[0].removeprefix("nearest class means: ").split(" at ")[0]
        assert nearest == repr(means.answer[0][0])


def test_a_blend_explains_each_of_its_families() -> None:
    model, xs, _ = _learned(AutoForestClassifier)
    found = model.explain_one(xs[3])
    assert [expert.name for expert in found.experts] == ["stream", "ncm", "recent"]
    assert [part.forest.split(":")[0] for part in found.parts] == ["stream", "ncm"]
    assert {"trees", "naive Bayes", "linear", "class means"} == {*model._importances()}


@pytest.mark.parametrize("kind", [NCMForestClassifier, StreamForestClassifier])
def test_with_coarse_labels_the_answer_is_that_of_the_forest_and_its_categories(kind: Any) -> None:
    rng = np.random.default_rng(0)
    model = kind(n_trees=3, seed=1)
    for i in range(400):
        y = int(rng.integers(0, 4))
        x = {"a": y + 0.3 * float(rng.normal()), "b": float(rng.normal())}
        model.learn_one(x, f"f{y}" if i % 2 else None, coarse=f"c{y // 2}")
    for a in np.linspace(-1, 4, 11).tolist():
        found = model.explain_one({"a": a, "b": 0.0})
        posterior = model.predict_proba_one({"a": a, "b": 0.0})
        assert found.forest.endswith("and its categories")
        assert found.answer[0][1] == pytest.approx(max(posterior.values()), abs=1e-6)
        assert found.answer[0][0] == max(posterior, key=lambda label: posterior[label])


def test_names_of_strangers_are_escaped() -> None:
    model = StreamForestClassifier(n_trees=1, seed=1)
    for i in range(200):
        model.learn_one({"a\x1b[31m": float(i % 2)}, "b\n\x07" if i % 2 else "c")
    text = model.debug_one({"a\x1b[31m": 1.0})
    assert "\x1b" not in text
    assert "\x07" not in text
