"""`bench coarse` as a user runs it, short, on the set that every machine has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamforest.bench.coarse import splits
from streamforest.bench.coarse.methods import METHODS
from streamforest.cli import root
from streamforest.errors import ConfigError


def test_methods_and_forests_on_digits(tmp_path: Path) -> None:
    found = tmp_path / "out.json"
    done = CliRunner().invoke(
        root,
        [
            *("bench", "coarse", "--set", "digits", "--seeds", "1", "--trees", "3"),
            *("--sets-tried", "5", "--part", "methods", "--part", "unknown"),
            *("--json", str(found)),
        ],
    )
    assert done.exit_code == 0, done.output
    assert "(1.22)" in done.stdout  # the paper's figure stands beside ours
    assert "AUROC" in done.stdout
    assert "category right" in done.stdout
    document = json.loads(found.read_text())
    assert document["versions"]["streamforest"]
    cells = {(c["method"], c["at"]): c for c in document["sets"]["digits"]["methods"]["cells"]}
    plain, best = cells["fine only", "0.1"], cells["nn-h", "0.1"]
    assert best["fine_accuracy"][0] > 1.03 * plain["fine_accuracy"][0]
    (unknown,) = document["sets"]["digits"]["unknown"]["cells"]
    assert unknown["fine_accuracy"][0] > 0.85  # AUROC of novelty


def test_amount_and_sweeps_on_digits(tmp_path: Path) -> None:
    """Table 4, Figures 2 to 4 and Table 1: every point is there, and larger sets cost comparisons."""
    found = tmp_path / "out.json"
    done = CliRunner().invoke(
        root,
        [
            *("bench", "coarse", "--set", "digits", "--seeds", "1", "--trees", "1"),
            *("--sets-tried", "5", "--part", "amount", "--part", "sweeps", "--json", str(found)),
        ],
    )
    assert done.exit_code == 0, done.output
    of_set = json.loads(found.read_text())["sets"]["digits"]
    cells = of_set["amount"]["cells"]
    assert {cell["at"] for cell in cells} == {"0.1", "0.2", "0.5"}
    assert {cell["method"] for cell in cells} == {"fine only", *METHODS}
    assert min(cell["fine_accuracy"][0] for cell in cells) > 0.5
    points = {sweep["title"]: [c["at"] for c in sweep["cells"]] for sweep in of_set["sweeps"]}
    assert points["Fig. 2c: λ_reg"] == ["0.1", "0.01", "0.005", "0.001", "0"]
    assert len(points) == 7
    c = next(sweep["cells"] for sweep in of_set["sweeps"] if sweep["title"] == "Fig. 4: c")
    assert c[1]["comparisons"][0] > c[0]["comparisons"][0]


def test_half_of_the_rows_are_coarse_and_none_is_both() -> None:
    data = splits.load("digits", 0)
    rows, labels, categories = data.part(0.2, 0.5, 0)
    assert len(set(rows.tolist())) == len(rows) == 10 * (30 + 12)
    assert sum(label is None for label in labels) == 300
    assert categories == (data.y[rows] % 3).tolist()
    assert not set(rows.tolist()) & set(data.test.tolist())
    with pytest.raises(ConfigError, match="set 'nothing' is not known"):
        splits.unavailable("nothing")
