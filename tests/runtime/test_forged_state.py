"""The run's own part of a snapshot, forged: refused at load, or else it runs. Nothing hangs or falls later.

Every place in the data gets every hostile value; what is let through has to go on as a run would.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamforest import ConsistentForestClassifier
from streamforest.errors import ChangedError, InputError, SnapshotError
from streamforest.forests.persistence import snapshot
from streamforest.observe.evaluation import Recent
from streamforest.observe.measures import ModelMeasures
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.labels.store import LabelStore, LateRules
from streamforest.runtime.processing.adapters import wrap_model
from streamforest.runtime.processing.limits import Limits
from streamforest.runtime.recovery.replayer import States

HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0,
    1 << 53,
    1 << 70,
    10**400,
    1.5,
    float("inf"),  # as 1e999 in the file
    "x",
    "",
    [],
    {},
    [[]],
    [1, 2, 3],
    [[1, 2, 3, 4, 5]],
]
SOURCE = {"topic": "events", "format": "json"}


def forgeries(data: Any) -> Iterator[tuple[str, Any]]:
    """Copies of the data, each with one place changed, with where and to what."""
    for path in places(data):
        for value in HOSTILE:
            forged = copy.deepcopy(data)
            here = forged
            for step in path[:-1]:
                here = here[step]
            here[path[-1]] = copy.deepcopy(value)
            yield f"{path} = {value!r:.40}", forged
    for path in places(data):  # something twice, or gone
        forged = copy.deepcopy(data)
        here = forged
        for step in path[:-1]:
            here = here[step]
        if isinstance(here, list):
            here.append(copy.deepcopy(here[path[-1]]))
            yield f"{path} twice", forged
        forged = copy.deepcopy(data)
        here = forged
        for step in path[:-1]:
            here = here[step]
        del here[path[-1]]
        yield f"{path} gone", forged


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps: list[Any] = []
    if isinstance(data, dict):
        steps = list(data)
    elif isinstance(data, list):
        steps = list(range(len(data)))
    for step in steps:
        yield (*path, step)
        yield from places(data[step], (*path, step))


def new_state() -> RunState:
    forest = ConsistentForestClassifier(n_trees=1, seed=0)
    state = RunState.new({"main": wrap_model(forest)}, Limits(min_class_events=2), LateRules())
    for y in ("a", "a", "b", "c", "c", 1):
        state.gate.admit({"n": 1.0, "text": "red", "late": None}, y)
        state.measures["main"].update([y], ["a"], 0.1)
    state.gate.take()
    state.positions, state.events = {("events", 0): 5, ("events", 1): 1}, 6
    return state


def restored(plain: Any) -> RunState:
    forest = ConsistentForestClassifier(n_trees=1, seed=0)
    limits, rules = Limits(min_class_events=2), LateRules()
    configured = {"main": wrap_model(forest)}
    return RunState.restored({"main": forest}, plain, configured, limits, SOURCE, rules)


def go_on(state: RunState) -> None:
    """What a run does with it: events, measures, the next snapshot."""
    measures: ModelMeasures = state.measures["main"]
    for y in ("a", "b", "new", "new", 1, None):
        for x in ({"n": 2.0, "text": "blue"}, {"other": 1.0}, {"n": "no number"}):
            try:
                state.gate.admit(x, y)
            except InputError:
                continue
            measures.update([y], ["a"], 0.1)
    state.gate.take()
    totals = measures.totals
    assert totals.accuracy is None or 0 <= totals.accuracy <= 1
    assert isinstance(totals.kappa, float | None)
    assert [bucket.accuracy for bucket in totals.ages()]
    state.events += 1
    for partition in state.positions:
        state.positions[partition] += 1
    json.dumps(state.jsonable(SOURCE), allow_nan=False)


def test_forged_state_of_a_run() -> None:
    plain = json.loads(json.dumps(new_state().jsonable(SOURCE)))
    go_on(restored(copy.deepcopy(plain)))
    refused = let_through = 0
    for what, forged in forgeries(plain):
        try:
            state = restored(forged)
        except (SnapshotError, ChangedError):  # ChangedError: of another source
            refused += 1
            continue
        let_through += 1
        try:
            go_on(state)
        except Exception as error:
            raise AssertionError(f"{what} was let through: {error!r}") from error
    assert refused > 500
    assert let_through < refused / 5


@pytest.mark.parametrize("text", ['"events":1e999', '"events":' + "9" * 5_000, '"events":-5'])
def test_a_forged_file_is_a_snapshot_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """With a fresh checksum, where one can be had."""
    usual = snapshot._canonical
    with monkeypatch.context() as patch:
        patch.setattr(
            snapshot, "_canonical", lambda c, **how: usual(c, **how).replace('"events":6', text)
        )
        data = snapshot.encode(
            {"main": ConsistentForestClassifier(n_trees=1, seed=0)}, {"events": 6}
        )
    assert text.encode() in data.replace(b"\\", b"")
    folder = SnapshotFolder(tmp_path)
    (tmp_path / "s-000000000006.safetensors").write_bytes(data)
    limits = Limits(min_class_events=2)
    states = States(
        {"main": wrap_model(ConsistentForestClassifier())}, limits, folder, None, SOURCE
    )
    with pytest.raises(SnapshotError, match="s-000000000006"):
        states.restored("s-000000000006", "")


def new_store() -> LabelStore:
    store = LabelStore(LateRules(max_events=5, max_bytes=10_000))
    for at in range(1_000, 1_060):
        store.tick(at)
    for name in ("w", "v"):
        entry = store.wait(name, {"n": 1.0, "text": "red", "late": None}, 1_060)
        assert entry is not None
        entry.guesses = ["a", None]
    store.hold("early", "a", 1_061, ("labels", 0, 7))
    store.brought("known")
    store.tick(10**9)  # one that is ahead
    return store


def drive(store: LabelStore) -> None:
    """Labels and events that meet, wait and push each other out."""
    for name in list(store.waiting)[:1]:
        entry = store.event_of(name, 1_070)
        if entry is not None:
            features = entry.features()
            assert isinstance(features, dict | list)
            hash(tuple(entry.guesses))
            store.take_event(name)
            store.met(name)
    for at in range(1_070, 1_200):
        store.tick(at)
        store.wait(f"new-{at}", {"n": 2.0}, at)
        store.hold(f"label-{at}", "b", at, ("labels", 0, at))
        store.label_of("early", at)
        store.event_of(f"new-{at}", at)
    store.brought("early")
    assert 0 <= store.bytes <= store.rules.max_bytes
    assert isinstance(store.share, float | None)
    json.dumps(store.state(["main", "other"]), allow_nan=False)


def test_forged_label_store() -> None:
    rules, names = LateRules(max_events=5, max_bytes=10_000), ["main", "other"]
    plain = json.loads(json.dumps(new_store().state(names)))
    drive(LabelStore.from_state(rules, copy.deepcopy(plain), names))
    refused = let_through = 0
    for what, forged in forgeries(plain):
        try:
            store = LabelStore.from_state(rules, forged, names)
        except SnapshotError:
            refused += 1
            continue
        let_through += 1
        try:
            drive(store)
        except Exception as error:
            raise AssertionError(f"{what} was let through: {error!r}") from error
    assert refused > 500
    assert let_through < refused / 2


@pytest.mark.parametrize(
    "x", [5, "text", {"a": [1]}, {"a": {"b": 1}}, [[1.0]], None, b"\x91" * 100_000]
)
def test_features_that_no_event_has(x: Any) -> None:
    plain = new_store().state(["main"])
    packed = x if isinstance(x, bytes) else msgspec.msgpack.encode(x)
    plain["waiting"][0][1] = base64.b64encode(packed).decode()
    with pytest.raises(SnapshotError, match="label store"):
        LabelStore.from_state(LateRules(), plain, ["main"])


def test_a_store_of_many_ids_that_are_one(tmp_path: Path) -> None:
    """1, True and 1.0 are one id: counted three times, their bytes would never be gone."""
    plain = new_store().state(["main"])
    plain["waiting"] = [[identity, *plain["waiting"][0][1:]] for identity in (1, True, 1.0)]
    with pytest.raises(SnapshotError, match="twice"):
        LabelStore.from_state(LateRules(), plain, ["main"])


def test_forged_measures_are_begun_anew() -> None:
    """They may be lost: whatever they are, the state is as it was, and goes on."""
    state = new_state()
    told = json.loads(json.dumps(state.passing()))
    for what, forged in forgeries(told):
        state.restore_passing(forged)
        try:
            state.measures["main"].update(["a"] * 3, ["a"] * 3, 0.1)
            assert state.measures["main"].recent.curve()
            assert state.measures["main"].per_event.quantile(0.99) >= 0
            assert state.pace.rate >= 0
            json.dumps(state.passing(), allow_nan=False)
        except Exception as error:
            raise AssertionError(f"{what}: {error!r}") from error


@pytest.mark.parametrize("width", [0, -1])
def test_a_curve_without_width_would_never_end(width: int) -> None:
    told = {**Recent().state(), "width": width}
    with pytest.raises(ValueError, match=r"curve|width"):
        Recent.from_state(told)
