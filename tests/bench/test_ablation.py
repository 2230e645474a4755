"""`bench ablation` as a user runs it, short."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from streamforest import NCMForestClassifier, datasets
from streamforest.bench.forest import ablation
from streamforest.cli import root
from streamforest.datasets import Stream


def _invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["bench", "ablation", *arguments])


def test_every_variant_has_a_column_and_figures_that_add_up(tmp_path: Path) -> None:
    file = tmp_path / "parts.json"
    result = _invoke(
        *("--stream", "gaussians", "--stream", "agrawal", "--events", "400"),
        *("--trees", "2", "--seeds", "2", "--short-seeds", "1"),
        *("--variant", "neighbours=0,drift=False", "--variant", "n_trees=3"),
        *("--json", str(file)),
    )
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text())
    for name in ("gaussians", "agrawal"):
        accuracy = found["accuracy"][name]
        assert list(accuracy) == ["", "neighbours=0,drift=False", "n_trees=3"]
        assert 0.3 < min(accuracy.values()) <= max(accuracy.values()) <= 1.0
        points = 100 * (accuracy["n_trees=3"] - accuracy[""])
        line = next(line for line in result.stdout.splitlines() if f" {name} " in line)
        assert f"{points:+.2f}" in line
        assert f"{accuracy['']:.4f}" in line
    for group in ("mean, stationary (1)", "mean, drifting (1)"):
        assert group in result.stdout
    assert "Mean over 2 seeds, on short streams 1." in " ".join(result.stdout.split())


def test_another_forest_and_young_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a class schedule the second table has events 2 to 10 of every class."""
    y = np.array(["a"] * 20 + ["a", "b"] * 20)
    X = np.where(y == "a", 0.0, 1.0)[:, None] + np.linspace(0, 0.1, len(y))[:, None]
    stream = Stream("letter-classes", X, y, ("x",), about="two classes")
    monkeypatch.setattr(datasets, "unavailable", lambda name: None)
    monkeypatch.setattr(datasets, "load", lambda name, events: stream)
    file = tmp_path / "parts.json"
    result = _invoke(
        *("--model", "ncm", "--stream", "letter-classes", "--trees", "2", "--short-seeds", "2"),
        *("--variant", "balanced=False", "--json", str(file)),
    )
    assert result.exit_code == 0, result.output
    assert "NCMForestClassifier, 2 trees" in result.stdout
    assert "events 2 to 10 of every class" in " ".join(result.stdout.split())
    found = json.loads(file.read_text())
    assert len(found["by_seed"]["letter-classes"]["balanced=False"]) == 2
    forest = NCMForestClassifier(n_trees=2, seed=0)
    right = ablation.answered(forest, stream)
    counted = [i for label in "ab" for i in np.flatnonzero(y == label)[1:10]]
    other = ablation.answered(NCMForestClassifier(n_trees=2, seed=1), stream)
    expected = (right[counted].mean() + other[counted].mean()) / 2
    assert found["young"]["letter-classes"][""] == pytest.approx(expected)
    assert expected != pytest.approx(found["accuracy"]["letter-classes"][""])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--variant", "drift"), ["--variant 'drift'", "such as drift=False"]),
        (("--variant", "colour=3"), ["colour"]),
        (("--variant", "p_structure=2"), ["p_structure=2"]),
        (("--stream", "gaussian"), ["gaussian", "gaussians"]),
        (("--model", "online"), ["--model online", "--variant"]),
        (("--model", "forrest", "--variant", "n_trees=3"), ["forrest"]),
        (("--model", "few", "--variant", "drift=True"), ["drift"]),
        (("--seeds", "0"), ["--seeds 0", "1 or more"]),
    ],
)
def test_mistakes_are_told_in_one_line(arguments: tuple[str, ...], words: list[str]) -> None:
    result = _invoke(*arguments)
    assert result.exit_code == 2, result.output
    for word in words:
        assert word in result.stderr
    assert "Traceback" not in result.stderr
