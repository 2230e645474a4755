"""The NCM forest under odd and hostile data: its snapshots load, its arrays stay small, forged files end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.ncm_forged import changed, sealed, under_way

from streamforest import PREDICT, NCMForestClassifier
from streamforest.errors import FeatureError, SnapshotError
from streamforest.forests.ncm import inspection, training
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.persistence import snapshot
from streamforest.forests.persistence.snapshot import decode, encode

Event = tuple[dict[str, float], int]


def _again(forest: NCMForestClassifier) -> NCMForestClassifier:
    """Saved, loaded and saved again: the same bytes."""
    data = encode({"main": forest})
    copy: NCMForestClassifier = decode(data)[0]["main"]
    assert encode({"main": copy}) == data
    return copy


def _same_later(one: NCMForestClassifier, other: NCMForestClassifier, events: list[Event]) -> None:
    xs, ys = [x for x, _ in events], [y for _, y in events]
    np.testing.assert_array_equal(one.advance(xs, ys), other.advance(xs, ys))
    assert encode({"main": one}) == encode({"main": other})


# ---- every snapshot loads


def _tiny(rng: np.random.Generator, i: int) -> dict[str, float]:
    """Numbers whose variance is a number, and one over it in float32 none."""
    return {"a": float(rng.normal()) * 1e-39, "b": float(rng.normal()) * 1e-41}


def _jumping(rng: np.random.Generator, i: int) -> dict[str, float]:
    """Almost nothing at first, then as much as may be: metrics made for the one meet the other."""
    scale = 1e15 if i >= 64 else 1e-13
    return {f"j{j}": float(rng.choice([-1, 1]) * rng.random()) * scale for j in range(6)}


def _late(rng: np.random.Generator, i: int) -> dict[str, float]:
    """No feature at all before the first trees stand."""
    return {f"e{j}": float(rng.normal()) for j in range(3)} if i >= 70 else {}


@pytest.mark.parametrize("split", ["ncm", "svm"])
@pytest.mark.parametrize("metric", ["auto", "full-scaled", "whitened"])
@pytest.mark.parametrize("made", [_tiny, _jumping, _late])
def test_what_it_learned_can_be_loaded(made: Any, metric: str, split: str) -> None:
    if split == "svm" and metric == "full-scaled":
        metric = "within"
    rng = np.random.default_rng(1)
    forest = NCMForestClassifier(n_trees=5, metric=metric, split=split, n_planes=5, seed=1)
    events = [(made(rng, i), int(rng.integers(0, 3))) for i in range(200)]
    for i, (x, y) in enumerate(events[:160]):
        forest.learn_one(x, y)
        if i % 8 == 0:
            _again(forest)
    _same_later(_again(forest), forest, events[160:])


def test_rows_taken_in_between_leave_no_counts_behind() -> None:
    """Answers of an epoch that `extend_many` ends were once counted to later ones, without a bound."""
    rng = np.random.default_rng(1)
    forest = NCMForestClassifier(n_trees=3, seed=1)
    for _ in range(12):
        X, y = rng.normal(size=(40, 3)), rng.integers(0, 4, 40)
        forest.advance(X, y)
        forest.extend_many(X + 1.0, y)
        _again(forest)
    assert (forest._retraining.metrics.error <= 1).all()


def test_counts_of_rounds_end_before_they_hurt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MAX_KEPT", 3)
    monkeypatch.setattr(training, "MAX_ROUNDS", 5)
    rng = np.random.default_rng(1)
    forest = NCMForestClassifier(n_trees=1, strategy="hirf", seed=1)
    forest.fit_many(rng.normal(size=(50, 3)), rng.integers(0, 2, 50))
    for _ in range(9):  # the only tree is never worse than the mean: it is kept for ever
        forest.extend_many(rng.normal(size=(4, 3)), rng.integers(0, 2, 4))
    info = forest._trees[0].info
    assert info["kept"][0] == 3
    assert info["rounds"][0] == 5
    _again(forest)


@pytest.mark.timeout(60)
def test_leaves_of_many_classes_are_cut() -> None:
    """Room for histograms was once made by rows alone: with more classes than that it never sufficed."""
    rng = np.random.default_rng(1)
    forest = NCMForestClassifier(
        n_trees=2, strategy="rust", memory=100, mu=10, class_batch=1, class_ready=1, pi=0.5, seed=1
    )
    y = np.minimum(rng.integers(0, 60, 600), np.arange(600) // 2)
    forest.advance(rng.normal(size=(600, 3)), y)
    _again(forest)


# ---- memory


def _growing(widths: list[tuple[int, int]]) -> Iterator[Event]:
    """So many events of so many features each, one after the other."""
    rng = np.random.default_rng(1)
    for n, width in widths:
        for _ in range(n):
            values = rng.normal(size=width).tolist()
            yield {f"f{j:05}": v for j, v in enumerate(values)}, int(rng.integers(0, 4))


def _total_bytes(forest: NCMForestClassifier) -> int:
    return inspection.total_bytes(forest._parts(), forest._retraining)


def _most_numbers(forest: NCMForestClassifier) -> int:
    """Numbers in the largest matrix that a tree or the means measure with."""
    trees = [*forest._trees, *(job.tree() for job in forest._retraining.jobs)]
    sizes = [tree.metric.size for tree in trees]
    return max(*sizes, forest._means.arrays.scatter.size, forest._means.arrays.inverse[0].size)


def test_no_matrix_is_widened_beyond_the_bound() -> None:
    """Whole metrics are diagonals before a column after the 320th has a place in them."""
    forest = NCMForestClassifier(n_trees=5, metric="full", swap_after=64, event_credit=5.0, seed=1)
    for i, (x, y) in enumerate(_growing([(300, 30), (40, 300), (60, 700)])):
        forest.learn_one(x, y)
        assert _most_numbers(forest) <= 480 * 480
        if i % 20 == 0:
            assert _total_bytes(forest) <= forest.summary()["max_bytes"]
    assert {len(tree.metric) for tree in forest._trees} == {1}


@pytest.mark.parametrize(
    "features", [2_000, pytest.param(9_990, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_few_events_of_very_many_features_take_little(features: int) -> None:
    """Sixty of 9,990 features once made a forest of 12 GB."""
    rng = np.random.default_rng(1)
    forest = NCMForestClassifier(seed=1)
    for r in range(60):
        forest.advance(rng.normal(size=(1, features)), [r % 3])
        assert _total_bytes(forest) < 4_000 * features
    assert len(encode({"main": forest})) < 4_000 * features


@pytest.mark.parametrize(
    "events", [70, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_features_that_never_end_take_little(events: int) -> None:
    """Each event has thirty features that nobody has seen."""
    rng = np.random.default_rng(1)
    forest = NCMForestClassifier(seed=1)
    for r in range(events):
        x = {f"f{j:05}": float(rng.normal()) for j in range(30 * r, 30 * r + 30)}
        forest.learn_one(x, r % 3)
        assert _total_bytes(forest) < 100e6
        assert _most_numbers(forest) <= 480 * 480
    assert len(forest._features) == 30 * events


def test_a_wide_event_after_many_narrow_ones_takes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that stand lose their lower parts before they are widened, and the memory loses rows."""
    monkeypatch.setattr(ncm_width, "_CENTROID_NUMBERS", 1 << 22)
    monkeypatch.setattr(ncm_width, "_ROW_NUMBERS", 1 << 18)
    rng = np.random.default_rng(1)
    forest = NCMForestClassifier(n_trees=5, memory=1_000, seed=1)
    forest.advance(rng.normal(size=(1_000, 8)), rng.integers(0, 20, 1_000))
    before = sum(int(tree.info["n_rows"][0]) for tree in forest._trees)
    assert before * 2_000 > 2 * (1 << 22)
    forest.advance(rng.normal(size=(70, 2_000)), rng.integers(0, 20, 70))
    assert sum(int(tree.info["n_rows"][0]) for tree in forest._trees) * 2_000 <= 1 << 22
    assert forest._memory.n <= 1_000 * 1_024 // 2_000 + 64
    assert _total_bytes(forest) <= forest.summary()["max_bytes"]
    assert sum(tree.cen.nbytes for tree in forest._trees) <= 2 * 4 * (1 << 22)


@pytest.fixture
def narrow_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of columns at sizes that a test can afford."""
    monkeypatch.setattr(ncm_width, "FULL_WIDTH", 16)
    monkeypatch.setattr(ncm_width, "WIDE", 32)
    monkeypatch.setattr(ncm_width, "_ROW_NUMBERS", 1 << 11)
    monkeypatch.setattr(ncm_width, "_CENTROID_NUMBERS", 1 << 11)


_WIDTHS = [(290, 5), (30, 14), (70, 21), (80, 30), (60, 60), (70, 90)]


@pytest.mark.usefixtures("narrow_bounds")
@pytest.mark.parametrize("strategy", ["rolling", "rust", "hirf"])
def test_the_bounds_are_rules_of_the_rows_alone(strategy: str) -> None:
    """The same for any batch size, before and after a load, with trees under way or without."""
    made: dict[str, Any] = {
        "n_trees": 3, "swap_after": 64, "event_credit": 5.0, "strategy": strategy, "seed": 1,
    }  # fmt: skip
    single, batch = NCMForestClassifier(**made), NCMForestClassifier(**made)
    events = list(_growing(_WIDTHS))
    rng = np.random.default_rng(1)
    pending = at = 0
    while at < len(events):
        n = int(rng.integers(1, 40))
        for x, y in events[at : at + n]:
            single.learn_one(x, y)
        xs, ys = zip(*events[at : at + n])
        batch.advance(list(xs), list(ys))
        at += n
        pending += len(single._retraining.jobs)
        assert encode({"main": single}) == encode({"main": batch})
        copy = _again(single)
        if rng.random() < 0.4:
            single = copy
    assert pending > 0
    assert max(int(tree.info["n_rows"][0]) for tree in single._trees) <= (1 << 11) // (3 * 96)
    assert single._memory.n <= single.memory * 32 // 90 + 64


@pytest.mark.usefixtures("narrow_bounds")
def test_files_with_widened_matrices_still_load() -> None:
    """As they were written in an epoch that brought the column after the bound."""
    forest = NCMForestClassifier(n_trees=3, metric="full", seed=1)
    events = list(_growing([(70, 14), (80, 21)]))
    for x, y in events[:80]:
        forest.learn_one(x, y)
    n, old = forest._columns.n, forest._columns.counting
    assert (n, old) == (21, 14)
    tensors, content = snapshot._parse(encode({"main": forest}))
    prefix = "models/main/0/"

    def widened(name: str, layers: int) -> None:
        array = tensors[prefix + name].reshape(layers, old, old)
        wide = np.zeros((layers, n, n), array.dtype)
        wide[:, :old, :old] = array
        tensors[prefix + name] = wide.ravel()

    widened("means.shrunk_covariance", 2)
    widened("tree.weights", 3)
    tensors[prefix + "means.scatter"] = np.diag(tensors[prefix + "means.scatter"]).ravel()
    tensors[prefix + "tree.metric_rows"] = np.full(3, 24)
    loaded = decode(sealed(tensors, content))[0]["main"]
    _same_later(loaded, forest, events[80:])


# ---- forged files


@pytest.mark.parametrize(
    ("field", "at", "value"),
    [
        ("retraining_jobs.started", 0, None),
        ("retraining_jobs.swap_at", 0, 731),
        ("tree.kept", 0, 2**53),
        ("tree.kept", 0, 2**20),
        ("tree.rounds", 0, 2**40),
        ("tree.bag", 0, 2**40),
        ("tree.draws", 0, 2**62),
    ],
)
def test_counts_and_links_are_believed_within_reason(
    field: str, at: int, value: int | None
) -> None:
    forest = under_way(strategy="hirf")
    assert len(forest._retraining.jobs) == 2
    if value is None:
        value = forest._retraining.jobs[at].view.born - 1
    with pytest.raises(SnapshotError, match="damaged"):
        decode(changed(encode({"main": forest}), field, at, value))


def test_a_row_cannot_be_put_into_a_tree_twice() -> None:
    """With the clock of all jobs and their trees set back by an epoch as well."""
    forest = under_way(strategy="rolling")
    tensors, content = snapshot._parse(encode({"main": forest}))
    for field in ("retraining_jobs.started", "retraining_jobs.swap_at"):
        tensors[f"models/main/0/{field}"] -= 64
    tensors["models/main/0/tree.born"][2:] -= 64
    with pytest.raises(SnapshotError, match="damaged"):
        decode(sealed(tensors, content))


def _forge(seed: int, files: int, limit: float, **environment: str) -> None:
    """In a process of its own, so that one that hangs or crashes is found out."""
    tests = Path(__file__).parents[2]
    path = os.pathsep.join([str(tests), *sys.path])
    child = subprocess.run(
        [sys.executable, "-m", "support.ncm_forged", str(seed), str(files)],
        env={**os.environ, "PYTHONPATH": path, "STREAMFOREST_QUIET": "1", **environment},
        capture_output=True,
        text=True,
        timeout=limit,
    )
    last = child.stdout.splitlines()[-1:]
    assert child.returncode == 0, (last, child.stderr[-2_000:])
    assert last[0].startswith("refused"), last


@pytest.mark.timeout(300)
def test_forged_numbers_are_refused_or_run() -> None:
    _forge(1, 100, limit=240)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_forged_numbers_with_bounds_checked(tmp_path: Path) -> None:
    """Kernels that check every index are others: they are compiled into a folder of their own."""
    _forge(2, 2_000, limit=3_000, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))


# ---- the largest value


@pytest.mark.parametrize("value", [1.1e15, -1e16, 1e300])
def test_a_value_beyond_the_largest_is_refused_on_every_path(value: float) -> None:
    forest = NCMForestClassifier(n_trees=2, seed=1)
    rng = np.random.default_rng(1)
    good = pd.DataFrame(rng.normal(size=(20, 3)), columns=list("abc"))
    forest.learn_many(good, pd.Series(np.arange(20) % 2))
    before = encode({"main": forest})
    bad = good.copy()
    bad.loc[7, "b"] = value
    row = bad.loc[7].to_dict()
    labels = [0] * 20
    with pytest.raises(FeatureError, match=r"'b'.*beyond the 1e\+15.*scale it"):
        forest.learn_one(row, 1)
    with pytest.raises(FeatureError, match=r"'b'.*beyond"):
        forest.predict_one(row)
    for X in (bad, bad.to_dict("records")):
        with pytest.raises(FeatureError, match=r"row 7: .*'b'.*beyond"):
            forest.advance(X, labels)
        with pytest.raises(FeatureError, match=r"row 7: .*'b'.*beyond"):
            forest.advance(X, None, [PREDICT] * 20)
    with pytest.raises(FeatureError, match="row 7"):
        forest.learn_many(bad, pd.Series(labels))
    assert encode({"main": forest}) == before
    array = NCMForestClassifier(n_trees=2, nonfinite="missing", seed=1)
    X = bad.to_numpy().copy()
    X[3, 0] = np.inf  # missing; what comes after it is still seen
    with pytest.raises(FeatureError, match=r"row 7: .*beyond"):
        array.advance(X, labels)
    forest.learn_one({"a": 1e15, "b": -1e15, "c": 0.0}, 1)
    forest.predict_one({"a": 1e15, "b": -1e15, "c": 0.0})
