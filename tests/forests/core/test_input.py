"""Input as it comes: labels, features, missing values, categories, bounds, and what is refused."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamforest import LEARN, ConsistentForestClassifier, OnlineForestClassifier
from streamforest.errors import (
    CapacityError,
    ConsistencyWarning,
    FeatureError,
    InputError,
    LabelError,
    ParameterError,
    StreamForestError,
)
from streamforest.forests.persistence.snapshot import encode


def forest(**params: Any) -> ConsistentForestClassifier:
    return ConsistentForestClassifier(**{"n_trees": 3, "seed": 1, **params})


# ---- labels


def test_labels_keep_their_type_and_order() -> None:
    model = forest()
    for label in ["b", 3, "3", True, "b", 3, -2.5]:
        model.learn_one({"a": 1.0}, label)
    assert model.classes_ == ["b", 3, "3", True, -2.5]
    assert [type(label) for label in model.classes_] == [str, int, str, bool, float]
    assert set(model.predict_proba_one({"a": 1.0})) == {"b", 3, "3", True, -2.5}


def test_numpy_labels_are_plain_values() -> None:
    model = forest()
    model.learn_one({"a": 1.0}, np.int64(1))
    model.learn_one({"a": 1.0}, 1)
    model.learn_one({"a": 1.0}, np.str_("x"))
    assert model.classes_ == [1, "x"]
    assert [type(label) for label in model.classes_] == [int, str]


@pytest.mark.parametrize(("first", "second"), [(1, True), (True, 1), (1, 1.0), (0.0, False)])
def test_equal_labels_of_another_type_are_refused(first: Any, second: Any) -> None:
    model = forest()
    model.learn_one({"a": 1.0}, first)
    with pytest.raises(LabelError, match="equals the known class"):
        model.learn_one({"a": 1.0}, second)
    with pytest.raises(LabelError, match="row 1"):
        model.advance([{"a": 1.0}] * 2, [first, second])
    assert model.n_learned == 1


@pytest.mark.parametrize("label", [None, math.nan, math.inf, (1, 2), [1], b"x", object()])
def test_what_cannot_be_a_label(label: Any) -> None:
    model = forest()
    before = encode({"main": model})
    with pytest.raises(LabelError):
        model.learn_one({"new": 1.0}, label)
    assert encode({"main": model}) == before


# ---- features


def test_the_order_of_keys_never_matters() -> None:
    rng = np.random.default_rng(0)
    plain, shuffled = forest(), forest()
    for _ in range(500):
        x = {name: float(rng.normal()) for name in ("b", "a", 3, 10, "c")}
        y = int(x["a"] > 0)
        plain.learn_one(x, y)
        items = list(x.items())
        rng.shuffle(items)  # type: ignore[arg-type]
        mixed = {
            (k if isinstance(k, str) and not k.isdigit() else int(k)): float(v) for k, v in items
        }
        assert shuffled.predict_proba_one(mixed) == shuffled.predict_proba_one(x)
        shuffled.learn_one(mixed, y)
    assert encode({"main": plain}) == encode({"main": shuffled})
    assert plain._features.names == [3, 10, "a", "b", "c"]  # by type name, then value


def test_numbers_of_every_kind() -> None:
    kinds = [2, 2.0, np.float32(2), np.int8(2), Decimal(2), Fraction(4, 2), np.array(2.0)]
    answers = []
    model = forest()
    for k in range(300):
        model.learn_one({"a": float(k % 4), "b": True}, k % 4)
    for value in kinds:
        answers.append(model.predict_proba_one({"a": value, "b": np.bool_(True)}))
        model.learn_one({"a": value, "b": 1}, 2)
        model = forest()
        for k in range(300):
            model.learn_one({"a": float(k % 4), "b": True}, k % 4)
    assert all(answer == answers[0] for answer in answers)


def test_none_absent_and_nan_under_the_option_are_all_missing() -> None:
    rng = np.random.default_rng(1)
    models = [forest(nonfinite="missing") for _ in range(4)]
    for k in range(600):
        x = {"a": float(rng.normal(k % 3)), "b": float(rng.normal(-(k % 3)))}
        lacking = k > 0 and rng.random() < 0.3
        for model, missing in zip(models, (..., None, math.nan, -math.inf)):
            event: dict[str, Any] = dict(x)
            if lacking:
                if missing is ...:
                    del event["a"]
                else:
                    event["a"] = missing
            model.learn_one(event, k % 3)
    first = encode({"main": models[0]})
    assert all(encode({"main": model}) == first for model in models)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_nonfinite_numbers_are_refused_when_learning(value: float) -> None:
    model = forest()
    model.learn_one({"a": 1.0, "b": 2.0}, "y")
    before = encode({"main": model})
    with pytest.raises(FeatureError, match=r"feature 'b' is .*nonfinite"):
        model.learn_one({"a": 1.0, "b": value, "new": 1.0}, "z")
    with pytest.raises(FeatureError, match="row 1: feature 1 is"):
        forest().advance(np.array([[0.0, 1.0], [0.0, value]]), ["y", "y"])
    assert encode({"main": model}) == before
    # an event that is only predicted is answered, the value counting as missing
    assert model.predict_proba_one({"a": 1.0, "b": value}) == model.predict_proba_one({"a": 1.0})


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), b"3", 1j, np.zeros(3), 10**400])
def test_values_that_are_no_numbers(value: Any) -> None:
    model = forest()
    with pytest.raises(FeatureError, match="feature 'a' has the value"):
        model.learn_one({"a": value}, 1)
    assert model.n_learned == 0
    assert model._features.names == []


@pytest.mark.parametrize("name", [None, (1, None), ((1, 2), 3), (), b"x", math.nan])
def test_names_that_cannot_be_kept(name: Any) -> None:
    with pytest.raises(FeatureError, match="feature name"):
        forest().learn_one({name: 1.0}, 1)


def test_events_that_are_no_dicts() -> None:
    with pytest.raises(FeatureError, match="must be a dict"):
        forest().learn_one([1.0, 2.0], 1)  # type: ignore[arg-type]
    with pytest.raises(FeatureError, match="2-D array"):
        forest().advance(np.zeros(3), [1, 2, 3])
    with pytest.raises(FeatureError, match="2-D array"):
        forest().advance(7, [1])  # type: ignore[arg-type]
    with pytest.raises(FeatureError, match="row 1: an event must be a dict"):
        forest().advance([{"a": 1.0}, 5], [1, 2])  # type: ignore[list-item]


def test_arrays_that_need_a_word() -> None:
    with pytest.raises(LabelError, match="y is a int"):
        forest().advance(np.zeros((2, 1)), 5)  # type: ignore[arg-type]
    with pytest.raises(LabelError, match="cannot name a class"):
        forest().advance(np.zeros((2, 1)), [np.zeros(2), 1])
    with pytest.raises(InputError, match="op must hold"):
        forest().advance(np.zeros((2, 1)), [1, 1], [[1], [1, 2]])  # type: ignore[list-item]
    known = forest()
    known.learn_one({"a": 1.0}, "x")
    for events, op in (([{"a": 1.0}], [1.0]), (({"a": 1.0},), [1.0]), ([{"a": 1.0}], np.ones(1))):
        with pytest.raises(InputError, match="op must hold"):
            known.advance(events, None, op)  # type: ignore[arg-type]
    with pytest.raises(FeatureError, match="masked"):
        forest().advance(np.ma.masked_array(np.zeros((2, 1)), [[True], [False]]), [1, 1])
    with pytest.raises(FeatureError, match="row 0: feature 0 is inf"):
        forest().advance(np.array([[np.longdouble("1e4000")]]), [1])
    assert forest().predict_many([{"a": 1.0}]).tolist() == [None]  # type: ignore[arg-type]


def test_numbers_too_large_for_a_float_are_refused_even_if_they_cancel() -> None:
    model = forest()
    model.learn_one({"a": 1.0, "b": 1.0}, 1)
    with pytest.raises(FeatureError, match="feature 'a' is inf"):
        model.learn_one({"a": Decimal("1e400"), "b": Decimal("-1e400")}, 1)


def test_a_column_without_values_is_not_yet_a_number() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [np.nan, np.nan]})
    by_frame, by_dicts = forest(nonfinite="missing"), forest(nonfinite="missing")
    by_frame.learn_many(frame, pd.Series([0, 1]))
    for a, y in ((1.0, 0), (2.0, 1)):
        by_dicts.learn_one({"a": a, "b": None}, y)
    for model in (by_frame, by_dicts):
        model.learn_one({"a": 1.0, "b": "a word"}, 1)
    assert encode({"main": by_frame}) == encode({"main": by_dicts})


def test_an_event_without_features() -> None:
    model = forest()
    for _ in range(50):
        model.learn_one({}, "x")
        model.learn_one({}, "y")
    assert sum(model.predict_proba_one({}).values()) == pytest.approx(1.0)
    for k in range(400):
        model.learn_one({"a": float(k % 2)}, "xy"[k % 2])
    assert model.predict_one({"a": 0.0}) == "x"
    assert model.predict_one({"a": 1.0}) == "y"


def test_features_may_come_and_go() -> None:
    rng = np.random.default_rng(2)
    model = forest(n_trees=10)
    right = 0
    for k in range(4_000):
        y = k % 2
        name = "old" if k < 2_000 else "new"
        x = {name: float(rng.normal(4.0 * y))}
        right += k > 3_000 and model.predict_one(x) == y
        model.learn_one(x, y)
    assert right > 900


# ---- categories


def test_strings_are_categories_without_order() -> None:
    rng = np.random.default_rng(3)
    words = [f"w{k:02d}" for k in range(16)]
    secret = {word: int(rng.integers(0, 2)) for word in words}
    model = forest(n_trees=10)
    right = 0
    for k in range(4_000):
        word = words[int(rng.integers(0, 16))]
        x = {"word": word, "noise": float(rng.normal())}
        right += k > 3_000 and model.predict_one(x) == secret[word]
        model.learn_one(x, secret[word])
    assert right > 970
    assert model.predict_one({"word": "never seen", "noise": 0.0}) in (0, 1)


def test_strings_and_numbers_do_not_mix_unseen() -> None:
    model = forest()
    model.learn_one({"n": 1.0, "c": "red"}, 1)
    with pytest.raises(FeatureError, match="feature 'n' holds numbers, got the string '1'"):
        model.learn_one({"n": "1", "c": "red"}, 1)
    model.learn_one({"n": 1.0, "c": 5}, 1)  # a number among categories is a category of its own
    assert list(model._features.categories[model._features.names.index("c")]) == ["red", 5.0]


def test_frames_with_categories_and_missing_values() -> None:
    frame = pd.DataFrame({"c": ["u", None, "v"], "n": [1, 2, 3]})
    by_frame, by_dicts = forest(), forest()
    by_frame.learn_many(frame, pd.Series(["a", "b", "a"]))
    for x, y in zip([{"c": "u", "n": 1}, {"n": 2}, {"c": "v", "n": 3}], "aba"):
        by_dicts.learn_one(x if "c" in x else {**x, "c": None}, y)
    assert encode({"main": by_frame}) == encode({"main": by_dicts})
    nullable = pd.DataFrame({"c": [7, 7], "n": pd.array([1, None], "Int64")})
    by_frame.learn_many(nullable, pd.Series(["a", "a"]))
    assert 7.0 in by_frame._features.categories[0]


def test_arrays_are_not_mixed_with_named_features() -> None:
    model = forest()
    model.learn_one({"a": 1.0}, 1)
    with pytest.raises(FeatureError, match="features have names, such as 'a'"):
        model.advance(np.zeros((2, 1)), [1, 1])


# ---- bounds


def test_bounds_are_typed_errors_and_nothing_is_learned() -> None:
    model = forest(max_classes=2, max_features=3, max_categories=2, on_capacity="error")
    for k, (a, c) in enumerate([(1.0, "u"), (2.0, "v")]):
        model.learn_one({"a": a, "c": c}, k)
    before = encode({"main": model})
    with pytest.raises(CapacityError, match="max_classes=2"):
        model.learn_one({"a": 1.0, "new": 1.0}, "third")
    with pytest.raises(CapacityError, match="max_features=3"):
        model.learn_one({"x": 1.0, "y": 2.0}, 1)
    with pytest.raises(CapacityError, match="max_categories=2"):
        model.learn_one({"c": "w"}, 1)
    with pytest.raises(CapacityError, match="row 2: label 'third'"):
        model.advance([{"a": 1.0, "new": 1.0}] * 3, [0, 1, "third"])
    assert encode({"main": model}) == before
    model.predict_one({"x": 1.0, "y": 2.0, "z": 3.0})  # asking is free


def test_a_bad_row_refuses_the_whole_call() -> None:
    model = forest()
    model.learn_one({"a": 1.0}, "u")
    before = encode({"main": model})
    bad: list[tuple[Any, Any, Any]] = [
        ([{"a": 1.0}, {"b": "s"}, {"a": "text"}], ["u", "v", "w"], None),
        ([{"a": 1.0}, {"b": 1.0}], ["u", [1]], None),
        ([{"a": 1.0}], ["u", "v"], None),
        ([{"a": 1.0}], ["u"], [7]),
        ([{"a": 1.0}], [None], [LEARN]),
    ]
    for X, y, op in bad:
        with pytest.raises(InputError):
            model.advance(X, y, op)
        assert encode({"main": model}) == before


def test_every_error_has_one_root() -> None:
    assert issubclass(InputError, StreamForestError)
    assert issubclass(InputError, ValueError)
    for error in (LabelError, FeatureError, CapacityError, ParameterError):
        assert issubclass(error, InputError)


# ---- parameters


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_trees", 0),
        ("n_trees", 2.5),
        ("lam", -1),
        ("lam", math.nan),
        ("n_splits", 0),
        ("tau", -0.1),
        ("alpha0", 0),
        ("alpha_growth", 0.9),
        ("beta_factor", 0.5),
        ("p_structure", 1.5),
        ("p_structure", 1),
        ("p_structure", 0),
        ("p_ignore", 1),
        ("n_splits", 2**62),
        ("max_fringe_bytes", 10**30),
        ("tau", math.inf),
        ("p_ignore", "x"),
        ("max_fringe", 0),
        ("max_fringe_bytes", 0),
        ("max_nodes", True),
        ("voting", "loud"),
        ("nonfinite", "ignore"),
        ("n_jobs", 0),
        ("seed", -1),
    ],
)
def test_parameters_out_of_range_name_themselves(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=name):
        ConsistentForestClassifier(**{name: value})


def test_the_theorem_is_watched_over() -> None:
    with pytest.warns(ConsistencyWarning, match="alpha_growth=1"):
        ConsistentForestClassifier(alpha_growth=1)


@pytest.mark.parametrize(("name", "value"), [("min_samples", 1), ("gamma", 2), ("max_depth", -1)])
def test_parameters_of_the_online_forest(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=name):
        OnlineForestClassifier(**{name: value})


# ---- many classes


def test_many_classes_stay_sparse() -> None:
    """With hundreds of classes a leaf pays for those it meets, not for all there are."""
    rng = np.random.default_rng(5)
    n_classes = 400
    centres = rng.normal(size=(n_classes, 8)) * 6.0
    y = rng.integers(0, n_classes, 20_000)
    X = centres[y] + rng.normal(size=(len(y), 8))
    model = ConsistentForestClassifier(n_trees=2, seed=1, max_fringe_bytes=4_000_000)
    model.advance(X, y, op=np.full(len(y), LEARN))
    s = model.summary()
    assert s["classes"] == n_classes
    assert s["fringe_bytes"] <= 2 * 4_000_000 + s["fringe_overshoot"]
    dense = s["leaves"] * n_classes * 8
    assert int(model._trees.tree["hist_top"].sum()) * 8 < dense / 4
