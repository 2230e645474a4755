"""Events are learned again by the rule that learned them, or not without being asked."""

from __future__ import annotations

import json
import logging
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from river import preprocessing

from streamforest import ConsistentForestClassifier
from streamforest.cli import root
from streamforest.errors import SnapshotError, VersionChangeError
from streamforest.forests.core import registry
from streamforest.forests.core.base import Forest
from streamforest.forests.persistence import snapshot
from streamforest.runtime.checkpoint.journal import Entry, read_entry, revisions_of
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened as open_run
from streamforest.runtime.operate.whatif import whatif
from streamforest.runtime.processing.adapters import wrap_model
from streamforest.runtime.processing.loop import Run
from streamforest.runtime.recovery.revisions import check_revisions

KIND = "model.kind=consistent"
OTHER = {"reason": "by revision 1, now by 2"}


def opened(path: Path, folder: Path, accept: bool = False) -> AbstractContextManager[Run]:
    pipeline = load_pipeline(
        path, {}, [KIND, "run.commit_interval_events=40", f"run.folder={folder}"]
    )
    return open_run(pipeline, accept_version_change=accept)


def killed_at(path: Path, folder: Path, events: int, accept: bool = False) -> None:
    """A run that ends without a last commit and snapshot."""

    def watch(run: Run) -> None:
        run.snapshots.wait()
        if run.events >= events:
            raise InterruptedError

    with opened(path, folder, accept) as run, pytest.raises(InterruptedError):
        run.consume(watch=watch)


def raise_revision(patch: pytest.MonkeyPatch, to: int = 2) -> None:
    """The one line that whoever changes a rule changes."""
    patch.setattr(ConsistentForestClassifier, "learning_revision", to)


def entries(folder: Path) -> list[Entry]:
    return [read_entry(0, line) for line in (folder / "journal.jsonl").read_bytes().splitlines()]


def named(folder: Path) -> str:
    told = json.loads(json.loads((folder / "commit.json").read_bytes())["metadata"])
    return str(told["snapshot"])


@pytest.fixture(autouse=True)
def logs_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a command in this process has sent them to stderr alone."""
    monkeypatch.setattr(logging.getLogger("streamforest"), "propagate", True)


def test_every_forest_has_one() -> None:
    for forest in registry.entries():
        revision = forest.load().learning_revision
        assert type(revision) is int
        assert revision >= 1


def test_a_snapshot_tells_it_and_without_it_is_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forest = ConsistentForestClassifier(n_trees=1, seed=0)
    first = snapshot.encode({"main": forest})
    assert b"learning_revision" not in first
    raise_revision(monkeypatch, 7)
    data = snapshot.encode({"main": forest})
    assert b"learning_revision" in data
    assert _loaded(data)._saved_by == 7
    assert _loaded(first)._saved_by == 1
    raise_revision(monkeypatch, 1)  # an older version, after a clean stop
    assert _loaded(data)._saved_by == 7
    usual = snapshot.serialization._dump
    for wrong in (0, True, "2", 1 << 60, None):
        with monkeypatch.context() as patch:

            def forged(one: Forest, wrong: object = wrong) -> object:
                meta, arrays = usual(one)
                return {**meta, "learning_revision": wrong}, arrays

            patch.setattr(snapshot.serialization, "_dump", forged)
            data = snapshot.encode({"main": forest})
        with pytest.raises(SnapshotError, match="learning_revision"):
            _loaded(data)


def _loaded(data: bytes) -> Forest:
    models, _ = snapshot.decode(data)
    forest: Forest = models["main"]
    return forest


def test_a_river_pipeline_has_that_of_its_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled = preprocessing.StandardScaler() | ConsistentForestClassifier(n_trees=1, seed=0)
    models = {"main": wrap_model(scaled)}
    assert revisions_of(models) == {}
    raise_revision(monkeypatch)
    assert revisions_of(models) == {"main": 2}
    with pytest.raises(VersionChangeError, match=OTHER["reason"]):
        check_revisions(Entry(3, 0, 9), models, accept=False)
    check_revisions(Entry(3, 9, 9), models, accept=False)  # nothing was learned
    check_revisions(Entry(3, 0, 9), models, accept=True)
    # a shadow that is no longer in the pipeline file
    check_revisions(Entry(3, 0, 9, revisions={"main": 2, "gone": 4}), models, accept=False)


def test_records_of_the_first_revision_are_as_they_always_were() -> None:
    assert b"revisions" not in msgspec.json.encode(Entry(1, 0, 5))
    assert read_entry(0, b'{"commit":1,"first":0,"events":5}').revisions == {}


def test_events_learned_by_another_rule_are_not_learned_again_unasked(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    killed_at(small, folder, 320)  # the last snapshot is at 200, the last commit at 280
    raise_revision(monkeypatch)
    with (
        pytest.raises(VersionChangeError, match=r"main \(Cons.*revision 1, now by 2.*--accept"),
        opened(small, folder),
    ):
        pass
    command = ["run", str(small), "--quiet", "--set", KIND, "--set", f"run.folder={folder}"]
    done = CliRunner().invoke(root, [*command, "--set", "run.commit_interval_events=40"])
    assert done.exit_code == 1
    assert "stop it cleanly" in done.stderr
    # asked once: the snapshot that follows is of the new rule
    killed_at(small, folder, 400, accept=True)
    assert int(named(folder)[2:]) > 280
    killed_at(small, folder, 500)
    with opened(small, folder) as run:
        assert run.consume() == "finished"
    assert {tuple(entry.revisions.items()) for entry in entries(folder)} == {(), (("main", 2),)}


def test_after_a_clean_stop_nothing_is_asked(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    with opened(small, folder) as run:
        run.consume(max_events=210)
    raise_revision(monkeypatch)
    with caplog.at_level(logging.INFO, "streamforest"), opened(small, folder) as run:
        assert run.events == 210
    assert "learned by revision 1 of its rule up to event 210; from here on it is 2" in caplog.text
    # killed before the first snapshot of the new rule: the records say that it was the new one
    killed_at(small, folder, 380)
    assert named(folder) == "s-000000000210"
    assert entries(folder)[-1].revisions == {"main": 2}
    with opened(small, folder) as run:
        assert run.events > 210
        assert run.consume() == "finished"
    with opened(small, tmp_path / "undisturbed") as run:
        run.consume()
    for name in ("predictions.jsonl", "snapshots/s-000000000600.safetensors"):
        assert (folder / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
    # and back again, where another version's records are to be replayed
    killed = tmp_path / "killed"
    killed_at(small, killed, 320)
    raise_revision(monkeypatch, 1)
    with pytest.raises(VersionChangeError, match="revision 2, now by 1"), opened(small, killed):
        pass


def test_what_if_is_told_that_it_was_not_so(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with opened(small, folder) as run:
        run.consume()
    raise_revision(monkeypatch)
    flags = [KIND, f"run.folder={folder}"]
    pipeline = load_pipeline(small, {}, flags)
    changed = load_pipeline(small, {}, [*flags, "model.n_trees=3"])
    with pytest.raises(VersionChangeError):
        whatif(pipeline, changed, "400")
    assert len(whatif(pipeline, changed, "400", accept_version_change=True)) == 3


@pytest.mark.parametrize("replayed", [True, False])
def test_other_packages_are_told_where_events_are_learned_again(
    small: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, replayed: bool
) -> None:
    folder = tmp_path / "run"
    if replayed:
        killed_at(small, folder, 320)
    else:
        with opened(small, folder) as run:
            run.consume(max_events=200)
    sidecar = folder / "snapshots" / "s-000000000200.safetensors.json"
    told = json.loads(sidecar.read_text(encoding="utf-8"))
    told["versions"]["numpy"], told["machine"] = "1.0", "sparc"
    sidecar.write_text(json.dumps(told), encoding="utf-8")
    caplog.clear()
    with opened(small, folder):
        pass
    assert ("numpy 1.0 → " in caplog.text) is replayed
    assert ("machine sparc → " in caplog.text) is replayed
