"""Names, categories and classes are bounded in bytes, and what an event costs is linear in its size."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamforest
from streamforest import ConsistentForestClassifier
from streamforest.errors import CapacityError, FeatureError, InputError, ParameterError
from streamforest.forests.core import registry
from streamforest.forests.core.features import FeatureTable
from streamforest.forests.core.labels import LabelTable
from streamforest.forests.core.parameters import MAX_TEXT_BYTES
from streamforest.forests.persistence.snapshot import decode, encode
from streamforest.runtime.processing.admission import Admission
from streamforest.runtime.processing.limits import Limits
from streamforest.text import KEPT, kept_bytes

KINDS = [f.class_name.removesuffix("ForestClassifier") for f in registry.entries()]


def forest(**parameters: Any) -> ConsistentForestClassifier:
    return ConsistentForestClassifier(n_trees=2, seed=0, **parameters)


def counted(table: FeatureTable) -> int:
    """From the tables alone."""
    values = [value for codes in table.categories for value in codes]
    return sum(map(kept_bytes, [*table.names, *values]))


@pytest.mark.parametrize("kind", KINDS)
def test_categories_beyond_the_bytes_are_refused_and_leave_no_trace(kind: str) -> None:
    maker = getattr(streamforest, f"{kind}ForestClassifier")
    model = maker(n_trees=1, seed=0, max_text_bytes=20_000, on_capacity="error")
    xs = [{f"f{j}": f"value {i} of {j}" for j in range(10)} for i in range(20)]
    for x in xs[:13]:
        model.learn_one(x, "x")
    before = encode({"main": model})
    for x in xs[13:]:
        with pytest.raises(CapacityError, match="over max_text_bytes=20,000"):
            model.learn_one(x, "x")
        with pytest.raises(CapacityError, match=r"row 1: .*over max_text_bytes=20,000"):
            model.advance([xs[0], x], ["x", "x"])
    assert encode({"main": model}) == before
    assert model._features.bytes == counted(model._features) <= 20_000
    model.learn_one({f"f{j}": f"value 0 of {j}" for j in range(10)}, "x")  # nothing new
    again = decode(encode({"main": model}))[0]["main"]
    assert again._features.bytes == model._features.bytes
    assert again.max_text_bytes == 20_000
    with pytest.raises(CapacityError):
        again.learn_one({"f0": "one more " * 30}, "x")


def test_names_and_classes_count_too() -> None:
    model = forest(max_text_bytes=2_000, on_capacity="error")
    model.learn_one({"n" * 1_000: 1.0}, "l" * 1_000)
    with pytest.raises(CapacityError, match=r"feature 'nnn.*bytes of names and categories"):
        model.learn_one({"n" * 1_001: 1.0}, "l" * 1_000)
    with pytest.raises(CapacityError, match=r"label 'll.*bytes of classes, over max_text_bytes"):
        model.learn_one({"n" * 1_000: 1.0, "new": 1.0}, "l" * 1_001)
    with pytest.raises(CapacityError, match="row 0"):
        model.advance([{"new": 1.0}], ["l" * 1_001])
    assert len(model._features) == 1, "a refused label takes the features back"
    assert model._labels.bytes == 1_000 + 2 + KEPT


def test_the_default_holds_every_class_of_the_default() -> None:
    table = LabelTable(max_classes=10_000, max_bytes=MAX_TEXT_BYTES)
    for i in range(10_000):
        table.learn(f"{i:06}" + "\0" * 250)
    assert table.bytes <= MAX_TEXT_BYTES


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b", "é", "long " * 9, 7]),
            st.none() | st.floats(-5, 5) | st.text(max_size=30) | st.just(float("nan")),
            max_size=4,
        ),
        max_size=30,
    ),
    st.integers(1, 9),
    st.sampled_from(["degrade", "error"]),
)
def test_where_batches_are_cut_changes_nothing(
    xs: list[dict[Any, Any]], cut: int, on_capacity: str
) -> None:
    limits = Limits(max_text_bytes=1_500, on_capacity=on_capacity)
    gate, again = Admission(limits), Admission(limits)
    one, many = (forest(max_text_bytes=1_500, on_capacity=on_capacity) for _ in range(2))
    for i, x in enumerate(xs):
        try:
            one.learn_one(x, "y")
            refused = False
        except InputError:
            refused = True
        for doorkeeper in (gate, again):
            if refused:
                with pytest.raises(InputError):
                    doorkeeper.admit(x, "y")
            else:
                doorkeeper.admit(x, "y")
        again = Admission.from_state(limits, again.state())  # what it counts comes back
        assert gate.features.bytes == again.features.bytes == counted(gate.features)
        if len(gate) and i % cut == 0:
            rows = gate.take()
            many.advance(rows.table, rows.y, rows.op)
    if len(gate):
        rows = gate.take()
        many.advance(rows.table, rows.y, rows.op)
    assert encode({"main": one}) == encode({"main": many})


def test_a_file_of_before_has_no_such_parameter_and_loads() -> None:
    old = forest()
    old.learn_one({"a": "red"}, "x")
    data = encode({"main": old})
    assert b"max_text_bytes" not in data, "the bytes of before"
    assert decode(data)[0]["main"].max_text_bytes == MAX_TEXT_BYTES


def test_what_is_over_a_lowered_bound_loads_and_takes_nothing_new() -> None:
    gate = Admission(Limits())
    gate.admit({"a": "red", "b": 1.0}, "x")
    lowered = Admission.from_state(Limits(max_text_bytes=10, on_capacity="error"), gate.state())
    lowered.admit({"a": "red", "b": 2.0}, "x")
    for x, y in (({"a": "blue"}, "x"), ({"c": 1.0}, "x"), ({"a": "red"}, "y")):
        with pytest.raises(CapacityError):
            lowered.admit(x, y)
    before = {**gate.state(), "capacity": lowered.state()["capacity"]}
    assert lowered.state() == before, "nothing but the events counted"


def test_the_parameter_is_checked() -> None:
    for wrong in (0, -1, 1.5, None, "much"):
        with pytest.raises(ParameterError, match="max_text_bytes"):
            forest(max_text_bytes=wrong)
    assert forest(max_text_bytes=np.int64(5_000)).max_text_bytes == 5_000


def test_an_events_columns_are_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each would be quadratic: seconds for an event of a hundred kilobytes."""
    calls = 0
    refresh = FeatureTable._refresh

    def counting(table: FeatureTable) -> None:
        nonlocal calls
        calls += 1
        refresh(table)

    monkeypatch.setattr(FeatureTable, "_refresh", counting)
    table = FeatureTable(10_000, 1_000, "error")
    wide: dict[Any, Any] = {f"f{i}": float(i) if i % 2 else f"c{i}" for i in range(5_000)}
    calls = 0
    for _ in range(2):
        table.begin()
        with pytest.raises(FeatureError):
            table.row({**wide, "zz": b"no number"}, learn=True)
        table.rollback()
    assert calls == 2
    assert len(table) == table.bytes == 0
    table.begin()
    table.row(wide, learn=True)
    assert calls == 3
    table.begin()
    with pytest.raises(FeatureError):
        table.row({"f1": "text"}, learn=True)
    table.rollback()
    assert calls == 3, "nothing had changed"
    numbers = FeatureTable(10_000, 1_000, "error")
    calls = 0
    numbers.matrix(np.zeros((2, 5_000)), range(5_000), np.ones(2, np.bool_))
    assert calls == 1


def test_a_refused_event_of_100_kb_takes_no_time() -> None:
    gate = Admission(Limits())
    wide: dict[Any, Any] = {f"{i:05}": 1.0 for i in range(9_000)} | {"bad": b""}
    begun = time.perf_counter()
    for _ in range(5):
        with pytest.raises(FeatureError):
            gate.admit(wide, "x")
    assert time.perf_counter() - begun < 5, "it was 5 s for each"
