"""A small pipeline that all tests of the loop run: 600 digits, 5 trees, a snapshot every 200."""

from __future__ import annotations

from pathlib import Path

import pytest

TEXT = """
[pipeline]
name = "small"
[source]
dataset = "digits"
max_events = 600
[source.schedule]
first = 2
every = 60
[model]
n_trees = 5
[run]
batch_size = 40
snapshot_interval_events = 200
"""


@pytest.fixture(scope="session")
def small_text() -> str:
    """The text of the pipeline file."""
    return TEXT


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pipeline file; runs go to folders beside it."""
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")  # no notice of compiling
    path = tmp_path / "small.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path
