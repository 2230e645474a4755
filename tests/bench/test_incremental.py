"""`bench incremental` and `bench hirf` as a user runs them, short, on the set that every machine has."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from streamforest.bench.incremental import (
    baselines,
    cost_and_novelty,
    paper_figures,
    protocol,
    report,
    splits,
)
from streamforest.bench.incremental.low_rank_metric import LowRankMetric
from streamforest.cli import root
from streamforest.datasets import DATA_VARIABLE
from streamforest.errors import ConfigError


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["bench", *arguments])


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("bench")
    done = invoke(
        *("incremental", "--set", "digits", "--trees", "5", "--orders", "2", "--chunk", "3"),
        *("--part", "strategies", "--part", "novelty"),
        *("--json", str(folder / "out.json"), "--plot", str(folder / "out.png")),
    )
    assert done.exit_code == 0, done.output
    return done, json.loads((folder / "out.json").read_text()), folder


def test_strategies_stand_in_the_papers_order(
    short_run: tuple[Result, dict[str, Any], Path],
) -> None:
    done, document, folder = short_run
    assert "digits: 10 classes from 2, 3 batches, 1,438 rows; 5 trees" in done.stdout
    (found,) = document["sets"]["digits"]["strategies"]
    last = {(c["name"], c["order"]): c["points"][-1] for c in found["courses"]}
    for order in (0, 1):
        uls, igt, rtst, hirf, best = (
            last[name, order]["accuracy"] for name in ("uls", "igt", "rtst", "hirf", "retrained")
        )
        assert uls < igt <= rtst
        assert uls < 0.6 * best
        assert igt > 0.85 * best
        assert abs(hirf - best) < 0.06
    assert all(point["classes"] == 10 for point in last.values())
    assert (folder / "out.png").stat().st_size > 10_000
    assert document["sets"]["digits"]["novelty"][0] > 0.85


def test_time_is_that_of_retraining_at_every_batch() -> None:
    settings = protocol.Settings(strategies=("igt",), initial=10, chunk=10)
    found = protocol.Found("x", 40, 100, settings)
    for name, points in (
        ("retrained", [(10, 1.0), (40, 4.0)]),
        ("igt", [(40, 1.8)]),
    ):
        course = protocol.Course(name, "ncm", 0)
        course.points = [
            protocol.Point(classes, 0.5, 0.5, 0.5, seconds, 1.0) for classes, seconds in points
        ]
        found.courses.append(course)
    # retrained at 20, 30 and 40 classes: 2 + 3 + 4 seconds
    assert found.time_ratio(found.courses[1]) == pytest.approx(1.8 / 9)
    assert found.relative(found.courses[1]) == 1.0
    assert report.panels(found)[0].lines[0].x[-1] == pytest.approx(9.0)


def test_classes_come_in_an_order_and_none_is_lost() -> None:
    data = splits.load("digits")
    other = data.in_order(3)
    assert (np.diff(other.y) >= 0).all()
    assert np.bincount(other.y).sum() == len(data.y)
    assert sorted(np.bincount(other.y)) == sorted(np.bincount(data.y))
    # a row keeps its class, whatever that is called now
    pairs = {(a, b) for a, b in zip(data.y_test.tolist(), other.y_test.tolist())}
    assert len(pairs) == 10
    X, y = other.known(4)
    assert set(y.tolist()) == {0, 1, 2, 3}
    assert len(X) == len(y)


def test_the_baselines_beside_ours() -> None:
    data = splits.load("digits")
    found = baselines.run(data, 5, ("ncm",), only=("NCM forest", "nearest class mean"))
    reached = {one.model: one.accuracy for one in found}
    assert len(reached) == 4
    means = [v for name, v in reached.items() if name.startswith("nearest")]
    assert reached["NCM forest, 5 trees"] > max(means)


def test_a_metric_learns_what_tells_classes_apart() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    X = rng.normal(size=(600, 20))
    X[:, 3] += 3.0 * y
    noise = X * np.array([1.0 if f == 3 else 2.0 for f in range(20)])
    model = LowRankMetric(rank=3, passes=20).fit(noise[:400], y[:400])
    assert (model.predict(noise[400:]) == y[400:]).mean() > 0.85
    weight = (model.W**2).sum(axis=0)
    assert weight.argmax() == 3


def test_a_metric_of_initial_classes_knows_the_later_ones_by_their_means() -> None:
    rng = np.random.default_rng(0)
    y = np.sort(rng.integers(0, 6, 900))
    X = rng.normal(size=(900, 12)) * 3.0
    X[:, 2] += 3.0 * (y % 2)  # what tells the first two apart
    X[:, 7] += 9.0 * (y // 2)  # and what does not
    test = rng.permutation(900)[:300]
    model, whole = LowRankMetric(rank=3), LowRankMetric(rank=3)
    model.fit(X, y, initial=2)
    whole.fit(X, y)
    weight = (model.W**2).sum(axis=0)
    assert weight.argmax() == 2
    later = test[y[test] >= 2]
    reached = [(m.predict(X[later]) == y[later]).mean() for m in (model, whole)]
    assert len(model.points) == 6
    assert reached[0] < reached[1] - 0.1  # the paper's finding: it does not generalise
    only = LowRankMetric(rank=3).fit(X[y < 2], y[y < 2])
    np.testing.assert_allclose(model.W, only.W)  # rows of later classes had no part in it


def test_cost_and_latency() -> None:
    data = splits.load("digits")
    costs = cost_and_novelty.cost(data, trees=3, mu=2)
    assert [one.classes for one in costs] == [10]
    assert costs[0].centroids > 3 * 2
    rows = np.random.default_rng(0).permutation(len(data.y))[:300]
    found = cost_and_novelty.latency(data.X[rows], data.y[rows], trees=2)
    assert [one.rebuilding for one in found] == ["off", "in the background", "in line"]
    assert found[0].grown == 2
    assert found[1].grown == found[2].grown > 2
    spread = [cost_and_novelty.Cost(c, 2.0 * c**0.5, 1, 1) for c in (10, 100, 1000)]
    assert cost_and_novelty.exponent(spread) == pytest.approx(0.5)


def test_hirf_runs_the_papers_figures(tmp_path: Path) -> None:
    done = invoke(
        *("hirf", "--set", "digits", "--trees", "4", "--side-search", "32", "--orders", "1"),
        *("--json", str(tmp_path / "out.json")),
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "out.json").read_text())["experiments"]
    assert [one["experiment"] for one in found] == [
        "Fig. II: one increment, from n % of the classes",
        "Fig. III: from 5 to 10 classes, 1 at a time",
    ]
    one, batches = (one["lines"] for one in found)
    assert [line["label"] for line in one if line["variant"] == "hirf"] == [
        f"{n} %" for n in range(10, 100, 10)
    ]
    assert {line["variant"] for line in one} == {"hirf", "hirf-growing"}
    assert {line["variant"] for line in batches} == set(protocol.VARIANTS)
    for line in one:
        assert abs(line["retrained"] - line["accuracy"]) < 0.15
        assert line["time_share"] > 0
    assert "mean" in done.stdout


def test_only_some_classes_and_other_nodes(tmp_path: Path) -> None:
    done = invoke(
        *("incremental", "--set", "digits", "--trees", "2", "--orders", "1", "--classes", "6"),
        *("--strategy", "rtst", "--pi", "0.5", "--node-sampling", "uniform", "--initial", "3"),
        *("--json", str(tmp_path / "out.json")),
    )
    assert done.exit_code == 0, done.output
    assert "digits: 6 classes from 3" in done.stdout
    assert "π 0.5" in done.stdout
    (found,) = json.loads((tmp_path / "out.json").read_text())["sets"]["digits"]["strategies"]
    assert found["settings"]["node_sampling"] == "uniform"
    assert {course["points"][-1]["classes"] for course in found["courses"]} == {6}


def test_figures_of_the_paper(tmp_path: Path) -> None:
    done = invoke(
        *("incremental", "--set", "digits", "--trees", "3", "--orders", "1", "--side-search", "32"),
        *("--paper", "6", "--paper", "7", "--paper", "8", "--split", "ncm", "--mu", "2"),
        *("--json", str(tmp_path / "out.json")),
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "out.json").read_text())["paper"]["digits"]
    assert list(found) == ["6", "7", "8"]
    crossed = {(row["sampling"], row["pi"]) for row in found["7"]["values"]}
    assert len(crossed) == 3 * 4
    by_name = {row["strategy"]: row for row in found["8"]["values"]}
    assert by_name["retrained"]["at_10"] == [1.0]
    assert by_name["uls"]["at_10"][0] < 0.8 < by_name["rtst"]["at_10"][0]
    assert "3 trees, µ 2" in done.stdout


@pytest.mark.slow
def test_other_figures_have_their_rows() -> None:
    settings = protocol.Settings(trees=2, mu=2, side_search=16)
    asked = paper_figures.Asked(splits.load("digits"), settings, 1, lambda text: None)
    assert len(paper_figures.figure_4(asked).rows) == 3
    assert [row["mu"] for row in paper_figures.figure_5(asked).values] == [1, 5, 10, 20, 50]
    ridge = paper_figures.figure_13(asked).values[0]
    assert ridge["accuracy"][0] > 0.85
    few, whole = (
        [row for row in paper_figures.figure_14(asked).values if row["columns"] == columns]
        for columns in (16, 64)
    )
    assert [row["model"] for row in few] == [row["model"] for row in whole]
    assert len(paper_figures.figure_11(asked).rows) == 4
    assert len(paper_figures.figure_12(asked).rows) == 5


def test_figure_10_has_ten_orders_whatever_is_asked() -> None:
    settings = protocol.Settings(trees=1, mu=2, side_search=4, classes=6)
    asked = paper_figures.Asked(splits.load("digits").first(6), settings, 1, lambda text: None)
    sheet = paper_figures.figure_10(asked)
    assert len(sheet.values[0]["relative"]) == 10
    assert sheet.title.endswith("(1 trees, µ 2, 10 orders)")


def test_mistakes_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for arguments, message in (
        (["--set", "nowhere"], "set 'nowhere' is not known; choose from: omniglot964"),
        (["--set", "digits", "--strategy", "best"], "strategy is 'best'; choose from: uls"),
        (["--set", "digits", "--side-search", "x"], "give greedy or a number"),
        (["--set", "digits", "--chunk", "0"], "chunk is 0; give at least 1"),
        (["--set", "digits", "--classes", "1"], "classes is 1; give at least 2"),
        (["--set", "digits", "--pi", "2"], "pi is 2.0; give a share of the nodes, 0 to 1"),
    ):
        done = invoke("incremental", *arguments)
        assert done.exit_code == 2, done.output
        assert message in done.stderr
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    done = invoke("incremental", "--set", "letter")
    assert done.exit_code == 1
    assert "set STREAMFOREST_DATA" in done.stderr


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ConfigError, match=r"pip install scikit-learn"):
        baselines.models(5, 100, ("ncm",))
