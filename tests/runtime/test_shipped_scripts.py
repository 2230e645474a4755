"""The scripts in `pipelines/` run as they are; the image knows every kind of forest."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from streamforest.runtime.models import KINDS

TOP = Path(__file__).parents[2]
SCRIPTS = sorted(
    path
    for path in (TOP / "pipelines").glob("*.py")
    if path.stem != "avro_orders"  # needs a broker: tests/integration/test_decoder.py
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_and_scores(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    scores = re.findall(r"Accuracy: ([\d.]+)%", capsys.readouterr().out)
    assert float(scores[-1]) > 80


def test_the_image_compiles_the_kernels_of_every_kind() -> None:
    text = (TOP / "docker" / "Dockerfile").read_text(encoding="utf-8")
    (kinds,) = re.findall(r"for kind in ([a-z ]+);", text)
    assert kinds.split() == list(KINDS)
