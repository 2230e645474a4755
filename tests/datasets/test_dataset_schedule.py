"""Class schedules: no row lost, no class before its time, the same order every time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamforest import datasets
from streamforest.datasets import class_order, schedule, schedule_rows
from streamforest.errors import ConfigError

labels = st.lists(st.integers(0, 6), min_size=1, max_size=120).map(np.array)
orders = st.one_of(
    st.sampled_from(["recorded", "random"]), st.permutations(range(7)).map(lambda p: p[:3])
)


def present(y: NDArray[np.int64], order: object) -> object:
    """A listed order, without the labels that the stream happens not to have."""
    return order if isinstance(order, str) else [k for k in order if k in y]  # type: ignore[attr-defined]


@settings(deadline=None, derandomize=True)
@given(labels, orders, st.integers(1, 8), st.integers(1, 50), st.integers(0, 5))
def test_rows_are_a_permutation_that_respects_the_openings(
    y: NDArray[np.int64], order: object, first: int, every: int, seed: int
) -> None:
    order = present(y, order)
    rows = schedule_rows(y, order, first, every, seed)  # type: ignore[arg-type]
    assert sorted(rows.tolist()) == list(range(len(y)))
    classes = class_order(y, order, seed)  # type: ignore[arg-type]
    assert sorted(classes) == sorted(set(y.tolist()))
    shown = y[rows]
    for place, label in enumerate(classes):
        mine = np.flatnonzero(y == label)
        # each class keeps its recorded order
        assert rows[shown == label].tolist() == mine.tolist()
        # and does not appear before it opens, unless all classes opened before it have run out
        appears = int(np.flatnonzero(shown == label)[0])
        opens = 0 if place < first else (place - first + 1) * every
        earlier = np.isin(y, classes[:place]).sum()
        assert appears >= min(opens, earlier)


@settings(deadline=None, derandomize=True)
@given(labels, st.integers(1, 50), st.integers(0, 5))
def test_same_arguments_give_the_same_order(y: NDArray[np.int64], every: int, seed: int) -> None:
    once = schedule_rows(y, "random", 1, every, seed)
    assert once.tolist() == schedule_rows(y.copy(), "random", 1, every, seed).tolist()


def test_all_classes_open_from_the_start_changes_nothing() -> None:
    stream = datasets.load("digits")
    assert schedule_rows(stream.y, first=10).tolist() == list(range(len(stream)))


def test_a_new_class_comes_at_its_time_mixed_with_the_old_ones() -> None:
    stream = schedule(datasets.digits(passes=3), order=list(range(10)), first=2, every=400)
    first_seen = [int(np.flatnonzero(stream.y == label)[0]) for label in range(10)]
    assert first_seen[2:] == [400 * k for k in range(1, 9)]
    for opening in first_seen[2:]:
        share = np.bincount(stream.y[opening : opening + 400], minlength=10)[stream.y[opening]]
        assert 20 < share < 250
    # every class lasts to about the end
    last_seen = [int(np.flatnonzero(stream.y == label)[-1]) for label in range(10)]
    assert min(last_seen) > 0.95 * len(stream)


def test_next_class_opens_early_where_the_open_ones_run_out() -> None:
    y = np.array(["a", "b", "a", "c"])
    assert y[schedule_rows(y, first=1, every=100)].tolist() == ["a", "a", "b", "c"]


def test_masks_move_with_their_rows() -> None:
    stream = datasets.gaussians(500)
    moved = schedule(stream, order="random", first=1, every=50, seed=2)
    rows = schedule_rows(stream.y, "random", 1, 50, 2)
    assert stream.bayes is not None
    assert moved.bayes is not None
    assert moved.bayes.tolist() == stream.bayes[rows].tolist()
    assert moved.X.flags.c_contiguous


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"order": "alphabetical"}, "'alphabetical'"),
        ({"order": ["a", "a"]}, "twice"),
        ({"order": ["z"]}, "'z'"),
        ({"first": 0}, "first is 0"),
        ({"every": 0}, "every is 0"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        schedule_rows(np.array(["a", "b"]), **arguments)  # type: ignore[arg-type]
