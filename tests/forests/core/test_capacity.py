"""Beyond its bounds a table goes on: later categories are one, ids count as missing, names are left out."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support import contract

import streamforest
from streamforest import StreamForestClassifier
from streamforest.errors import CapacityError, FeatureError, SnapshotError
from streamforest.forests.core.features import UNSEEN, FeatureTable
from streamforest.forests.core.sparsity import LOOKED_AT, sparse_advice
from streamforest.forests.persistence.snapshot import decode, encode
from streamforest.runtime.processing.admission import Admission
from streamforest.runtime.processing.limits import Limits


def table(**options: Any) -> FeatureTable:
    return FeatureTable(**{"max_features": 9, "max_categories": 3, "nonfinite": "error", **options})


def learn(columns: FeatureTable, values: list[Any], name: str = "a") -> list[float]:
    return [columns.row({name: value}, learn=True)[0] for value in values]


def test_later_categories_share_one_code() -> None:
    columns = table()
    assert learn(columns, list("xxxxxyz")) == [0, 0, 0, 0, 0, 1, 2]
    assert columns.row({"a": "new"}, learn=False)[0] == UNSEEN
    assert learn(columns, ["p", "q", "x", "p"]) == [3, 3, 0, 3]
    assert columns.row({"a": "never learned"}, learn=False)[0] == 3
    assert columns.capacity() == {"other": {"a": 3}, "dropped": {}, "left_out": 0}
    assert columns.n_codes(0) == 4
    assert len(columns.notices) == 1
    assert "feature 'a' has more categories than the 3" in columns.notices[0]


def test_a_column_of_ids_counts_as_missing_for_ever() -> None:
    columns = table()
    assert learn(columns, list("xyz")) == [0, 1, 2]
    assert all(map(math.isnan, learn(columns, ["p", "x", "q"])))
    assert math.isnan(columns.row({"a": "x"}, learn=False)[0])
    assert columns.capacity() == {"other": {}, "dropped": {"a": 3}, "left_out": 0}
    assert "counts as missing" in columns.notices[0]


@pytest.mark.parametrize(("rows", "dropped"), [(7, True), (8, False)])
def test_over_half_of_the_rows_must_have_brought_a_new_value(rows: int, dropped: bool) -> None:
    columns = table()
    learn(columns, ["x"] * (rows - 3) + ["y", "z", "no room"])  # four values in so many rows
    assert bool(columns.capacity()["dropped"]) is dropped


def test_rows_that_are_only_predicted_decide_nothing() -> None:
    columns = table()
    learn(columns, list("xyz"))
    before = columns.state()
    for value in "pqrstuv":
        columns.row({"a": value, f"new {value}": 1.0}, learn=False)
    assert columns.state() == before


def test_features_beyond_the_bound_are_left_out_and_counted() -> None:
    columns = table(max_features=3)
    row = columns.row({"d": 4.0, "b": 2.0, "a": 1.0, "c": 3.0}, learn=True)
    assert columns.names == ["a", "b", "c"]
    assert row.tolist() == [1, 2, 3]
    assert columns.row({"a": 1.0, "z": 9.0}, learn=True)[0] == 1
    columns.matrix(np.ones((5, 2)), ["a", "y"], np.array([True, True, True, False, True]))
    assert columns.left_out == 1 + 1 + 4
    assert len(columns.notices) == 1
    assert "feature 'd'" in columns.notices[0]
    with pytest.raises(FeatureError, match="z"):
        columns.row({"z": object()}, learn=True)


def test_the_bytes_of_texts_close_a_column_and_the_names() -> None:
    columns = table(max_bytes=800, max_categories=99)
    learn(columns, ["x", "x", "x", "x", "y", "long " * 70, "z"])
    assert columns.capacity()["other"] == {"a": 2}, "once closed, a short one has no room either"
    assert "max_text_bytes=800" in columns.notices[0]
    columns.row({"n" * 300: 1.0, "b": 1.0}, learn=True)
    assert columns.names == ["a", "b"]
    columns.row({"c": 1.0}, learn=True)
    assert (columns.names, columns.left_out) == (["a", "b"], 2)


def test_a_refused_input_takes_every_count_back() -> None:
    columns = table(max_features=3)
    learn(columns, list("xxxxxxyz"))
    before = columns.state()
    columns.begin()
    with pytest.raises(FeatureError):
        columns.rows(
            [{"a": "new", "b": 1.0, "c": 1.0, "d": 1.0}, {"a": "x"}, {"b": "text"}], [True] * 3
        )
    columns.rollback()
    assert columns.state() == before
    assert columns.notices == []
    assert columns.categorical.tolist() == [1]


@pytest.mark.parametrize("broken", ["seen", "full", "closed", "left_out"])
def test_a_damaged_count_is_refused(broken: str) -> None:
    model = StreamForestClassifier(n_trees=1, seed=0, max_categories=2)
    for value in "xxxxxyz":
        model.learn_one({"a": value}, "y")
    meta, _ = streamforest.forests.core.serialization.dump(model)
    state = meta["features"]
    state["capacity"][broken] = {
        "seen": [-1],
        "full": [[5, 1, 1]],
        "closed": "yes",
        "left_out": 1.5,
    }[broken]
    with pytest.raises(FeatureError, match="no room for is damaged"):
        table().restore(state)
    with pytest.raises(SnapshotError):
        Admission.from_state(Limits(), {"labels": [], "waiting": [], **state})


def test_an_older_snapshot_has_no_counts_and_drops_no_column() -> None:
    columns = table()
    learn(columns, list("xyz"))
    state = columns.state()
    del state["capacity"]
    again = table()
    again.restore(state)
    assert learn(again, ["p"]) == [3.0]


def test_admission_counts_and_tells_once(caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(max_categories=5, max_features=4)
    gate = Admission(limits)
    with caplog.at_level(logging.WARNING):
        for i in range(40):
            gate.admit({"id": f"{i}", "a": 1.0, "b": 2.0, "c": 3.0}, "y")
            gate.admit({"d": 1.0}, "y")
            if i % 7 == 0:
                gate.take()
                gate = Admission.from_state(limits, gate.state())
    assert gate.capacity() == {
        "other": {},
        "dropped": {"id": 35},
        "left_out": 40,
    }
    assert len(caplog.records) == 2
    strict = Admission(Limits(max_categories=5, on_capacity="error"))
    for i in range(5):
        strict.admit({"id": f"{i}"}, "y")
    with pytest.raises(CapacityError):
        strict.admit({"id": "6"}, "y")
    assert strict.limits.rules != limits.rules


def test_class_means_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = streamforest.NCMForestClassifier
    monkeypatch.setattr(kind, "max_means", 24)
    model, one = kind(n_trees=1, seed=0), kind(n_trees=1, seed=0)
    gate = Admission(Limits(max_means=24))
    taken: list[bool] = []
    events: list[tuple[dict[str, Any], str]] = [({"a": 1.0, "c": "x"}, y) for y in "pqrs"]
    events += [({"b": 1.0}, "p"), ({"a": 2.0}, "q")]
    for x, y in events:
        try:
            one.learn_one(x, y)
            taken.append(True)
        except CapacityError:
            taken.append(False)
            with pytest.raises(CapacityError, match="class means"):
                gate.admit(x, y)
            with pytest.raises(CapacityError, match="class means"):
                model.advance([x], [y])
            continue
        gate.admit(x, y)
        model.advance([x], [y])
    assert taken == [True, True, False, False, True, True], "two classes of nine columns, or ten"
    assert encode({"main": model}) == encode({"main": one})


def test_a_forest_logs_once_a_column(caplog: pytest.LogCaptureFixture) -> None:
    model = StreamForestClassifier(n_trees=1, seed=0, max_categories=4)
    with caplog.at_level(logging.WARNING):
        for i in range(20):
            model.learn_one({"id": f"{i}", "of": f"{i % 2}"}, i % 2)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'id'" in caplog.text


def test_nan_in_a_frame_is_missing_and_infinity_is_not() -> None:
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": [1.0, 2.0, 3.0], "c": ["x", None, "y"]})
    for columns in (["a", "b"], ["a", "b", "c"]):
        by_frame, by_dicts = (StreamForestClassifier(n_trees=2, seed=0) for _ in range(2))
        by_frame.learn_many(frame[columns], pd.Series([0, 1, 0]))
        for x, y in zip(frame[columns].to_dict("records"), [0, 1, 0]):
            by_dicts.learn_one(
                {k: None if isinstance(v, float) and v != v else v for k, v in x.items()}, y
            )
        assert encode({"main": by_frame}) == encode({"main": by_dicts})
    with pytest.raises(FeatureError, match="row 1: feature 'a' is inf"):
        by_frame.learn_many(frame[["b"]].assign(a=[1.0, np.inf, 1.0]), pd.Series([0, 1, 0]))
    with pytest.raises(FeatureError, match="nan"):
        by_dicts.learn_one({"a": math.nan}, 0)


def test_frames_and_arrays_with_absent_zero() -> None:
    frame = pd.DataFrame({"b": [1.0, np.nan, 3.0], "a": [np.nan, 2.0, 0.0]})
    by_frame, by_dicts, by_rows = (
        StreamForestClassifier(n_trees=2, seed=0, absent="zero") for _ in range(3)
    )
    by_frame.learn_many(frame, pd.Series([0, 1, 0]))
    by_frame.learn_many(frame[["b"]].fillna(5.0), pd.Series([0, 1, 0]))
    for part in (frame, frame[["b"]].fillna(5.0)):
        for i, y in enumerate([0, 1, 0]):
            by_rows.learn_many(part.iloc[i : i + 1], pd.Series([y]))
            x = {k: None if v != v else v for k, v in part.iloc[i].to_dict().items()}
            by_dicts.learn_one(x, y)
    assert encode({"main": by_frame}) == encode({"main": by_dicts}) == encode({"main": by_rows})
    assert by_frame._features.names == ["b", "a"], "a column begins with its first value"


def test_sparse_rows_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    xs, ys = contract.word_counts(LOOKED_AT + 10)
    assert "absent" in (sparse_advice(xs) or "")
    assert sparse_advice([{"a": 1.0, "b": None}] * 300) is None
    for absent, told in (("missing", 1), ("zero", 0)):
        caplog.clear()
        model = StreamForestClassifier(n_trees=1, seed=0, absent=absent)
        with caplog.at_level(logging.WARNING):
            model.advance(xs, ys)
        assert caplog.text.count('set absent="zero"') == told


def test_tuples_may_be_names_of_a_frame_too() -> None:
    model = StreamForestClassifier(n_trees=2, seed=0, absent="zero")
    model.learn_one({("new", "york"): 1, ("new", 7): 2, "new": 3}, "a")
    model.learn_one({"new": 3}, "b")
    assert model._features.names == ["new", ("new", 7), ("new", "york")]
    again = decode(encode({"main": model}))[0]["main"]
    assert again._features.names == model._features.names
    gate = Admission(Limits())
    for _ in range(2):
        gate.admit({("new", "york"): 1, "new": 3}, "a")
        rows = gate.take()
        model.advance(rows.table, rows.y, rows.op)
    assert model._features.names == again._features.names
    with pytest.raises(FeatureError, match="tuple"):
        model.learn_one({("a", None): 1}, "a")
