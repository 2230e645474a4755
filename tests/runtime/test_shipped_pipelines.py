"""Every command that stands in the comment of a shipped pipeline is run as written.

Pipelines on Kafka are run against a real broker in `tests/integration/test_shipped_pipelines.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import TOP, beside_pipelines, in_comments, run

FILES = sorted((TOP / "pipelines").glob("*.toml"))
HERE = [file for file in FILES if "\n[kafka]" not in file.read_text(encoding="utf-8")]
LOWEST = {
    "digits": 97,
    "drift": 80,
    "embeddings": 95,
    "intents": 97,
    "river": 80,
    "species": 35,  # of 36 species, each told three times
}
"""Percent that the run of each must get right."""


@pytest.mark.parametrize("file", HERE, ids=lambda file: file.stem)
def test_its_commands_run_as_written(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside_pipelines(tmp_path, monkeypatch)
    commands = in_comments(file)
    assert commands
    accuracies = []
    for line in commands:
        found = re.search(r"^  accuracy +([\d.]+) %", run(line), re.M)
        accuracies += [float(found[1])] if found and " run " in line else []
    assert min(accuracies) > LOWEST[file.stem]


def test_every_file_has_a_test_and_says_what_to_change() -> None:
    assert {file.stem for file in HERE} == {*LOWEST}
    kafka = {file.stem for file in FILES} - {*LOWEST}
    assert kafka == {"avro", "faults", "kafka", "reference"}
    for name in ("drift", "embeddings", "faults", "intents", "species"):
        text = (TOP / "pipelines" / f"{name}.toml").read_text(encoding="utf-8")
        assert re.search(r"^# .*[Tt]o change", text, re.M), name


def test_the_drift_pipeline_has_every_family() -> None:
    from streamforest.forests.core import registry

    text = (TOP / "pipelines" / "drift.toml").read_text(encoding="utf-8")
    assert {*re.findall(r'^kind = "(\w+)"', text, re.M)} == {*registry.kinds()}
