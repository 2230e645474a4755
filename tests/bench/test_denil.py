"""The figures of Denil et al. 2013: small runs of each, what they write, and what they skip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("matplotlib")

from streamforest.bench import denil as benchmark
from streamforest.bench.denil import bodyparts, fringe, mixture, report
from streamforest.bench.denil.common import Curve, Figure, Options, Panel, log_spaced, transposed
from streamforest.cli.bench.denil import FIGURES, denil
from streamforest.datasets import DATA_VARIABLE, digits, gaussians, gaussians_bayes_rate
from streamforest.errors import ConfigError


class Silent:
    """A watcher that only counts."""

    def __init__(self) -> None:
        self.steps = 0

    def begin(self, what: str, total: int) -> None:
        assert what
        assert total > 0
        self.steps += 1

    def update(self, done: int) -> None:
        assert done > 0


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv(DATA_VARIABLE, str(folder))
    return folder


@pytest.fixture
def small_usps(no_data: Path) -> Path:
    """A file in the form of USPS, made of scikit-learn's digits."""
    stream = digits(passes=1)
    np.savez(
        no_data / "usps.npz",
        x=stream.X.astype(np.uint8),
        y=stream.y,
        classes=np.array([str(k) for k in range(10)]),
        scale=np.float32(1 / 16),
        test=np.arange(len(stream)) >= 1_300,
    )
    return no_data


def call(*arguments: str) -> Result:
    return CliRunner().invoke(denil, list(arguments), catch_exceptions=False)


def is_picture(path: Path) -> bool:
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 5_000


def written(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert content["benchmark"] == "denil"
    for figure in content["figures"]:
        for panel in figure["panels"]:
            for curve in panel["curves"]:
                points = len(curve["x"])
                assert points == len(curve["mean"]) == len(curve["spread"])
                assert all(len(run) == points for run in curve["runs"])
                if panel["unit"] == "share":
                    assert all(0 <= value <= 1 for run in curve["runs"] for value in run)
                else:
                    assert all(value > 0 for run in curve["runs"] for value in run)
    return content


def test_all_figures_quickly_with_tables_json_and_pictures(
    small_usps: Path, tmp_path: Path
) -> None:
    target = tmp_path / "plots"
    result = call("--quick", "--json", str(tmp_path / "all.json"), "--plot", str(target))
    assert result.exit_code == 0
    for text in ("Bayes rule", "offline", "ours", "at most 1,000", "unbounded", "± "):
        assert text in result.output
    content = written(tmp_path / "all.json")
    assert [figure["figure"] for figure in content["figures"]] == list(FIGURES)
    assert all(figure["skipped"] is None for figure in content["figures"])
    assert sorted(path.name for path in target.iterdir()) == [
        "denil-2.png",
        "denil-3.png",
        "denil-4.png",
        "denil-5.png",
        "denil-fringe.png",
    ]
    assert all(is_picture(path) for path in target.iterdir())


def test_fig_2_the_forest_is_above_its_trees_and_below_bayes(tmp_path: Path) -> None:
    name = tmp_path / "two.png"
    result = call(
        *("--figure", "2", "--runs", "2", "--events", "2000", "--trees", "25"),
        *("--json", str(tmp_path / "two.json"), "--plot", str(name)),
    )
    assert result.exit_code == 0
    assert is_picture(name)
    (figure,) = written(tmp_path / "two.json")["figures"]
    assert figure["facts"]["above_trees_at_every_point_of_every_run"]
    below = figure["facts"]["below_the_bayes_rule_on_the_same_rows"]
    assert 0 < below[mixture.MEAN] < 0.03
    assert figure["panels"][0]["curves"][0]["x"][0] == 100


def test_the_bayes_rate_is_that_of_the_bayes_rule_on_many_rows() -> None:
    rate = gaussians_bayes_rate()
    assert rate == pytest.approx(gaussians_bayes_rate(step=0.05), abs=1e-5)
    assert rate == pytest.approx(gaussians(200_000, seed=5).bayes_rate, abs=0.004)


def test_the_authors_mixture_has_the_bayes_rate_of_its_rows() -> None:
    rate = mixture.bayes_rate()
    assert rate == pytest.approx(mixture.bayes_rate(0.05), abs=1e-5)
    X, y = mixture.draw(200_000, seed=5)
    assert (mixture.densities(X).argmax(axis=1) == y).mean() == pytest.approx(rate, abs=0.004)
    for k in range(5):
        own = X[y == k]
        np.testing.assert_allclose(own.mean(axis=0), mixture.MEANS[k], atol=0.06)
        np.testing.assert_allclose(np.cov(own.T), mixture.COVARIANCES[k], atol=0.12)


def test_without_usps_fig_3_says_that_it_is_skipped_and_why(no_data: Path, tmp_path: Path) -> None:
    result = call(
        *("--figure", "3", "--quick", "--json", str(tmp_path / "three.json")),
        *("--plot", str(tmp_path / "three.png")),
    )
    assert result.exit_code == 0
    assert "skipped" in result.output
    assert "usps.npz" in result.output
    assert DATA_VARIABLE in result.output
    (figure,) = written(tmp_path / "three.json")["figures"]
    assert "usps.npz" in figure["skipped"]
    assert figure["panels"] == []
    assert not (tmp_path / "three.png").exists()


def test_fig_5_same_bytes_for_all_and_a_picture_of_one_pose(tmp_path: Path) -> None:
    result = call(
        *("--figure", "5", "--quick", "--poses", "4", "--candidates", "20"),
        *("--json", str(tmp_path / "five.json"), "--plot", str(tmp_path / "five.png")),
    )
    assert result.exit_code == 0
    assert is_picture(tmp_path / "five.png")
    assert is_picture(tmp_path / "five-4.png")
    (figure,) = written(tmp_path / "five.json")["figures"]
    allowed = figure["settings"]["fringe_bytes_allowed"]
    assert allowed == 2 * bodyparts.bytes_a_tree(20)
    peaks = figure["facts"]["peak_fringe_bytes"]
    assert len(peaks) == 3
    # classes that a leaf meets after it was let in may take a tree over its bound by a little
    assert all(0 < peak < 1.25 * allowed for peak in peaks.values())


def test_fringe_bound_saves_memory_and_digits_stand_in_for_letter(no_data: Path) -> None:
    figure = fringe.run(Options(quick=True, runs=2, events=1_500), Silent())
    assert "at most 10 gives" in figure.findings[0]
    assert "digits" in figure.findings[-1]
    assert "letter.npz" in figure.findings[-1]
    assert [panel.title for panel in figure.panels] == ["gaussians"] * 3 + ["digits"] * 3
    for panel in figure.panels:
        assert [curve.name for curve in panel.curves] == [
            "at most 10",
            "at most 100",
            "at most 1,000",
            "unbounded",
        ]
        if panel.unit == "bytes":
            assert panel.curves[0].mean[-1] < panel.curves[-1].mean[-1]


def test_the_same_seed_gives_the_same_figure_with_any_number_of_threads() -> None:
    once, again = (
        mixture.run(Options(quick=True, runs=1, events=400, n_jobs=jobs), Silent())
        for jobs in (1, 2)
    )
    assert once.as_json() == again.as_json()


def test_measure_runs_the_figures_asked_for_in_order(no_data: Path) -> None:
    watcher = Silent()
    options = Options(quick=True, runs=1, events=200)
    figures = list(benchmark.measure(["3", "2"], options, watcher))
    assert [figure.key for figure in figures] == ["3", "2"]
    assert figures[1].seconds > 0
    assert watcher.steps == 1
    assert tuple(benchmark.FIGURES) == FIGURES


def test_scale_of_fig_5_follows_the_options() -> None:
    assert bodyparts.scale_of(Options()) == bodyparts.LAPTOP
    paper = bodyparts.scale_of(Options(full=True))
    assert (paper.trees, paper.candidates, paper.poses, paper.runs) == (25, 2_000, 2_000, 5)
    assert bodyparts.scale_of(Options(events=3_000)).poses == 3
    assert bodyparts.scale_of(Options(events=10)).poses == 1
    assert bodyparts.scale_of(Options(trees=7, candidates=11, poses=13)).trees == 7


def test_curves_and_points() -> None:
    assert transposed([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]) == [[[1, 3], [5, 7]], [[2, 4], [6, 8]]]
    assert log_spaced(100, 100, 5) == [100]
    points = log_spaced(5, 8, 20)
    assert points == sorted(set(points)) == [5, 6, 7, 8]
    assert Curve("one run", [1.0], [[0.25]]).spread == [0.0]


def test_one_run_has_no_spread_in_its_table() -> None:
    curve = Curve("forest", [100.0], [[0.5]])
    assert report.cell(curve, 0, "share") == ".500"
    curve.runs.append([0.7])
    assert report.cell(curve, 0, "share") == ".600 ± .141"


@pytest.mark.parametrize(
    "arguments",
    [("--figure", "7"), ("--runs", "0"), ("--quick", "--full"), ("--candidates", "5000")],
)
def test_wrong_usage_ends_with_code_2(arguments: tuple[str, ...]) -> None:
    assert call(*arguments).exit_code == 2


def test_places_that_cannot_be_written_are_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for option, place in (
        ("--json", tmp_path / "missing" / "a.json"),
        ("--plot", tmp_path / "missing" / "a.png"),
        ("--plot", tmp_path / "missing" / "folder"),
        ("--plot", tmp_path / "a.jpeg"),
        ("--plot", tmp_path / "file"),
    ):
        with pytest.raises(ConfigError, match=option):
            call("--quick", option, str(place))


def test_one_picture_for_each_measured_figure() -> None:
    panel = Panel("", "", "", [Curve("a", [1.0], [[0.5]])])
    figures = [Figure("2", "", panels=[panel]), Figure("3", "", skipped="no data")]
    assert report.picture_paths(Path("a.svg"), figures) == {"2": Path("a.svg")}
