"""`bench few`: small runs, what they write, and what they skip."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

from streamforest.bench import few as benchmark
from streamforest.bench.few import protocol
from streamforest.cli.bench.few import EXPERIMENTS, few
from streamforest.datasets import DATA_VARIABLE


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv(DATA_VARIABLE, str(folder))
    return folder


def _save(folder: Path, name: str, classes: list[str], rows: int) -> None:
    """Clusters in the form of a recorded set."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(len(classes), 12)) * 2
    y = np.repeat(np.arange(len(classes)), rows)
    x = centres[y] + rng.normal(size=(len(y), 12))
    np.savez(folder / f"{name}.npz", x=x, y=y, classes=np.array(classes), scale=np.float32(1))


@pytest.fixture
def small_data(no_data: Path) -> Path:
    letters = [f"Latin/character{k:02}" for k in range(1, 27)]
    _save(no_data, "omniglot964", [*letters, "Greek/character01"], 20)
    names = ["BACKGROUND_Google", "okapi", "llama", "schooner", "ketch"]
    _save(no_data, "caltech101", names, 230)
    return no_data


def _invoke(*args: str) -> Result:
    return CliRunner().invoke(few, list(args))


def test_every_experiment_runs_and_is_written(small_data: Path, tmp_path: Path) -> None:
    file, picture = tmp_path / "few.json", tmp_path / "few.png"
    asked = ["--quick", "--runs", "1", "--trees", "3", "--json", str(file), "--plot", str(picture)]
    result = _invoke(*asked)
    assert result.exit_code == 0, result.output
    assert picture.stat().st_size > 10_000
    content = json.loads(file.read_text())
    assert content["benchmark"] == "few"
    assert content["versions"]["scikit-learn"]
    measured = {figure["figure"]: figure for figure in content["experiments"]}
    assert tuple(measured) == EXPERIMENTS == tuple(benchmark.EXPERIMENTS)
    for figure in measured.values():
        assert figure["skipped"] is None
        for panel in figure["panels"]:
            assert all(0 <= v <= 1 for curve in panel["curves"] for v in curve["mean"])
    names = [curve["name"] for curve in measured["1"]["panels"][0]["curves"]]
    assert names == [*protocol.WAYS, protocol.SKLEARN, protocol.MEANS]
    assert "versions" not in result.output
    assert "numpy" in result.output


def test_without_data_each_experiment_says_what_to_do(no_data: Path) -> None:
    result = _invoke("--experiment", "1", "--experiment", "2")
    assert result.exit_code == 0, result.output
    assert result.output.count("skipped:") == 2
    assert "omniglot964.npz" in result.output.replace("\n", "")
    assert DATA_VARIABLE in result.output


def test_a_task_has_the_rows_it_says(small_data: Path) -> None:
    task = protocol.draw(protocol.latin(), new=4, rows=2, seed=1)
    assert (task.classes, task.n_old, len(task.y), len(task.y_test)) == (26, 250, 252, 260)
    assert (task.y[-2:] == 4).all()
    everything = {row.tobytes() for row in task.X}
    assert not everything & {row.tobytes() for row in task.X_test}
    support = protocol.nearest(task, 5)
    assert len(set(support)) == 5
    assert 4 not in support
    assert task.rates(task.y_test) == (1.0, 1.0)
    assert task.rates(np.full(260, 4)) == (1.0, pytest.approx(1 / 26))
