"""Files of a run: for their owner alone, never written through a link, and read with care."""

from __future__ import annotations

import json
import logging
import os
import stat
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamforest import ConsistentForestClassifier, save
from streamforest.cli import root
from streamforest.errors import ConfigError, RecoveryError
from streamforest.io.run_lock import RunLock, claim
from streamforest.private_files import create, make_folder, read_json, recreate, replace, update
from streamforest.runtime.checkpoint.journal import read_commit_metadata, read_entry
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened as open_run
from streamforest.runtime.operate.inspect import listed, pin, unpin
from streamforest.runtime.operate.requests import OperatorRequests
from streamforest.runtime.processing.loop import Run

BRACKETS = b"[" * 100_000
LINKED = [
    "predictions.jsonl",
    "dead_letters.jsonl",
    "journal.jsonl",
    "lock",
    "snapshots/pins.lock",
]
"""Files that are opened where they are: a link is an error."""
REPLACED = [
    "commit.json",
    "commit.part",
    "snapshots/s-000000000200.safetensors",
    "snapshots/s-000000000200.safetensors.json",
    "snapshots/s-000000000200.safetensors.measures",
]
"""Files that are renamed into place: a link goes."""


def opened(path: Path, folder: Path, *flags: str) -> AbstractContextManager[Run]:
    return open_run(load_pipeline(path, {}, [*flags, f"run.folder={folder}"]))


def modes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in [folder, *folder.rglob("*")]
    }


@pytest.fixture
def open_umask() -> Any:
    """As open as a process may be."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize(
    ("flags", "file", "folder"),
    [([], 0o600, 0o700), (["run.file_mode=0640"], 0o640, 0o750)],
)
def test_files_are_their_owners_unless_asked_otherwise(
    small: Path, tmp_path: Path, flags: list[str], file: int, folder: int
) -> None:
    if flags:
        os.umask(0o077)  # what is asked for counts, not this
    run_folder = tmp_path / "runs" / "run"
    with opened(small, run_folder, *flags) as run:
        run.settings.requests.request_promotion("main")
        run.consume(max_events=200)
        pin(run.snapshots, "200")
        run.settings.requests.request_promotion("main")
        found = modes(run_folder)
    folders = {".", "snapshots"}
    names = {"lock", "commit.json", "journal.jsonl", "predictions.jsonl", "dead_letters.jsonl"}
    names |= {"requests.json", "snapshots/pins.lock"}
    last = "snapshots/s-000000000200.safetensors"
    names |= {last, f"{last}.json", f"{last}.measures", f"{last}.pin"}
    assert names | folders <= found.keys()
    assert {name: mode for name, mode in found.items() if name in folders} == dict.fromkeys(
        folders, folder
    )
    assert {mode for name, mode in found.items() if name not in folders} == {file}


@pytest.mark.usefixtures("open_umask")
def test_a_folder_that_is_there_keeps_its_mode_and_its_new_files_are_private(
    small: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    (folder / "predictions.jsonl").touch(mode=0o644)
    with opened(small, folder) as run:
        run.consume(max_events=40)
    found = modes(folder)
    assert (found["."], found["predictions.jsonl"], found["journal.jsonl"]) == (
        0o755,
        0o644,
        0o600,
    )


@pytest.mark.usefixtures("open_umask")
def test_a_model_saved_by_hand_has_the_mode_of_its_process(tmp_path: Path) -> None:
    os.umask(0o027)
    save(ConsistentForestClassifier(n_trees=1, seed=0), tmp_path / "m.safetensors")
    assert modes(tmp_path)["m.safetensors"] == modes(tmp_path)["m.safetensors.json"] == 0o640


def plant(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("name", LINKED)
def test_a_file_that_is_a_link_is_not_written_to(
    small: Path, tmp_path: Path, name: str, there: bool
) -> None:
    target = tmp_path / "victim"
    if there:
        target.write_bytes(b"precious")
    plant(tmp_path / "run" / name, target)
    command = ["run", str(small), "--quiet", "--set", f"run.folder={tmp_path / 'run'}"]
    command += ["--set", "run.keep_snapshots=1"]
    done = CliRunner().invoke(root, command)
    if name == "snapshots/pins.lock":
        assert done.exit_code == 0, done.output
        assert "older snapshots are not deleted for now" in done.stderr
    else:
        assert done.exit_code == 1
    assert f"{name.rpartition('/')[2]}" in done.stderr
    assert "a link, which a run does not write through" in done.stderr
    assert (target.read_bytes() if there else target.exists()) == (b"precious" if there else False)


@pytest.mark.parametrize("name", REPLACED)
def test_a_link_by_the_name_of_a_file_that_is_renamed_goes(
    small: Path, tmp_path: Path, name: str
) -> None:
    folder, target = tmp_path / "run", tmp_path / "victim"
    with opened(small, folder) as run:
        run.consume(max_events=40)
        target.write_bytes(b"precious")
        plant(folder / name, target)
        run.consume(max_events=160)
    assert target.read_bytes() == b"precious"
    assert not (folder / name).is_symlink()
    with opened(small, folder) as run:
        assert run.events == 200


def test_pins_requests_and_claims_follow_no_link(tmp_path: Path) -> None:
    target = tmp_path / "victim"
    target.write_bytes(b"precious")
    plant(tmp_path / "requests.json", target)
    OperatorRequests(tmp_path).request_promotion("main")
    assert OperatorRequests(tmp_path).promotion() == "main"
    folder = SnapshotFolder(tmp_path)
    (tmp_path / "s-000000000001.safetensors").touch()
    plant(tmp_path / "s-000000000001.safetensors.pin", target)
    pin(folder, "1")
    assert not (tmp_path / "s-000000000001.safetensors.pin").is_symlink()
    unpin(folder, "1")
    plant(tmp_path / "pipeline.json", target)
    claim(tmp_path, {"pipeline": "a"})
    with pytest.raises(ConfigError, match="another pipeline"):
        claim(tmp_path, {"pipeline": "b"})
    assert target.read_bytes() == b"precious"
    for name in ("requests.json", "pipeline.json"):
        assert not (tmp_path / name).is_symlink()


def test_a_run_folder_may_be_reached_by_a_link(small: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with opened(small, tmp_path / "run") as run:
        assert run.consume() == "finished"
    assert (tmp_path / "elsewhere" / "predictions.jsonl").exists()


# ---- what is read back


def test_an_invalid_operator_request_is_logged_and_deleted(
    small: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("streamforest"), "propagate", True)
    path = tmp_path / "run" / "requests.json"
    with opened(small, tmp_path / "run") as run:
        for content in (BRACKETS, b"", b"{}", b'{"promote": 5}', b"\xff", b" " * (1 << 20)):
            path.write_bytes(content)
            caplog.clear()
            run.consume(max_events=40)
            assert "requests.json: invalid operator request" in caplog.text
            assert not path.exists()
        os.mkfifo(path)  # nobody writes to it: a read would wait for ever
        run.consume(max_events=40)
        assert not path.exists()


@pytest.mark.parametrize("content", [BRACKETS, b"[]", b"{", b'{"metadata": 1}', b"\xff"])
def test_a_damaged_commit_is_one_line(small: Path, tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "run"
    with opened(small, folder) as run:
        run.consume(max_events=40)
    (folder / "commit.json").write_bytes(content)
    with pytest.raises(RecoveryError, match=r"commit\.json: cannot be read"), opened(small, folder):
        pass


@pytest.mark.parametrize(
    "change", [{"position": -1}, {"position": 1e9}, {"sizes": {"journal": "x"}}]
)
def test_a_commit_of_no_position_is_one_line(
    small: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    folder = tmp_path / "run"
    with opened(small, folder) as run:
        run.consume(max_events=40)
    told = {**read_json(folder / "commit.json"), **change}
    (folder / "commit.json").write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(RecoveryError, match=r"commit\.json: cannot be read"), opened(small, folder):
        pass


@pytest.mark.parametrize("content", [BRACKETS, b"", b"[]", b"5"])
def test_a_sidecar_may_be_anything(small: Path, tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "run"
    with opened(small, folder) as run:
        run.consume(max_events=200)
    last = folder / "snapshots" / "s-000000000200.safetensors"
    for suffix in (".json", ".measures", ".pin"):
        Path(f"{last}{suffix}").write_bytes(content)
    with opened(small, folder) as run:
        assert run.events == 200
        assert run.snapshots.sidecar("s-000000000200") == {}
        assert listed(run.snapshots, None, known=False)[-1].pinned


def test_a_claim_of_brackets_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_bytes(BRACKETS)
    claim(tmp_path, {"pipeline": "a"})
    assert read_json(tmp_path / "pipeline.json") == {"pipeline": "a"}


def test_a_journal_of_brackets_is_one_line() -> None:
    deep = b'{"commit":1,"first":0,"events":5,"more":' + BRACKETS
    with pytest.raises(RecoveryError, match="journal record 7"):
        read_entry(7, deep)
    with pytest.raises(RecoveryError, match="the last commit says"):
        read_commit_metadata('{"more":' + BRACKETS.decode())


# ---- the parts


def test_reading_waits_for_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for what in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            read_json(what)
    with pytest.raises(OSError, match="not a regular file"):
        update(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"[1, 2, 3]")
    with pytest.raises(ValueError, match="over 4 bytes"):
        read_json(tmp_path / "large", 4)


def test_new_files_are_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        create(path)
    with recreate(path) as file:
        file.write(b"1")
    assert path.read_bytes() == b"1"
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        replace(path, b"2")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]  # no part is left
    (tmp_path / "plain").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "plain")
    RunLock(tmp_path / "new").release()
    assert (tmp_path / "new" / "lock").exists()
