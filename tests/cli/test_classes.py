"""`classes announce` on a recorded file: carried out, journalled, replayed, refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import streamforest
from streamforest.cli import root
from streamforest.runtime.operate.requests import AnnouncementRequests

PIPELINE = """
[pipeline]
name = "small"
[source]
dataset = "digits"
max_events = 600
[model]
kind = "few"
n_trees = 3
seed = 1
[run]
snapshot_interval_events = 200
folder = "run"
"""

Call = Callable[..., Result]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")
    monkeypatch.chdir(tmp_path)
    Path("p.toml").write_text(PIPELINE, encoding="utf-8")

    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(root, list(arguments))
        assert result.exit_code == code, result.output
        return result

    return invoke


def _journal() -> list[dict[str, object]]:
    lines = Path("run/journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _announced_at() -> list[int]:
    return [
        int(str(entry["events"]))
        for entry in _journal()
        if entry.get("announced") == [[77, [3, 8]]]
    ]


def test_an_announcement_is_carried_out_journalled_and_replayed(call: Call) -> None:
    call("run", "p.toml", "-q", "--max-events", "250")
    asked = ("--support", "3", "--support", "8", "--json", "--wait", "0")
    told = call("classes", "announce", "p.toml", "77", *asked).stdout
    assert told == "77 will be announced when the pipeline next commits\n"
    call("run", "p.toml", "-q", "--max-events", "100")
    (at,) = _announced_at()
    assert 250 <= at <= 350
    model = streamforest.load("run")
    assert model.announced == {77: [3, 8]}
    assert model.n_learned == 350
    shutil.copytree("run", "kept")
    call("run", "p.toml", "-q")
    whole = streamforest.load("run")
    assert (whole.n_learned, whole.announced) == (600, {77: [3, 8]})

    # without the snapshots since the announcement, recovery announces the class again from the journal
    shutil.rmtree("run")
    shutil.copytree("kept", "run")
    snapshots = sorted(Path("run/snapshots").glob("s-*.safetensors"))
    assert len(snapshots) > 1
    for path in snapshots:
        if int(path.stem[2:]) > 200:
            path.unlink()
    call("run", "p.toml", "-q")
    assert streamforest.load("run").announced == {77: [3, 8]}
    for name in ("again", "whole"):
        model = streamforest.load("run") if name == "again" else whole
        model.save(f"{name}.safetensors")
    assert Path("again.safetensors").read_bytes() == Path("whole.safetensors").read_bytes()


def test_what_cannot_be_announced_is_refused_with_the_reason(call: Call) -> None:
    call("run", "p.toml", "-q", "--max-events", "100")
    call("classes", "announce", "p.toml", "okapi", "--support", "zebra", "--wait", "0")
    call("run", "p.toml", "-q", "--max-events", "100")
    requests = AnnouncementRequests(Path("run"))
    assert requests.waiting() is None
    assert "support class 'zebra' has not been seen" in (requests.refusal() or "")
    assert not any("announced" in entry for entry in _journal())


def test_mistakes_of_the_command_line(call: Call) -> None:
    told = call(
        "classes", "announce", "p.toml", "okapi", "--support", "zebra", "--json", code=2
    ).stderr
    assert "'okapi' is not a JSON text, number or bool" in told
    other = ["--set", "model.kind=ncm"]
    told = call("classes", "announce", "p.toml", "a", "--support", "b", *other, code=2).stderr
    assert "no model uses support classes; set model.kind = 'few'" in told
    assert "--support" in call("classes", "announce", "p.toml", "a", code=2).stderr


@pytest.mark.parametrize("content", ["{", "[]", '{"announce": null, "support": []}', '{"a": 1}'])
def test_a_request_that_is_none_is_deleted(content: str, tmp_path: Path) -> None:
    path = tmp_path / "announcement.json"
    path.write_text(content)
    assert AnnouncementRequests(tmp_path).waiting() is None
    assert not path.exists()
