"""The measuring parts of the benchmark, on models made for the purpose."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamforest import datasets
from streamforest.bench import machine, output
from streamforest.bench.forest.best_rivals import duels
from streamforest.bench.forest.comparison import Settings, fit_trees, models
from streamforest.bench.forest.contestant import Batches, ModelSpec, Setting, by_dicts
from streamforest.bench.forest.measurement import Measurement, measure, windowed
from streamforest.bench.forest.model_process import Request
from streamforest.bench.forest.results import ForestResult, Row, Runs, StreamResult
from streamforest.bench.forest.run_cache import RunCache
from streamforest.datasets import Label, Stream
from streamforest.errors import ConfigError


class Majority:
    """The class seen most often so far; also the batch-wise contract of our forests."""

    def __init__(self) -> None:
        self.counts: Counter[Label] = Counter()
        self.classes_: list[Label] = []

    def predict_one(self, x: dict[str, float]) -> Label | None:
        return max(self.counts, key=self.counts.__getitem__, default=None)

    def learn_one(self, x: dict[str, float], y: Label) -> None:
        self.counts[y] += 1

    def advance(self, X: Any, y: Any) -> Any:
        guesses = []
        for label in y:
            guesses.append(self.predict_one({}))
            self.learn_one({}, label)
        self.classes_ = list(self.counts)
        one_hot = [[float(guess == label) for label in self.classes_] for guess in guesses]
        return np.array(one_hot)


MAJORITY = ModelSpec("majority", "majority", lambda s: by_dicts(Majority(), s.stream.features))


@pytest.fixture(scope="module")
def stream() -> Stream:
    return datasets.load("phishing")


def expected(stream: Stream) -> list[bool]:
    model, correct = Majority(), []
    for x, label in stream.dicts():
        correct.append(model.predict_one(x) == label)
        model.learn_one(x, label)
    return correct


def test_each_event_is_predicted_before_it_is_learned(stream: Stream) -> None:
    steps: list[int] = []
    found = measure(MAJORITY, Setting(stream, 1, 0), on_progress=steps.append)
    assert found.correct.tolist() == expected(stream)
    assert found.events == len(stream) == steps[-1]
    assert not found.truncated
    assert 0 < found.cpu_us() < 1e4
    assert found.cpu_us(7) > 0
    assert found.predict_us is not None
    assert found.learn_us is not None
    assert 0 < found.predict_us[0] <= found.predict_us[1]
    assert found.accuracy(10) == np.mean(expected(stream)[:10])


def test_batches_are_judged_like_single_events(stream: Stream) -> None:
    spec = ModelSpec(
        "m", "m", lambda s: Batches(models.by_batches(Majority(), ["x"]).advance, size=100)
    )
    found = measure(spec, Setting(stream, 1, 0))
    assert found.correct.tolist() == expected(stream)
    assert found.predict_us is None


def test_budget_cuts_a_run_short_and_says_so(stream: Stream) -> None:
    class Slow(Majority):
        def learn_one(self, x: dict[str, float], y: Label) -> None:
            end = time.process_time() + 0.001
            while time.process_time() < end:
                pass

    spec = ModelSpec("slow", "slow", lambda s: by_dicts(Slow(), s.stream.features))
    found = measure(spec, Setting(stream, 1, 0), budget=0.05)
    assert found.truncated
    assert 50 <= found.events < len(stream)


def test_memory_is_what_the_model_holds(stream: Stream) -> None:
    if machine.anonymous_bytes() is None:
        pytest.skip("this system does not tell")

    class Hoarder(Majority):
        def __init__(self) -> None:
            super().__init__()
            self.hoard = np.ones(4_000_000)

    spec = ModelSpec("hoarder", "hoarder", lambda s: by_dicts(Hoarder(), s.stream.features))
    found = measure(spec, Setting(stream, 1, 0), events=100)
    assert found.memory_bytes is not None
    assert 28e6 < found.memory_bytes < 40e6


def test_windowed_accuracy_is_thinned_to_the_points_asked_for() -> None:
    correct = np.arange(10_000) >= 5_000
    ends, accuracy = windowed(correct, window=1_000, points=100)
    assert len(ends) == 100
    assert ends[-1] == 10_000
    assert accuracy[0] == 0
    assert accuracy[-1] == 1
    assert len(windowed(correct[:3], window=50)[0]) == 3


def run_that_costs(microseconds: float) -> Measurement:
    marks = np.array([1_000]), np.array([int(microseconds * 1e6)])
    return Measurement(np.ones(1_000, bool), marks, None, None, None, False)


@pytest.mark.parametrize(
    ("a_event", "a_tree", "target", "trees"),
    [(0, 2, 200, 100), (10, 2, 200, 95), (10, 2, 5, 1), (5, 1, 1e6, 500)],
)
def test_trees_that_fit_into_a_rivals_time(
    a_event: float, a_tree: float, target: float, trees: int
) -> None:
    fit = fit_trees(
        lambda n: run_that_costs(a_event + a_tree * n),
        start=10,
        start_cost=a_event + a_tree * 10,
        target=target,
        ceiling=500,
    )
    assert fit.trees == pytest.approx(trees, rel=0.05)


def test_speed_is_that_of_the_events_asked_for() -> None:
    marks = np.array([50, 100]), np.array([50_000, 250_000])
    run = Measurement(np.ones(100, bool), marks, None, None, None, False)
    assert run.cpu_us() == 2.5
    assert run.cpu_us(50) == 1
    assert run.cpu_us(75) == 2


def test_kappa_is_accuracy_beyond_chance(stream: Stream) -> None:
    labels = stream.y.tolist()
    n = len(labels)
    run = measure(MAJORITY, Setting(stream, 1, 0))
    guesses: list[Any] = []
    counted = Majority()
    for x, y in stream.dicts():
        guesses.append(counted.predict_one(x))
        counted.learn_one(x, y)
    chance = sum(guesses.count(k) / n * labels.count(k) / n for k in set(labels))
    assert run.chance == pytest.approx(chance)
    assert run.kappa == pytest.approx((run.accuracy() - chance) / (1 - chance))
    same = float((stream.y[1:] == stream.y[:-1]).sum()) / n
    assert run.kappa_temporal(stream.y) == pytest.approx((run.accuracy() - same) / (1 - same))


def test_every_contestant_is_known_by_name() -> None:
    assert {"consistent", "consistent-batch", "river-arf", "capymoa-srp"} <= set(models.names())
    assert {"no-change", "majority", "capymoa-samknn", "capymoa-sgbt"} <= set(models.names())
    with pytest.raises(ConfigError, match=r"'arf'.*river-arf"):
        models.get_spec("arf")


@pytest.mark.parametrize(
    "wrong",
    [
        {"trees": 0},
        {"events": 0},
        {"budget": 0.0},
        {"repeats": 0},
        {"seeds": ()},
        {"equal_cpu": "all"},
        {"streams": ("digit",)},
        {"models": ("arf",)},
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Settings(**wrong)


def test_files_that_cannot_be_written_are_refused_beforehand(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--json"):
        output.check_output("--json", tmp_path / "no" / "out.json")
    with pytest.raises(ConfigError, match="--json"):
        output.check_output("--json", tmp_path)
    with pytest.raises(ConfigError, match=r"--plot|matplotlib"):
        output.check_output("--plot", tmp_path / "out.xyz")


def test_versions_name_every_package() -> None:
    found = machine.versions()
    assert {"python", "numpy", "river", "capymoa", "java"} <= set(found)
    assert found["river"] != "–"


def _run(correct: list[bool], truncated: bool = False) -> Measurement:
    n = len(correct)
    marks = np.array([n]), np.array([n * 1_000])
    return Measurement(np.array(correct), marks, (1.0, 2.0, 3.0), None, None, truncated)


def test_a_kept_run_is_found_only_for_what_it_was(stream: Stream, tmp_path: Path) -> None:
    cells = RunCache(tmp_path / "cells")
    request = Request(trees=3, seed=1, events=4)
    run = _run([True, False, True, True])
    assert cells.find(MAJORITY, stream, request, 0) is None
    cells.keep(MAJORITY, stream, request, 0, run)
    found = cells.find(MAJORITY, stream, request, 0)
    assert found is not None
    assert found.correct.tolist() == run.correct.tolist()
    assert found.cpu_us() == run.cpu_us()
    assert found.predict_us == (1.0, 2.0, 3.0)
    assert found.learn_us is None
    assert cells.find(MAJORITY, stream, request, 1) is None
    assert cells.find(MAJORITY, stream, replace(request, seed=2), 0) is None
    assert cells.find(MAJORITY, stream, replace(request, trees=4), 0) is None
    assert cells.find(MAJORITY, stream.head(9), request, 0) is None
    assert cells.find(replace(MAJORITY, packages=("numpy",)), stream, request, 0) is None
    assert cells.find(MAJORITY, stream, replace(request, budget=9.0), 0) is not None
    (path,) = (tmp_path / "cells").iterdir()
    path.write_bytes(path.read_bytes()[:-20])  # damaged: measured again, not an error
    assert cells.find(MAJORITY, stream, request, 0) is None


def test_a_run_cut_short_is_kept_for_its_own_budget(stream: Stream, tmp_path: Path) -> None:
    cells = RunCache(tmp_path)
    request = Request(trees=3, seed=1, events=900, budget=5.0)
    cells.keep(MAJORITY, stream, request, 0, _run([True] * 3, truncated=True))
    found = cells.find(MAJORITY, stream, request, 0)
    assert found is not None
    assert found.truncated
    assert found.events == 3
    assert cells.find(MAJORITY, stream, replace(request, budget=6.0), 0) is None
    assert cells.find(MAJORITY, stream, replace(request, budget=None), 0) is None


def test_the_best_rival_is_judged_over_its_own_events() -> None:
    stream = datasets.load("bananas", events=8)
    rows = {}
    for name, correct in (
        ("stream", [True] * 4 + [False] * 4),
        ("river-arf", [True] * 4 + [False, False, False, True]),
        ("river-srp", [True, True, True]),
    ):
        runs = Runs(truncated=len(correct) < 8)
        runs.add(0, _run(correct))
        rows[name] = Row(models.get_spec(name), 10, runs)
    result = StreamResult(stream, rows)
    (duel,) = duels(ForestResult(Settings(), [result]))
    assert duel.rival.spec.name == "river-arf"  # .625, though the other has 1.0 on easier events
    assert duel.verdict == "below"
    assert duel.accuracies == (0.5, 0.625)
