"""`streamforest snapshots` on the folder of a file run.

A snapshot in the course of a run is left out while the one before is still being written, so which
of those there are depends on the disk. The last of a clean stop is always there: the tests make
their snapshots by stopping.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamforest.cli import root
from streamforest.runtime.checkpoint.store import SnapshotFolder

TEXT = """
[pipeline]
name = "small"
[source]
dataset = "digits"
max_events = 1000
[model]
kind = "consistent"
n_trees = 2
[run]
snapshot_interval_events = 1000
keep_snapshots = 2
"""
FOLDER = Path("runs/small/snapshots")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")
    Path("small.toml").write_text(TEXT, encoding="utf-8")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, list(arguments))


def run(*stops: int) -> None:
    """One run after the other, each with a snapshot where it stops: so many events further on."""
    for events in stops:
        done = invoke("run", "small.toml", "-q", "--max-events", str(events))
        assert done.exit_code == 0, done.output


def names() -> list[str]:
    return SnapshotFolder(FOLDER).names()


def test_a_list_says_what_there_is_and_where_recovery_begins() -> None:
    run(200, 50)
    done = invoke("snapshots", "list", "small.toml")
    assert (done.exit_code, done.stderr) == (0, "")
    head, *rows, last = done.stdout.splitlines()
    assert head.split() == ["name", "events", "size", "written"]
    assert [row.split()[0] for row in rows] == names() == ["s-000000000200", "s-000000000250"]
    assert rows[1].endswith("named")
    assert not rows[0].endswith("named")
    assert "kB" in rows[0]
    assert last.endswith(", after event 250")
    told = [
        json.loads(line)
        for line in invoke("snapshots", "list", "small.toml", "--json").stdout.splitlines()
    ]
    path = FOLDER / "s-000000000250.safetensors"
    sidecar = json.loads(Path(f"{path}.json").read_text())
    assert told[1] == {
        "name": "s-000000000250",
        "events": 250,
        "bytes": path.stat().st_size,
        "written": sidecar["written"],
        "pinned": False,
        "named": True,
    }
    Path(f"{path}.json").unlink()  # it may be lost
    again = json.loads(invoke("snapshots", "list", "small.toml", "--json").stdout.splitlines()[1])
    assert again["written"][:4].isdigit()


def test_a_pinned_snapshot_survives_all_that_come_after() -> None:
    run(200, 50)
    assert invoke("snapshots", "pin", "small.toml", "s-000000000200").stdout == "pinned\n"
    assert invoke("snapshots", "pin", "small.toml", "250").stdout == "pinned\n"
    run(350, 100)
    assert names() == ["s-000000000200", "s-000000000250", "s-000000000600", "s-000000000700"]
    listed = invoke("snapshots", "list", "small.toml").stdout.splitlines()
    assert [row.split()[-1] for row in listed[1:3]] == ["pinned", "pinned"]
    assert listed[4].endswith("named")
    kept = sorted(path.name for path in FOLDER.glob("s-000000000200*"))
    assert [name.partition(".")[2] for name in kept] == [
        "safetensors",
        "safetensors.json",
        "safetensors.measures",
        "safetensors.pin",
    ]
    assert invoke("snapshots", "unpin", "small.toml", "200").stdout == "no longer pinned\n"
    run(100, 100)
    assert names() == ["s-000000000250", "s-000000000800", "s-000000000900"]


def test_what_is_wrong_is_said_and_nothing_changes() -> None:
    done = invoke("snapshots", "list", "small.toml")
    assert done.exit_code == 2
    assert "runs/small/snapshots: no such folder; small has not run here" in done.stderr
    run(200, 50)
    for arguments, message in (
        (
            ["pin", "small.toml", "s-000000000201"],
            "no such snapshot in runs/small/snapshots; did you",
        ),
        (["pin", "small.toml", "../../etc"], "no such snapshot"),
        (["pin", "small.toml", "\x1b[31m"], "no such snapshot"),
        (["unpin", "small.toml", "200"], "not pinned; the pinned ones are: none"),
    ):
        done = invoke("snapshots", *arguments)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
        assert message in done.stderr
        assert "\x1b" not in done.stderr
    assert not SnapshotFolder(FOLDER).pins.names()


def test_starting_over_does_not_take_a_pinned_one_along() -> None:
    run(200, 50)
    invoke("snapshots", "pin", "small.toml", "200")
    done = invoke("run", "small.toml", "-q", "--fresh", "--max-events", "10")
    assert done.exit_code == 1
    assert "s-000000000200 pinned; to start over unpin first" in done.stderr
    run(50)  # nothing was forgotten
    assert names()[-1] == "s-000000000300"
    invoke("snapshots", "unpin", "small.toml", "200")
    assert invoke("run", "small.toml", "-q", "--fresh", "--max-events", "10").exit_code == 0
    assert names() == ["s-000000000000", "s-000000000010"]


def test_deleting_waits_for_a_pin_that_is_being_set(tmp_path: Path) -> None:
    """Another process holds the lock: what it pins meanwhile is not deleted."""
    folder = SnapshotFolder(tmp_path, keep=1)
    for events in (1, 2, 3):
        (tmp_path / f"s-{events:012d}.safetensors").write_bytes(b"x")
    pins = folder.pins
    with pins.held():
        pruning = threading.Thread(target=folder.prune, args=("s-000000000003",))
        pruning.start()
        pruning.join(0.3)
        assert len(folder.names()) == 3
        pins.add("s-000000000001")
    pruning.join(20)
    assert folder.names() == ["s-000000000001", "s-000000000003"]
