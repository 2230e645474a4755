"""The parts of an NCM forest by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streamforest import NCMForestClassifier
from streamforest.errors import InputError, SnapshotError
from streamforest.forests.ncm.metric_choice import MetricChoice
from streamforest.forests.ncm.row_memory import RowMemory
from streamforest.forests.ncm.vote_blend import VoteBlend
from streamforest.forests.persistence.snapshot import encode
from streamforest.kernels.ncm.blending import BLENDS
from streamforest.kernels.ncm.layout import FULL_IDENTITY, METRICS, RAW, TREE, WITHIN


def _filled(capacity: int, labels: list[int]) -> RowMemory:
    """A memory with a row of each of these classes."""
    memory = RowMemory(capacity, 0, np.uint64(1))
    memory.make_room(len(labels), max(labels) + 1)
    slots = memory.take_slots(len(labels))
    memory.arrays.label[slots] = labels
    memory.arrays.number[slots] = np.arange(len(labels))
    memory.of_class[:] = np.bincount(labels, minlength=len(memory.of_class))
    return memory


def test_rows_of_the_largest_classes_are_evicted() -> None:
    memory = _filled(6, [0] * 7 + [1] * 3 + [2])
    gone = memory.evict(columns=1, learned=11)
    assert gone is not None
    assert gone.labels.tolist() == [0] * 5  # of equals the class that is known longest
    assert memory.of_class[:3].tolist() == [2, 3, 1]
    assert memory.n == 6
    numbers = memory.arrays.number[memory.slots]
    assert (np.diff(numbers) > 0).all()
    assert not set(numbers.tolist()) & set(gone.numbers.tolist())


def test_the_slot_of_an_evicted_row_waits_for_the_jobs_that_may_read_it() -> None:
    memory = _filled(4, [0] * 8)
    gone = memory.evict(columns=1, learned=8)
    assert gone is not None
    free = 64 - 8
    memory.release(oldest=7)  # a job was started before: it reads these rows
    assert not set(memory.take_slots(free).tolist()) & set(gone.slots.tolist())
    memory.release(oldest=8)
    assert set(memory.take_slots(4).tolist()) == set(gone.slots.tolist())


def test_a_memory_is_restored_as_it_was_and_checked() -> None:
    memory = _filled(6, [0, 1, 1, 2, 0])
    dump = memory.dump(columns=1)

    def restored(**changes: NDArray[Any]) -> RowMemory:
        arrays = {**dump, **changes}
        other = RowMemory(6, 0, np.uint64(1))
        other.restore(lambda name, *_: arrays[name].ravel(), columns=1, classes=3, learned=5)
        return other

    other = restored()
    assert other.of_class.tolist() == memory.of_class.tolist()
    for name, array in other.dump(columns=1).items():
        np.testing.assert_array_equal(array, dump[name])
    with pytest.raises(SnapshotError, match=r"memory\.label"):
        restored(**{"memory.label": np.array([0, 1, 1, 3, 0], np.int32)})
    with pytest.raises(SnapshotError, match=r"memory\.number"):
        restored(**{"memory.number": np.array([0, 1, 1, 2, 4])})


def test_experts_that_are_switched_off_get_no_share() -> None:
    blend = VoteBlend(mean_vote=False, neighbours=True)
    blend.arrays.blend_correct[:] = BLENDS[:, 1]  # the class means would be best
    blend.choose(trees_are_grown=True)
    assert blend.weights()["means"] == 0.0
    blend = VoteBlend(mean_vote=True, neighbours=True)
    assert blend.weights() == {"trees": 0.0, "means": 1.0, "neighbours": 0.0}
    blend.choose(trees_are_grown=False)  # nobody else can answer yet
    assert blend.weights()["means"] == 1.0


def test_metrics_of_young_trees_with_few_errors_are_preferred() -> None:
    choice = MetricChoice("auto", "ncm", np.uint64(1))
    kinds = choice.kinds(whole=True)
    assert len(kinds) == METRICS
    assert choice.kinds(whole=False) == list(range(FULL_IDENTITY))
    assert sorted(choice.spread(kinds, 10)) == sorted(2 * kinds)  # nothing is known: all alike
    info = np.zeros(3, TREE)
    info["metric"], info["errors"] = [RAW, WITHIN, WITHIN], [60, 0, 0]
    info["born"] = [5_000, 5_000, 0]  # the last is no longer young
    for _ in range(20):
        choice.note_errors(info, events=64, learned=5_500)
    assert choice.error[RAW] > 0.5 > choice.error[WITHIN]
    drawn = [choice.draw(kinds, 5_500, t) for t in range(200)]
    assert drawn.count(WITHIN) > 3 * drawn.count(RAW) > 0


@pytest.mark.parametrize("method", ["fit_many", "extend_many"])
def test_a_set_that_is_refused_changes_nothing(method: str) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(300, 4)), rng.integers(0, 3, 300)
    one, other = (NCMForestClassifier(n_trees=3, seed=1) for _ in range(2))
    one.advance(X[:100], y[:100])
    other.advance(X[:100], y[:100])
    bad = X[:40].copy()
    bad[30, 2] = np.nan
    with pytest.raises(InputError, match="row 30"):
        getattr(one, method)(bad, y[:40])
    for model in (one, other):  # splits, answers and retraining go on
        model.advance(X[100:], y[100:])
    assert encode({"main": one}) == encode({"main": other})
