"""Snapshots in object storage: the same bytes, the same guarantees, the same commands as in a folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.object_store import CuttingProxy, ObjectServer, moto_server, object_server

import streamforest
from streamforest import ConsistentForestClassifier, object_files
from streamforest.cli import root
from streamforest.errors import ConfigError, RecordsGoneError, SnapshotError, StorageError
from streamforest.object_files import ObjectFolder
from streamforest.runtime.checkpoint.journal import CommitMetadata
from streamforest.runtime.checkpoint.storage import ObjectStorage
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.processing.models import wrap_model
from streamforest.runtime.recovery.remedies import Remedies

__all__ = ["moto_server", "object_server"]

FILE = """
[pipeline]
name = "small"
[source]
dataset = "bananas"
max_events = 400
[model]
kind = "consistent"
n_trees = 2
[run]
folder = "run"
snapshot_interval_events = 100
"""


@pytest.fixture
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_files, "_RETRY", {"max_retries": 0})


@pytest.fixture
def prefix(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a pipeline in the working folder."""
    monkeypatch.chdir(tmp_path)
    address = object_server.prefix()
    Path("p.toml").write_text(f'{FILE}snapshots = "{address}"\n', encoding="utf-8")
    Path("local.toml").write_text(FILE, encoding="utf-8")
    return address


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, [*arguments])


def done(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_run_with_snapshots_in_a_bucket_is_that_with_a_folder(prefix: str) -> None:
    done("run", "p.toml", "-q", "--max-events", "150")
    done("run", "p.toml", "-q")
    every = ("--set", "run.folder=local", "--set", "run.keep_snapshots=100")
    done("run", "local.toml", "-q", *every, "--max-events", "150")
    done("run", "local.toml", "-q", *every)
    names = [n for n in ObjectFolder(prefix).names() if n.endswith(".safetensors")]
    # while one is being uploaded the next may be left out: how many there are is a matter of time
    assert names[-1] == "s-000000000400.safetensors"
    assert len(names) > 1
    for name in names:
        if not Path("local/snapshots", name).exists():
            continue
        assert ObjectFolder(prefix).read(name) == Path("local/snapshots", name).read_bytes()
    assert (
        Path("run/predictions.jsonl").read_bytes() == Path("local/predictions.jsonl").read_bytes()
    )
    assert not Path("run/snapshots").exists()
    listed = [
        json.loads(line) for line in done("snapshots", "list", "p.toml", "--json").splitlines()
    ]
    assert [one["name"] for one in listed] == [name.partition(".")[0] for name in names]
    assert [one["events"] for one in listed if one["named"]] == [400]


def test_operators_commands_work_on_a_bucket(prefix: str) -> None:
    done("run", "p.toml", "-q", "--max-events", "150")
    done("snapshots", "pin", "p.toml", "150")
    done("run", "p.toml", "-q")
    names = SnapshotFolder(ObjectFolder(prefix), home=Path()).names()
    assert "s-000000000150" in names
    assert names[-1] == "s-000000000400"
    refused = invoke("run", "p.toml", "-q", "--fresh")
    assert (refused.exit_code, "pinned" in refused.output) == (1, True)
    about = json.loads(done("model", "inspect", "p.toml", "--json"))
    assert (about["snapshot"], about["events"]) == (f"{prefix}/s-000000000400.safetensors", 400)
    assert about["bytes"] > 1_000
    assert about["version"] == streamforest.__version__
    assert "current, from the snapshot" in done(
        "whatif", "p.toml", "150", "--set", "model.n_trees=1"
    )
    assert streamforest.load(prefix).n_learned == 400
    assert streamforest.load(f"{prefix}/s-000000000150.safetensors").n_learned == 150
    done("snapshots", "unpin", "p.toml", "150")
    done("run", "p.toml", "-q", "--fresh", "--max-events", "10")
    assert SnapshotFolder(ObjectFolder(prefix), home=Path()).names()[-1] == "s-000000000010"


def test_two_pipelines_never_share_a_prefix(prefix: str) -> None:
    done("run", "p.toml", "-q", "--max-events", "10")
    other = ("--set", "pipeline.name=other", "--set", "run.folder=other")
    result = invoke("run", "p.toml", "-q", *other)
    assert result.exit_code == 2
    assert "belongs to another pipeline (pipeline 'small')" in result.output
    assert "run.snapshots of its own" in result.output


@pytest.mark.parametrize(
    "address",
    [
        "s3://",
        "ftp://x/y",
        "s3://user:secret@b/x",
        "s3://b/x?token=secret",
        "bucket",
        "s3://b/../c",
    ],
)
def test_an_address_that_is_none_is_refused_and_not_repeated(prefix: str, address: str) -> None:
    result = invoke("check", "p.toml", "--set", f"run.snapshots={address}")
    assert result.exit_code == 2
    assert "run.snapshots" in result.output
    assert "secret" not in result.output
    with pytest.raises(ConfigError):
        ObjectFolder(address)


def test_a_bucket_that_is_not_there_is_named(prefix: str) -> None:
    result = invoke("run", "p.toml", "-q", "--set", "run.snapshots=s3://no-such-bucket/x")
    assert result.exit_code == 1
    assert "no such bucket; create it, or correct run.snapshots" in result.output
    assert result.output.count("\n") == 1
    with pytest.raises(SnapshotError, match="no such bucket"):
        streamforest.load("s3://no-such-bucket/x")


# ---- uploads that fail


@pytest.fixture
def cutting(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(object_server.address)
    monkeypatch.setenv("AWS_ENDPOINT", proxy.address)
    yield proxy
    proxy.close()


def model() -> Any:
    forest = ConsistentForestClassifier(n_trees=1, seed=0)
    for n in range(40):
        forest.learn_one({"a": n / 7, "b": n % 3}, n % 2)
    return wrap_model(forest)


def cut_everywhere(server: ObjectServer, proxy: CuttingProxy, stride: int) -> None:
    """Cut an upload off after every `stride` bytes that go to the server: heads, body, and reading back."""
    folder = SnapshotFolder(ObjectFolder(server.prefix()), home=Path())
    models = {"main": model()}

    def write(events: int, left: int) -> bool:
        proxy.left = left
        folder.begin(models, {"events": events}, events, 0, {})
        folder.wait()
        written = folder.written
        return written is not None and written.events == events

    assert write(1, 1 << 60)
    first = folder.written
    assert first is not None
    size, events, left = first.bytes, 1, 0
    while True:
        events += 1
        cuts = proxy.cuts
        named = write(events, left)
        proxy.left = 1 << 60
        if named:
            break
        failure = folder.take_failure()
        assert failure is not None
        assert failure.reason == "write"
        assert "\n" not in failure.message
        assert proxy.cuts > cuts
        assert folder.written == first  # what commits name
        left += stride
    assert left > size  # it was cut off in the midst of the body many times
    assert events > 5
    found = folder.written
    assert found is not None
    folder.load(found.name, found.hash)


@pytest.mark.usefixtures("no_retries")
def test_an_upload_cut_off_anywhere_is_never_named(
    object_server: ObjectServer, cutting: CuttingProxy
) -> None:
    cut_everywhere(object_server, cutting, stride=397)


@pytest.mark.slow
@pytest.mark.usefixtures("no_retries")
def test_an_upload_cut_off_at_any_byte_is_never_named(
    object_server: ObjectServer, cutting: CuttingProxy
) -> None:
    cut_everywhere(object_server, cutting, stride=1)


def test_an_upload_that_was_cut_off_is_tried_again(
    object_server: ObjectServer, cutting: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part by itself: a large one is not begun again at its first byte."""
    monkeypatch.setattr(object_files, "CHUNK", 5 << 20)
    folder = ObjectFolder(object_server.prefix())
    data = bytes(range(256)) * (12 << 12)  # 12 MiB: three parts
    cutting.left, cutting.once = 8 << 20, True
    folder.write("large", data)
    folder.check("large", data)
    assert cutting.cuts == 1


def test_an_object_that_is_another_one_is_no_snapshot(object_server: ObjectServer) -> None:
    folder = ObjectFolder(object_server.prefix())
    folder.write("s-1", b"one thing")
    folder.check("s-1", b"one thing")
    for other in (b"one thin", b"one things", b"one ching", b""):
        with pytest.raises(OSError, match="another one when it is read"):
            folder.check("s-1", other)


@pytest.mark.usefixtures("no_retries")
def test_a_store_that_is_away_is_no_snapshot_that_is_lost(
    object_server: ObjectServer, cutting: CuttingProxy
) -> None:
    folder = SnapshotFolder(ObjectFolder(object_server.prefix()), home=Path())
    folder.begin({"main": model()}, {"events": 5}, 5, 0, {})
    folder.wait()
    cutting.left = 0
    with pytest.raises(StorageError, match="try again"):
        folder.load("s-000000000005", "")
    with pytest.raises(StorageError):
        folder.names()
    folder.prune("s-000000000005")  # told, and tried again another time
    assert folder.passing("s-000000000005") == {}


def test_nobody_is_told_to_start_over_while_the_store_is_away(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path / "snapshots")
    folder.begin({"main": model()}, {"events": 5}, 5, 0, {})
    folder.wait()

    def away(name: str, expected: str) -> Any:
        raise StorageError(f"{name}: it does not answer; try again")

    last = CommitMetadata(3, 3, 9, "s-000000000005", "", 0)
    with pytest.raises(StorageError, match="try again"):
        Remedies(folder, away).explained(RecordsGoneError("gone"), last, {})


# ---- pins without a lock


class Meeting(ObjectFolder):
    """Waits with its first mark or pin until another one writes one, too."""

    def __init__(self, address: str, meet: threading.Barrier) -> None:
        super().__init__(address)
        self._meet: threading.Barrier | None = meet

    def write(self, name: str, data: bytes) -> None:
        if self._meet is not None:
            self._meet.wait(20)
            self._meet = None
        super().write(name, data)


def test_a_pin_and_a_deletion_at_the_same_moment(
    object_server: ObjectServer,
) -> None:
    """However the two meet: what was said to be pinned is there afterwards."""
    address = object_server.prefix()
    outcomes = set()
    for turn in range(8):
        name = f"s-{turn:012d}"
        folder = ObjectFolder(address)
        folder.write(f"{name}.safetensors", b"x")
        meet = threading.Barrier(2)
        pruning, pinning = (ObjectStorage(Meeting(address, meet)) for _ in range(2))
        thread = threading.Thread(target=pruning.delete_unpinned, args=([name],))
        thread.start()
        try:
            pinning.pin(name, b"{}")
            pinned = True
        except SnapshotError:
            pinned = False
        thread.join(20)
        there = folder.exists(f"{name}.safetensors")
        assert there or not pinned
        assert folder.exists(f"{name}.safetensors.pin") == pinned
        assert not [n for n in folder.names() if ".gone-" in n]
        outcomes.add((there, pinned))
    assert outcomes <= {(True, True), (True, False), (False, False)}


def test_a_mark_that_a_killed_process_left_hinders_nobody_for_ever(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ObjectFolder(object_server.prefix())
    folder.write("s-000000000001.safetensors", b"x")
    folder.write("s-000000000001.safetensors.gone-1234", b"")
    storage = ObjectStorage(folder)
    with pytest.raises(SnapshotError, match="deleting it at this moment"):
        storage.pin("s-000000000001", b"{}")
    monkeypatch.setattr("streamforest.runtime.checkpoint.storage._OLD", -10.0)
    storage.pin("s-000000000001", b"{}")
    storage.delete_unpinned(["s-000000000000", "s-000000000001"])
    assert folder.names() == ["s-000000000001.safetensors", "s-000000000001.safetensors.pin"]
