"""A River pipeline as a model takes what plain River takes, gives the same answers, and can be saved."""

from __future__ import annotations

import copy
import json
import numbers
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import compose, feature_extraction, preprocessing

from streamforest import StreamForestClassifier, datasets
from streamforest.errors import FeatureError, InputError, SnapshotError
from streamforest.forests.persistence import transformers
from streamforest.forests.persistence.snapshot import decode, encode
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.adapters import wrap_model
from streamforest.runtime.processing.admission import Admission
from streamforest.runtime.processing.models import limits_of

EVENTS = 400


def mixed(n: int = EVENTS) -> list[tuple[dict[str, Any], str]]:
    """A frame as people have it: numbers, strings, a date, an id, a flag, gaps."""
    rng = np.random.default_rng(3)
    events = []
    for i in range(n):
        k = int(rng.integers(0, 3))
        x: dict[str, Any] = {
            "amount": float(rng.normal(10 * k, 4)),
            "count": int(rng.integers(0, 5)),
            "city": ("Rome", "Oslo", "Bern")[int(rng.integers(0, 3)) if i % 2 else k],
            "when": f"2024-01-{1 + i % 28:02}",
            "id": f"{i:06}",
            "new": bool(i % 3),
        }
        if i % 17 == 0:
            x["amount"] = None
        events.append((x, f"class {k}"))
    return events


def numbers_only() -> Any:
    return compose.SelectType(numbers.Number)


PIPELINES: dict[str, Callable[[], Any]] = {
    "discard": lambda: compose.Discard("id", "when"),
    "select": lambda: compose.Select("amount", "city"),
    "one-hot": lambda: compose.Discard("id", "when", "amount") | preprocessing.OneHotEncoder(),
    "scaler": lambda: numbers_only() | preprocessing.StandardScaler(),
    "min-max": lambda: compose.Select("amount", "count") | preprocessing.MinMaxScaler(),
    "both": lambda: (
        (compose.SelectType(str) | compose.Discard("id") | preprocessing.OneHotEncoder())
        + (numbers_only() | preprocessing.StandardScaler())
    ),
    "union of selections": lambda: compose.Select("city") + compose.Select("amount"),
    "hashed": lambda: compose.Discard("amount") | preprocessing.FeatureHasher(16, seed=7),
}


def forest() -> StreamForestClassifier:
    return StreamForestClassifier(n_trees=4, seed=1, nonfinite="missing", max_categories=50)


def admitted(model: Any, events: list[tuple[dict[str, Any], str]], batch: int) -> np.ndarray:
    """The model's answers to all events, none of which is refused."""
    gate = Admission(limits_of([model], 1, 1, ""))
    answers = []
    for start in range(0, len(events), batch):
        for x, y in events[start : start + batch]:
            gate.admit(x, y)
        posteriors = model.advance(gate.take()).posteriors
        answers += [np.pad(row, (0, 3 - len(row))) for row in posteriors]
    return np.array(answers)


@pytest.mark.parametrize("name", PIPELINES)
def test_no_event_of_a_mixed_frame_is_refused(name: str) -> None:
    events = mixed()
    if name == "min-max":  # River can neither select what is not there nor scale None
        events = [({**x, "amount": x["amount"] or 0.0}, y) for x, y in events]
    model = wrap_model(PIPELINES[name]() | forest())
    answers = admitted(model, events, 64)
    assert model.summary()["rows_without_features"] == 0
    again = wrap_model(PIPELINES[name]() | forest())
    assert np.array_equal(answers, admitted(again, events, 1))
    assert encode({"main": model.estimator}) == encode({"main": again.estimator})

    plain = PIPELINES[name]() | forest()  # River's own way, with gaps left out as it wants them
    for row, (x, y) in zip(answers, events):
        if name not in ("discard", "select", "union of selections"):
            x = {key: value for key, value in x.items() if value is not None}
        said = plain.predict_proba_one(x)
        assert row[: len(said)].tolist() == list(said.values())
        plain.learn_one(x, y)


@pytest.mark.parametrize("name", PIPELINES)
def test_steps_are_saved_and_go_on_alike(name: str) -> None:
    events = mixed()
    model = wrap_model(PIPELINES[name]() | forest())
    admitted(model, events[:200], 50)
    loaded = wrap_model(decode(encode({"main": model.estimator}))[0]["main"])
    assert loaded.parameters() == model.parameters()
    assert np.array_equal(admitted(loaded, events[200:], 50), admitted(model, events[200:], 50))
    assert encode({"main": loaded.estimator}) == encode({"main": model.estimator})


def test_a_step_that_cannot_take_an_event_is_named() -> None:
    for steps, x, told in (
        (
            preprocessing.StandardScaler(),
            {"city": "Rome"},
            "StandardScaler .* feature 'city' is the",
        ),
        (compose.Select("a"), {"b": 1.0}, "Select .* lacks the feature 'a'"),
        (feature_extraction.BagOfWords(on="text"), {"b": 1.0}, "BagOfWords .* lacks .*'text'"),
        (compose.Discard("a"), {"b": [1, 2]}, r"feature 'b' is \[1, 2\] \(list\)"),
        (compose.Discard("a"), {"b": float("nan")}, "nonfinite"),
    ):
        strict = StreamForestClassifier(n_trees=1, seed=0)
        gate = Admission(limits_of([wrap_model(steps | strict)], 1, 1, ""))
        before = gate.state()
        with pytest.raises(FeatureError, match=told):
            gate.admit(x, "y")
        assert gate.state() == before


def test_a_shadow_without_steps_keeps_its_own_rules() -> None:
    models = [wrap_model(compose.Discard("b") | forest()), wrap_model(forest())]
    gate = Admission(limits_of(models, 1, 1, ""))
    gate.admit({"a": 1.0, "b": 2.0}, "y")
    with pytest.raises(InputError, match="holds numbers"):
        gate.admit({"a": 1.0, "b": "text"}, "y")
    gate.admit({"a": 1.0, "b": 3.0}, "z")
    rows = gate.take()
    for model in models:
        assert model.advance(rows).posteriors.shape == (2, 2)


def test_what_the_forest_refuses_after_the_steps_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A text where numbers were: no step objects, the forest does. Its batch goes on without it."""
    events: list[tuple[dict[str, Any], str]] = [({"a": float(i)}, "x") for i in range(20)]
    events[7] = ({"a": "text"}, "y")
    answers = []
    for batch in (1, 20):
        model = wrap_model(compose.Discard("b") | forest())
        answers.append(admitted(model, events, batch))
        assert model.summary()["rows_without_features"] == 2, "one predicted, one learned"
        assert model.n_learned == 20
    assert np.array_equal(*answers, equal_nan=True)
    assert caplog.text.count("without its features") == 2


def test_texts_as_bags_of_words() -> None:
    events = list(datasets.load("texts", events=300).dicts())
    for vector in (
        feature_extraction.BagOfWords(on="text"),
        feature_extraction.BagOfWords(on="text", ngram_range=(1, 2), stop_words={"tubo", "kizu"}),
        feature_extraction.TFIDF(on="text", ngram_range=(2, 2)),
    ):
        model = wrap_model(copy.deepcopy(vector) | StreamForestClassifier(3, absent="zero", seed=1))
        admitted(model, events[:200], 64)
        loaded = wrap_model(decode(encode({"main": model.estimator}))[0]["main"])
        assert loaded.parameters() == model.parameters()
        rest = [admitted(one, events[200:], 10) for one in (model, loaded)]
        assert np.array_equal(*rest)


def test_steps_with_code_or_chance_in_them_are_not_saved() -> None:
    for step in (
        feature_extraction.BagOfWords(on="text", tokenizer=str.split),
        preprocessing.FeatureHasher(16),
        compose.SelectType(complex),
        compose.Discard("a") + preprocessing.FeatureHasher(16),
    ):
        with pytest.raises(SnapshotError):
            transformers.dump(step)
    good = transformers.dump(preprocessing.OneHotEncoder())
    with pytest.raises(SnapshotError):
        transformers.restore({**good, "state": {"values": [["a", ["x", "x"]]]}})
    nested: dict[str, Any] = good
    for _ in range(20):
        nested = {"class": "TransformerUnion", "steps": [["a", nested]]}
    with pytest.raises(SnapshotError, match="steps within steps"):
        transformers.restore(nested)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_factory_gets_what_river_gets(name: str, tmp_path: Path) -> None:
    """Through a pipeline file: its own steps see dates and texts as they came."""
    events = mixed()
    for x, _ in events:
        x["note"] = "a text of a few words"
        x["amount"] = x["amount"] or 0.0  # River's own scalers cannot take a gap
    lines = [json.dumps({"x": x, "y": y}) for x, y in events]
    (tmp_path / "e.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "beside.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_river_steps import PIPELINES, forest\n"
        f"def model():\n    return PIPELINES[{name!r}]() | forest()\n",
        encoding="utf-8",
    )
    path = tmp_path / "p.toml"
    path.write_text(
        f'[pipeline]\nname = "p"\n[source]\nfile = "{tmp_path / "e.jsonl"}"\n'
        f'[model]\nfactory = "beside:model"\n[run]\nfolder = "{tmp_path / "run"}"\n',
        encoding="utf-8",
    )
    with opened(load_pipeline(path)) as run:
        assert run.consume() == "finished"
        assert run.state.rows.summary().dead_letters == 0
        assert run.state.degraded_values()["misfit"] == 0
        model = run.state.models["main"]
    plain = PIPELINES[name]() | forest()
    for x, y in events:
        plain.learn_one(x, y)
    assert [model.estimator.predict_one(x) for x, _ in events] == [
        plain.predict_one(x) for x, _ in events
    ]
