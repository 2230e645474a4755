"""The endurance benchmark in small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamforest.cli.bench import bench


def test_each_tenth_is_measured(tmp_path: Path) -> None:
    out, picture = tmp_path / "e.json", tmp_path / "e.png"
    result = CliRunner().invoke(
        bench,
        f"endurance --events 10000 --trees 2 --drift-every 4000 --json {out} --plot {picture}",
    )
    assert result.exit_code == 0, result.output
    tenths = json.loads(out.read_text())["tenths"]
    assert [t["events"] for t in tenths] == [1000 * (k + 1) for k in range(10)]
    assert tenths[3]["accuracy"] > tenths[0]["accuracy"]  # it learns,
    assert tenths[4]["accuracy"] < tenths[3]["accuracy"]  # until the drift
    assert picture.stat().st_size > 0
    assert "of the second" in result.output


@pytest.mark.parametrize("option", [["--events", "5"], ["--model", "river-arf"], ["--trees", "0"]])
def test_what_cannot_run(option: list[str]) -> None:
    result = CliRunner().invoke(bench, ["endurance", *option])
    assert result.exit_code == 2
    assert option[0] in result.output
