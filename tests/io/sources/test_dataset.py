"""The recorded source: every event once, in the same order, from any position."""

from __future__ import annotations

import numpy as np
import pytest

from streamforest import datasets
from streamforest.errors import ConfigError
from streamforest.io.sources.dataset import ClassSchedule, RecordedSource


def test_rows_are_every_event_once_in_order() -> None:
    source = RecordedSource.open("digits", events=250)
    rows = list(source.rows(0))
    stream = datasets.load("digits", events=250)
    assert [row.offset for row in rows] == list(range(250))
    assert np.array_equal([list(row.event.x.values()) for row in rows], stream.X)
    assert [row.event.y for row in rows] == stream.y.tolist()
    assert list(rows[0].event.x) == list(stream.features)


def test_classes_appear_over_time() -> None:
    source = RecordedSource.open("digits", None, ClassSchedule("random", first=2, every=300))
    labels = [row.event.y for row in source.rows(0)]
    assert [len(set(labels[:n])) for n in (300, 900, source.total)] == [2, 4, 10]


def test_rows_from_a_number_on_and_what_is_none() -> None:
    source = RecordedSource.open("bananas", events=100)
    assert [row.offset for row in source.rows(97)] == [97, 98, 99]
    assert not list(source.rows(100))
    with pytest.raises(ConfigError, match="event 101 lies outside the 100 events"):
        next(source.rows(101))


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
