"""The benchmark of serving, on a small model for a moment."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from streamforest.cli import root


def test_both_servers_are_measured_in_one_run(tmp_path: Path) -> None:
    file = tmp_path / "serve.json"
    done = CliRunner().invoke(
        root, ["bench", "serve", "--events", "200", "--seconds", "0.5", "--json", str(file)]
    )
    assert done.exit_code == 0, done.output
    assert "streamforest serve" in done.stdout
    ours, plain = json.loads(file.read_text(encoding="utf-8"))["servers"]
    assert (ours["server"], plain["server"]) == ("streamforest serve", "FastAPI + River")
    for one in (ours, plain):
        assert one["rate"] > 1
        assert 0 < one["p50"] <= one["p99"]
        assert 0 < one["model_p50"] <= one["model_p99"]
