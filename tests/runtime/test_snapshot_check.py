"""A snapshot is loaded before it is named: one that a start would refuse never counts."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import streamforest
from streamforest import ConsistentForestClassifier
from streamforest.cli import root
from streamforest.errors import SnapshotError
from streamforest.forests.persistence import snapshot
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened as open_run
from streamforest.runtime.processing.adapters import wrap_model
from streamforest.runtime.processing.loop import Run

KIND = "model.kind=consistent"


def opened(
    path: Path, folder: Path, *flags: str, telemetry: PipelineMetrics | None = None
) -> AbstractContextManager[Run]:
    pipeline = load_pipeline(path, {}, [KIND, *flags, f"run.folder={folder}"])
    return open_run(pipeline, telemetry=telemetry)


def result(folder: Path) -> dict[str, bytes]:
    files = [folder / "predictions.jsonl", folder / "snapshots" / "s-000000000600.safetensors"]
    return {file.name: file.read_bytes() for file in files}


@pytest.fixture(autouse=True)
def logs_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a command in this process has sent them to stderr alone."""
    monkeypatch.setattr(logging.getLogger("streamforest"), "propagate", True)


@pytest.fixture
def undisturbed(small: Path, tmp_path: Path) -> dict[str, bytes]:
    with opened(small, tmp_path / "undisturbed") as run:
        assert run.consume() == "finished"
    return result(tmp_path / "undisturbed")


@contextmanager
def broken_dump() -> Iterator[None]:
    """While entered, a forest gives arrays that no forest can have."""
    usual = ConsistentForestClassifier._dump

    def broken(self: ConsistentForestClassifier) -> dict[str, Any]:
        arrays = usual(self)
        return {**arrays, "nodes.n_nodes": -arrays["nodes.n_nodes"]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsistentForestClassifier, "_dump", broken)
        yield


def failures(metrics: PipelineMetrics) -> dict[str, float | None]:
    return {
        reason: metrics.registry.get_sample_value(
            "streamforest_snapshot_failures_total", {"reason": reason}
        )
        for reason in ("write", "check")
    }


def named(run: Run) -> str:
    assert run.context.last_commit is not None
    return run.context.last_commit.snapshot


def test_a_snapshot_that_a_start_would_refuse_is_not_named(
    small: Path,
    tmp_path: Path,
    undisturbed: dict[str, bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder, metrics = tmp_path / "run", PipelineMetrics("small")
    seen: dict[int, tuple[str, list[str]]] = {}

    def watch(run: Run) -> None:
        run.snapshots.wait()  # so that the next commit would name it
        seen[run.events] = named(run), run.snapshots.names()

    with opened(small, folder, "run.commit_interval_events=40", telemetry=metrics) as run:
        with broken_dump():
            run.consume(stop=lambda: run.events >= 360, watch=watch)
        # at 200 and at the stop; neither has left anything
        assert seen[360] == ("s-000000000000", ["s-000000000000"])
        assert named(run) == "s-000000000000"
        assert failures(metrics) == {"write": 0.0, "check": 2.0}
        assert "no snapshot: a start would refuse it: the snapshot is damaged" in caplog.text
        assert not list((folder / "snapshots").glob("*.part"))
        assert run.consume(watch=watch) == "finished"
        assert seen[480][0] == "s-000000000400"  # the next good one
        assert named(run) == "s-000000000600"
        assert failures(metrics) == {"write": 0.0, "check": 2.0}
    assert result(folder) == undisturbed


def test_a_clean_stop_whose_snapshot_is_refused_says_so_and_loses_nothing(
    small: Path, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    folder = tmp_path / "run"
    command = ["run", str(small), "--quiet", "--set", KIND, "--set", f"run.folder={folder}"]
    with opened(small, folder) as run:
        run.consume(max_events=240)
    journal = (folder / "journal.jsonl").read_bytes()
    with broken_dump():
        done = CliRunner().invoke(root, [*command, "--max-events", "120"])
    assert done.exit_code == 0, done.output
    assert "no snapshot at event 360: a start would refuse it" in done.stderr
    assert "begins at s-000000000240 and learns the 120 events after it again" in done.stderr
    added = (folder / "journal.jsonl").read_bytes()[len(journal) :]
    assert len(added.splitlines()) == 1  # no commit for a snapshot that is not there
    done = CliRunner().invoke(root, command)
    assert done.exit_code == 0, done.output
    assert result(folder) == undisturbed


def test_a_run_does_not_begin_with_a_snapshot_that_it_would_refuse(
    small: Path, tmp_path: Path
) -> None:
    with (
        broken_dump(),
        pytest.raises(SnapshotError, match="n_nodes"),
        opened(small, tmp_path / "run"),
    ):
        pass
    with opened(small, tmp_path / "run") as run:
        assert run.consume() == "finished"


@pytest.mark.parametrize("key", ["admission", "totals", "positions", "events"])
def test_the_state_of_the_run_is_checked_too(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    with opened(small, tmp_path / "run") as run:
        run.consume(max_events=40)
        usual = RunState.jsonable
        with monkeypatch.context() as patch:
            patch.setattr(RunState, "jsonable", lambda *given: {**usual(*given), key: "damaged"})
            run.scheduler.begin()
            run.snapshots.wait()
        failure = run.snapshots.take_failure()
        assert failure is not None
        assert failure.reason == "check"


def test_an_error_of_the_check_itself_counts_as_refused(small: Path, tmp_path: Path) -> None:
    """What a start would end with a traceback is no snapshot either."""
    folder = SnapshotFolder(tmp_path)

    def fails(name: str, models: Any, state: Any) -> None:
        raise IndexError("a bug")

    model = wrap_model(ConsistentForestClassifier(n_trees=1, seed=0))
    folder.begin({"main": model}, {}, 1, 0, {}, fails)
    folder.wait()
    failure = folder.take_failure()
    assert failure is not None
    assert (failure.reason, failure.message) == ("check", "IndexError: a bug")
    assert folder.names() == []


@pytest.mark.parametrize(
    "kind", ["ConsistentForestClassifier", "StreamForestClassifier", "NCMForestClassifier"]
)
def test_the_copy_is_gone_before_the_check_and_the_check_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Else a snapshot would take more memory than `store.py` says."""
    model = getattr(streamforest, kind)(n_trees=2, seed=0)
    draw = np.random.default_rng(0)
    model.advance(draw.normal(size=(300, 3)), draw.integers(3, size=300).tolist())
    usual, folder = snapshot.encode, SnapshotFolder(tmp_path)
    copies: list[weakref.ref[Any]] = []
    alive: list[list[bool]] = []

    def encode(models: dict[str, Any], state: Any) -> bytes:
        copies.extend(weakref.ref(copy) for copy in models.values())
        return usual(models, state)

    def check(name: str, models: dict[str, Any], state: Any) -> None:
        alive.append([copy() is not None for copy in copies])
        copies.extend(weakref.ref(loaded) for loaded in models.values())

    monkeypatch.setattr(snapshot, "encode", encode)
    gc.disable()  # as it may be long until the next collection
    try:
        folder.begin({"main": wrap_model(model)}, {}, 300, 0, {}, check)
        folder.wait()
        assert alive == [[False]]
        assert [copy() is not None for copy in copies] == [False, False]
    finally:
        gc.enable()
    assert folder.names() == ["s-000000000300"]
