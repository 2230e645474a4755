"""Admission decides as a forest would, event by event, and where batches are cut changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamforest import ConsistentForestClassifier, StreamForestClassifier
from streamforest.errors import InputError, SnapshotError
from streamforest.forests.persistence import snapshot
from streamforest.runtime.processing.admission import Admission
from streamforest.runtime.processing.limits import Limits

value = (
    st.none()
    | st.floats(-5, 5)
    | st.sampled_from(["red", "blue", "green"])
    | st.sampled_from([1e308, -1e308, float("nan"), float("inf"), True])
)
event = st.one_of(
    st.dictionaries(st.sampled_from("abcdef"), value, max_size=4),
    st.lists(st.floats(-5, 5), max_size=4),
    st.fixed_dictionaries({"a": st.floats(-5, 5), "b": st.floats(-5, 5)}),
)
label = st.sampled_from([None, 0, 1, True, 1.0, "1", "x", "y", 2.5])
BOUNDS = {"max_classes": 4, "max_features": 5, "max_categories": 2}


def forest(on_capacity: str) -> ConsistentForestClassifier:
    return ConsistentForestClassifier(n_trees=2, seed=0, on_capacity=on_capacity, **BOUNDS)


def as_dict(x: Any) -> dict[Any, Any]:
    return x if isinstance(x, dict) else dict(enumerate(x))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(event, label), max_size=25),
    st.integers(1, 7),
    st.sampled_from(["degrade", "error"]),
)
def test_it_admits_exactly_what_a_forest_takes(
    events: list[tuple[Any, Any]], cut: int, on_capacity: str
) -> None:
    alone, batched = forest(on_capacity), forest(on_capacity)
    gate = Admission(Limits(on_capacity=on_capacity, **BOUNDS))
    expected, given_ = [], []
    for i, (x, y) in enumerate(events):
        try:
            expected.append(alone.advance([as_dict(x)], [y])[0])
            taken = True
        except InputError:
            taken = False
        if taken:
            gate.admit(x, y)
        else:
            with pytest.raises(InputError):
                gate.admit(x, y)
        if (i + 1) % cut == 0 and len(gate):
            rows = gate.take()
            given_ += list(batched.advance(rows.table, rows.y, rows.op))
    if len(gate):
        rows = gate.take()
        given_ += list(batched.advance(rows.table, rows.y, rows.op))
    assert len(given_) == len(expected)
    for a, b in zip(expected, given_):
        width = min(len(a), len(b))
        assert np.array_equal(a[:width], b[:width])
    assert snapshot.encode({"main": alone}) == snapshot.encode({"main": batched})
    assert gate.features.state() == alone._features.state()


def test_a_label_waits_and_the_tally_is_bounded_and_saved() -> None:
    limits = Limits(min_class_events=3, max_waiting=2)
    gate = Admission(limits)
    assert [gate.admit({"a": 1.0}, "x") for _ in range(4)] == [False, False, True, True]
    for y in ("p", "q", "r"):
        gate.admit({"a": 1.0}, y)
    assert gate.waiting == {"q": 1, "r": 1}
    rows = gate.take()
    assert rows.op.tolist() == [1, 1, 3, 3, 1, 1, 1]
    assert rows.new == [True, True, True, False, True, True, True]
    again = Admission.from_state(limits, gate.state())
    assert again.state() == gate.state()
    assert not again.admit({"a": 1.0}, "q")
    assert again.admit({"a": 1.0}, "q")


def test_a_refused_event_leaves_no_trace() -> None:
    gate = Admission(Limits(max_features=2, on_capacity="error"))
    gate.admit({"a": 1.0}, "x")
    before = gate.state()
    for x, y in (({"b": 1.0, "c": 1.0}, "y"), ({"a": "text"}, "y"), ({"a": 1.0}, [])):
        with pytest.raises(InputError):
            gate.admit(x, y)
    assert gate.state() == before
    assert len(gate.take()) == 1


def test_what_a_ring_of_float32_cannot_hold_is_refused_before_it_enters() -> None:
    model = StreamForestClassifier(n_trees=2, seed=0)
    gate = Admission(Limits(largest=StreamForestClassifier.largest))
    for y in ("x", None):
        for x in ({"a": 1.0, "b": 2.0}, {"a": 1e39, "b": 2.0}, [1e39]):
            try:
                gate.admit(x, y)
            except InputError:
                continue
        rows = gate.take()
        assert len(rows) == 1
        model.advance(rows.table, rows.y, rows.op)
        with pytest.raises(InputError):
            model.advance([{"a": 1e39, "b": 2.0}], [y])


def test_a_damaged_state_is_a_typed_error() -> None:
    with pytest.raises(SnapshotError, match="cannot be read"):
        Admission.from_state(Limits(), {"labels": ["a", "a"]})
