"""The scripts in `pipelines/` run as they are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted(
    path
    for path in (Path(__file__).parents[2] / "pipelines").glob("*.py")
    if path.stem != "avro_orders"  # needs a broker: tests/integration/test_decoder.py
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_and_scores(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    scores = re.findall(r"Accuracy: ([\d.]+)%", capsys.readouterr().out)
    assert float(scores[-1]) > 80
