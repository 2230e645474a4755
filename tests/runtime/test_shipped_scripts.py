"""What stands in `pipelines/` and `docker/` is as the code is."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from streamforest.runtime import tables
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


def test_the_reference_tells_every_key_and_its_default() -> None:
    known = tables.KEYS
    told: dict[str, dict[str, str]] = {}
    text = (TOP / "pipelines" / "reference.toml").read_text(encoding="utf-8")
    for line in text.splitlines():
        if table := re.match(r"(?:# )?\[+([a-z_.]+)\]+", line):
            here = told.setdefault(table[1], {})
        elif key := re.match(r"(?:# )?([a-z_]+) = ", line):
            here[key[1]] = line
    assert {*told} == {*known, "model", "shadow"} == {*tables.TABLES, "source.schedule"}
    for table_name, keys in known.items():
        assert list(told[table_name]) == list(keys), table_name
        for name, option in keys.items():
            line = told[table_name][name]
            if line.startswith("# "):  # else it is an example, without a default of its own
                value = line[2:].split(" = ", 1)[1]
                default = None if value.startswith("none") else tomllib.loads(f"v = {value}")["v"]
                assert default == option.default, f"{table_name}.{name}"
