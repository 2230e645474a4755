"""An NCM forest lets go of what is no longer true, and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streamforest import NCMForestClassifier, datasets
from streamforest.errors import ParameterError
from streamforest.forests.ncm.row_memory import RowMemory
from streamforest.forests.persistence.snapshot import load, save


def accuracy(forest: NCMForestClassifier, stream: datasets.Stream) -> float:
    right = 0
    for begin in range(0, len(stream), 250):
        rows = slice(begin, begin + 250)
        posteriors = forest.advance(stream.X[rows], stream.y[rows])
        if posteriors.shape[1]:
            classes = np.array(list(forest.classes_))
            right += int((classes[posteriors.argmax(axis=1)] == stream.y[rows]).sum())
    return right / len(stream)


def test_moving_squares_are_followed() -> None:
    stream = datasets.load("moving-squares", 3_000)
    forest = NCMForestClassifier(n_trees=8, seed=1)
    still = NCMForestClassifier(n_trees=8, drift=False, seed=1)
    assert accuracy(forest, stream) > 0.8
    assert accuracy(still, stream) < 0.6
    assert forest.summary()["times_forgotten"] > 10
    assert forest.summary()["memory_rows"] < 500


@pytest.mark.parametrize("name", ["bananas", "segments"])
def test_nothing_goes_from_a_stream_that_stays_as_it_is(name: str) -> None:
    stream = datasets.load(name, 2_300)
    forest = NCMForestClassifier(n_trees=4, seed=1)
    accuracy(forest, stream)
    assert forest.summary()["times_forgotten"] == 0


def test_after_a_change_the_memory_grows_again() -> None:
    """Noise, and labels that change places once: a short memory is not better for ever."""
    stream = datasets.load("gaussians", 6_000)
    y = stream.y.copy()
    y[:2_000] = (y[:2_000] + 1) % 5
    forest = NCMForestClassifier(n_trees=4, seed=1)
    forest.advance(stream.X[:2_000], y[:2_000])
    assert forest.summary()["times_forgotten"] == 0
    forest.advance(stream.X[2_000:], y[2_000:])
    assert 1 <= forest.summary()["times_forgotten"] <= 4
    assert forest.summary()["memory_rows"] > 2_000


def test_same_bits_for_any_batch_and_after_a_snapshot(tmp_path: object) -> None:
    stream = datasets.load("moving-squares", 1_200)
    one = NCMForestClassifier(n_trees=4, seed=1)
    other = NCMForestClassifier(n_trees=4, seed=1, n_jobs=2)
    whole = one.advance(stream.X, stream.y)
    parts = []
    for begin in range(0, 1_200, 77):
        rows = slice(begin, begin + 77)
        parts.append(other.advance(stream.X[rows], stream.y[rows]))
        path = f"{tmp_path}/forest.safetensors"
        save(other, path)
        other = load(path)
    known = max(len(part[0]) for part in parts)
    padded = [np.pad(part, ((0, 0), (0, known - part.shape[1]))) for part in parts]
    assert np.array_equal(np.concatenate(padded), whole)
    assert one.summary()["times_forgotten"] == other.summary()["times_forgotten"] > 0


def rows_in(memory: RowMemory, labels: NDArray[np.int64]) -> None:
    memory.make_room(len(labels), 3)
    slots = memory.take_slots(len(labels))
    memory.arrays.label[slots] = labels
    memory.arrays.number[slots] = np.arange(len(labels))
    memory.of_class[:3] = np.bincount(labels, minlength=3)


def test_the_newest_rows_of_a_class_stay_however_old() -> None:
    memory = RowMemory(100, 0, np.uint64(1))
    rows_in(memory, np.array([0, 1, 0, 0, 2, 1, 1, 1]))
    gone = memory.forget_before(6, 2, 8)
    assert gone is not None
    assert gone.numbers.tolist() == [0, 1, 5]
    assert memory.arrays.number[memory.slots].tolist() == [2, 3, 4, 6, 7]
    assert memory.of_class[:3].tolist() == [2, 2, 1]
    assert memory.forget_before(6, 2, 8) is None


def test_drift_is_a_bool() -> None:
    with pytest.raises(ParameterError, match="drift='yes': use True or False"):
        NCMForestClassifier(drift="yes").learn_one({"a": 1.0}, 1)  # type: ignore[arg-type]
