"""The recorded source: every event once, in the same order, from any position."""

from __future__ import annotations

import numpy as np
import pytest

from streamforest import datasets
from streamforest.errors import SnapshotError
from streamforest.stream.recorded import ClassSchedule, RecordedSource


def test_polls_give_every_event_once_in_order() -> None:
    source = RecordedSource.open("digits", events=250)
    batches = []
    while batch := source.poll(70):
        batches.append(batch)
    assert [batch.first for batch in batches] == [0, 70, 140, 210]
    stream = datasets.load("digits", events=250)
    assert np.array_equal(np.concatenate([batch.x.to_numpy() for batch in batches]), stream.X)
    assert [label for batch in batches for label in batch.y] == stream.y.tolist()
    assert list(batches[0].x.columns) == list(stream.features)


def test_classes_appear_over_time() -> None:
    source = RecordedSource.open("digits", None, ClassSchedule("random", first=2, every=300))
    assert len(set(source.rows(0, 300).y)) == 2
    assert len(set(source.rows(0, 900).y)) == 4
    assert len(set(source.rows(0, source.total).y)) == 10


def test_seek_goes_to_an_event_and_refuses_what_is_none() -> None:
    source = RecordedSource.open("bananas", events=100)
    source.seek(97)
    assert (source.poll(10).first, source.position) == (97, 100)
    assert not source.poll(10)
    with pytest.raises(SnapshotError, match="--fresh"):
        source.seek(101)


def test_descriptions_are_equal_for_the_same_events_only() -> None:
    def described(**classes: object) -> dict[str, object]:
        return RecordedSource.open("digits", 500, ClassSchedule(**classes)).describe()  # type: ignore[arg-type]

    assert described(order="random", seed=1) == described(order="random", seed=1)
    assert described(order="random", seed=1) != described(order="random", seed=2)
    stream = datasets.load("digits", events=50)
    changed = stream.X.copy()
    changed[49, 0] += 1
    other = datasets.Stream("digits", changed, stream.y, stream.features)
    assert RecordedSource(stream).describe() != RecordedSource(other).describe()
