"""The NCM forest of an auto forest while it rests: what is new is told alike, however events come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.forging import Forgery, forged

from streamforest import AutoForestClassifier
from streamforest.errors import SnapshotError
from streamforest.forests.auto import resting
from streamforest.forests.persistence.snapshot import decode, encode


@pytest.fixture(autouse=True)
def _rests_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "_EPOCHS", 2)
    for worth in ("_RESTS", "_WAKES"):
        monkeypatch.setattr(resting, worth, 1e9)


def _events(n: int, alone: float) -> list[tuple[dict[str, Any], str | None, str | None]]:
    """Noise; a feature more every 110 events, and rows with a category alone that bring a colour."""
    rng = np.random.default_rng(0)
    events: list[tuple[dict[str, Any], str | None, str | None]] = []
    for i in range(n):
        x: dict[str, Any] = {f"f{j}": float(rng.normal()) for j in range(3 + i // 110)}
        k, coarse_only, with_class = int(rng.integers(4)), rng.random() < alone, i // 50
        if alone:
            x["colour"] = f"c{with_class + 1 if coarse_only else int(rng.integers(with_class + 1))}"
        label, name = f"class {k}", f"category {k % 2}" if alone else None
        events.append((x, None if coarse_only else label, name))
    return events


def _model(events: list[Any], size: int, saved: bool = False) -> AutoForestClassifier:
    model = AutoForestClassifier(n_trees=3, seed=1, memory=200)
    for begin in range(0, len(events), size):
        if saved:
            model = decode(encode({"main": model}))[0]["main"]
        xs, ys, coarse = (list(column) for column in zip(*events[begin : begin + size]))
        model.answers(xs, ys, coarse=coarse)
    return model


@pytest.mark.parametrize("alone", [0.0, 0.5])
def test_what_is_new_is_told_alike_for_any_batch_and_snapshot(alone: float) -> None:
    """A feature in the middle of a batch; names and categories of rows that were withheld."""
    events = _events(700, alone)
    expected = _model(events, 1)
    assert expected._rest.resting
    for size, saved in ((400, False), (700, False), (50, True)):
        assert encode({"main": _model(events, size, saved)}) == encode({"main": expected}), size


@pytest.mark.parametrize(
    ("field", "value"),
    [("resting.codes", 99), ("resting.codes", -1), ("resting.valued", 2), ("resting.counters", -1)],
)
def test_damage_of_what_is_not_told_yet_is_refused(field: str, value: int) -> None:
    data = encode({"main": _model(_events(100, 0.5), 100)})
    assert decode(data)[0]["main"].n_learned == 100
    at = 4 if field == "resting.counters" else 0
    with pytest.raises(SnapshotError, match=field):
        decode(forged(data, Forgery(f"models/main/0/{field}", at, value)))
