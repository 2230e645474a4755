"""The benchmark of serving, on a small model for a moment."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from streamforest.cli import root


def test_both_servers_are_measured_in_one_run(tmp_path: Path) -> None:
    file = tmp_path / "serve.json"
    arguments = ["--events", "200", "--seconds", "0.5", "--rounds", "1", "--json", str(file)]
    done = CliRunner().invoke(root, ["bench", "serve", *arguments])
    assert done.exit_code == 0, done.output
    assert "streamforest serve" in done.stdout
    document = json.loads(file.read_text(encoding="utf-8"))
    ours, plain = document["servers"]
    assert (ours["server"], plain["server"]) == ("streamforest serve", "FastAPI + River")
    assert {"fastapi", "uvicorn"} <= document["parts"].keys()
    for one in (ours, plain):
        assert one["rate"] > 1
        assert one["half"]["rate"] == one["rate"] / 2
        assert one["same"]["rate"] == min(ours["rate"], plain["rate"]) / 2
        for latency in (one["half"], one["same"]):
            assert 0 < latency["p50"] <= latency["p99"]
            assert latency["late_p99"] >= 0
        assert 0 < one["model_p50"] <= one["model_p99"]
