"""The loop in one process: what it writes, and that stopping and going on leaves no trace."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamforest.errors import ChangedError, RecoveryError, StreamForestError
from streamforest.forests.persistence import snapshot
from streamforest.forests.persistence.snapshot import host, try_lock
from streamforest.io.file_log import FileReader, FileSource, RunFolder
from streamforest.io.log import Commit, LogUnavailable, Owned, Partition
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened as open_run
from streamforest.runtime.processing import advancing
from streamforest.runtime.processing.loop import Run


def opened(
    path: Path, folder: Path, *flags: str, fresh: bool = False
) -> AbstractContextManager[Run]:
    return open_run(load_pipeline(path, {}, [*flags, f"run.folder={folder}"]), fresh=fresh)


def whole(path: Path, folder: Path, *flags: str) -> dict[str, bytes]:
    with opened(path, folder, *flags) as run:
        assert run.consume() == "finished"
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """The result of a run: its predictions and its last snapshot."""
    (*_, last) = sorted((folder / "snapshots").glob("*.safetensors"))
    files = folder / "predictions.jsonl", folder / "dead_letters.jsonl", last
    return {file.name: file.read_bytes() for file in files}


def test_predictions_are_those_of_the_model_event_by_event(small: Path, tmp_path: Path) -> None:
    files = whole(small, tmp_path / "run")
    pipeline = load_pipeline(small)
    assert pipeline.source is not None
    model, rows = pipeline.models["main"].forest, [row.event for row in pipeline.source.rows(0)]
    labels = [event.y for event in rows]
    posteriors = model.advance([event.x for event in rows], labels)
    written = [json.loads(line) for line in files["predictions.jsonl"].splitlines()]
    assert [line["event"] for line in written] == list(range(600))
    assert [line["truth"] for line in written] == labels
    assert np.array_equal([line["probability"] for line in written], posteriors.max(axis=1))
    first = {"event": 0, "label": None, "probability": 0.0, "truth": labels[0], "top": []}
    first |= {"topic": "digits", "partition": 0, "offset": 0, "learned": 0, "new": True}
    assert written[0] == first
    classes = model.classes_
    assert [line["label"] for line in written[1:]] == [
        classes[k] for k in posteriors.argmax(axis=1)[1:]
    ]


@pytest.mark.parametrize(
    "flag", ["run.batch_size=1", "run.batch_size=7", "run.batch_size=600", "model.n_jobs=2"]
)
def test_batch_size_and_threads_change_no_byte(small: Path, tmp_path: Path, flag: str) -> None:
    assert whole(small, tmp_path / "a") == whole(small, tmp_path / "b", flag)


def test_snapshot_interval_changes_no_byte(small: Path, tmp_path: Path) -> None:
    assert whole(small, tmp_path / "a") == whole(
        small, tmp_path / "b", "run.snapshot_interval_events=90"
    )


def test_recovery_that_was_interrupted_begins_anew(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker goes away in the middle of it; here the file plays its part."""
    folder, flag = tmp_path / "run", "run.commit_interval_events=40"

    def end(run: Run) -> None:
        run.snapshots.wait()  # so that the next commit names it
        if run.events == 360:
            raise InterruptedError

    with opened(small, folder, flag) as run, pytest.raises(InterruptedError):
        run.consume(watch=end)
    usual = FileSource.reader
    taken = []

    def reader(source: FileSource, positions: Mapping[Partition, int]) -> FileReader:
        found = usual(source, positions)
        take = found.take

        def some(partition: Partition, first: int, end: int) -> list[Any]:
            taken.append(first)
            if len(taken) == 3:
                raise LogUnavailable("gone")
            return take(partition, first, end)

        found.take = some  # type: ignore[method-assign]
        return found

    monkeypatch.setattr(FileSource, "reader", reader)
    assert whole(small, folder, flag) == whole(small, tmp_path / "undisturbed", flag)
    assert taken == [200, 240, 280, 200, 240, 280, 320]


def test_stopping_and_going_on_changes_no_byte(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    positions = []
    for most in (1, 130, 200, 1000):
        with opened(small, folder) as run:
            ending = run.consume(max_events=most)
            positions.append(run.events)
    assert (positions, ending) == ([1, 131, 331, 600], "finished")
    assert contents(folder) == whole(small, tmp_path / "whole")


def test_a_stop_request_ends_after_the_batch_with_a_snapshot_there(
    small: Path, tmp_path: Path
) -> None:
    with opened(small, tmp_path / "run") as run:
        assert run.consume(stop=lambda: run.events >= 120) == "stopped"
    with opened(small, tmp_path / "run") as run:
        assert run.events == 120
        assert len((tmp_path / "run" / "predictions.jsonl").read_bytes().splitlines()) == 120


def test_measures_survive_and_the_sidecar_may_be_lost(small: Path, tmp_path: Path) -> None:
    for name in ("kept", "lost", "broken"):
        folder = tmp_path / name
        with opened(small, folder) as run:
            run.consume(max_events=300)
        (*_, sidecar) = sorted((folder / "snapshots").glob("*.measures"))
        if name == "lost":
            sidecar.unlink()
        if name == "broken":
            sidecar.write_text('{"models": []}')
        with opened(small, folder) as run:
            run.consume()
            main = run.measures["main"]
            assert main.totals.events == 600
            assert main.totals.classes == 10
            assert main.per_event.total == (600 if name == "kept" else 300)
            assert run.state.pace.events == (600 if name == "kept" else 300)


def with_a_bad_row(run: Run) -> None:
    run.log.source.recorded._stream.X[333, 5] = np.nan  # type: ignore[attr-defined]


def test_an_error_leaves_the_last_commit_in_charge(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with opened(small, folder, "dead_letters.policy=stop") as run:
        with_a_bad_row(run)
        with pytest.raises(StreamForestError, match=r"digits, row 334: .*policy = 'stop'"):
            run.consume()
    with opened(small, folder) as run:
        assert run.events == 200
        run.consume()
    assert contents(folder) == whole(small, tmp_path / "whole")


@pytest.mark.parametrize(("policy", "letters"), [("dead-letter", 1), ("skip", 0)])
def test_a_bad_event_does_not_disturb_the_rest(
    small: Path, tmp_path: Path, policy: str, letters: int
) -> None:
    folder = tmp_path / policy
    with opened(small, folder, f"dead_letters.policy={policy}") as run:
        with_a_bad_row(run)
        assert run.consume() == "finished"
        assert run.measures["main"].totals.events == 599
    written = (folder / "predictions.jsonl").read_bytes().splitlines()
    dead = [json.loads(line) for line in (folder / "dead_letters.jsonl").read_text().splitlines()]
    assert (len(written), len(dead)) == (599, letters)
    if dead:
        assert dead[0]["headers"]["__streams.errors.offset"] == "333"
        assert dead[0]["headers"]["__streamforest.errors.reason"] == "feature"


def test_a_label_is_learned_from_its_nth_event_on(small: Path, tmp_path: Path) -> None:
    with opened(small, tmp_path / "a", "limits.min_class_events=5") as run:
        run.consume(max_events=300)
        kept = run.state.gate.state()
        assert run.state.models["main"].n_learned == 300 - 4 * len(kept["labels"]) - sum(
            count for _, count in kept["waiting"]
        )
    whole(small, tmp_path / "a", "limits.min_class_events=5")
    assert contents(tmp_path / "a") == whole(small, tmp_path / "b", "limits.min_class_events=5")


def test_a_finished_run_has_nothing_left_and_fresh_starts_over(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    before = whole(small, folder)
    with opened(small, folder) as run:
        assert run.log.source.at_end()
        assert run.consume() == "finished"
    assert contents(folder) == before
    with opened(small, folder, fresh=True) as run:
        assert run.events == 0
        run.consume()
    assert contents(folder) == before


def test_other_settings_do_not_continue_a_run(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with opened(small, folder) as run:
        run.consume(max_events=100)
    with (
        pytest.raises(ChangedError, match=r"model\.n_trees is 6 and was 5.*--fresh"),
        opened(small, folder, "model.n_trees=6"),
    ):
        pass
    with (
        pytest.raises(ChangedError, match=r"source\.schedule\.every is 61 and was 60"),
        opened(small, folder, "source.schedule.every=61"),
    ):
        pass
    with (
        pytest.raises(ChangedError, match=r"model\.kind is 'OnlineForest"),
        opened(small, folder, "model.kind=online"),
    ):
        pass
    with opened(small, folder, "model.n_jobs=2") as run:
        assert run.events == 100


def test_a_damaged_snapshot_gives_way_to_an_older_one(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for most in (200, 200, 1000):  # each stop leaves a snapshot, however slow the disk
        with opened(small, folder) as run:
            run.consume(max_events=most)
    before = contents(folder)
    snapshots = sorted((folder / "snapshots").glob("*.safetensors"))
    assert len(snapshots) == 3
    snapshots[-1].write_bytes(b"no snapshot at all")
    with opened(small, folder) as run:
        assert run.events == 600
        for name, measures in run.measures.items():
            assert measures.totals.events == 600, name
    for path in snapshots[:-1]:
        path.unlink()
    with pytest.raises(RecoveryError, match=r"hash differs.*--fresh"), opened(small, folder):
        pass
    with opened(small, folder, fresh=True) as run:
        assert run.events == 0
        run.consume()
    assert contents(folder) == before


def test_a_prediction_too_large_for_a_topic_names_the_likeliest_class_only(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = whole(small, tmp_path / "usual")["predictions.jsonl"].splitlines()
    monkeypatch.setattr(advancing, "MAX_PREDICTION", len(usual[500]) - 1)
    cut = whole(small, tmp_path / "cut")["predictions.jsonl"].splitlines()
    assert len(json.loads(usual[500])["top"]) > 1
    for before, after in zip(map(json.loads, usual), map(json.loads, cut), strict=True):
        too_large = len(msgspec.json.encode(before)) >= len(usual[500])
        assert after == {**before, "top": before["top"][:1]} if too_large else before


def test_lost_predictions_are_named(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    whole(small, folder)
    (folder / "predictions.jsonl").unlink()
    with pytest.raises(RecoveryError, match=r"predictions\.jsonl: 0 bytes"), opened(small, folder):
        pass


def test_a_shadow_is_measured_and_publishes_nothing(small: Path, tmp_path: Path) -> None:
    text = small.read_text() + '\n[[shadow]]\nname = "deep"\nkind = "online"\nn_trees = 2\n'
    alone = whole(small, tmp_path / "alone")["predictions.jsonl"]
    small.write_text(text)
    with opened(small, tmp_path / "both") as run:
        run.consume()
        assert list(run.measures) == ["main", "deep"]
        assert run.measures["deep"].totals.events == 600
    assert contents(tmp_path / "both")["predictions.jsonl"] == alone


def test_a_folder_is_held_by_one_run_at_a_time(small: Path, tmp_path: Path) -> None:
    with opened(small, tmp_path / "run") as run:
        with (
            pytest.raises(StreamForestError, match="another run is under way"),
            opened(small, tmp_path / "run"),
        ):
            pass
        run.consume(max_events=10)


def test_what_a_kill_left_of_a_snapshot_is_cleared(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "snapshots"
    folder.mkdir(parents=True)
    parts = {
        who: folder / f"s-000000000200.safetensors.{who}.part"
        for who in (f"{host()}_dead", f"{host()}_alive", "elsewhere_dead", "elsewhere_alive")
    }
    for part in parts.values():
        part.write_bytes(b"half a snapshot")
    long_ago = time.time() - 4_000
    os.utime(parts["elsewhere_dead"], (long_ago, long_ago))
    os.utime(parts[f"{host()}_alive"], (long_ago, long_ago))  # a disk that hangs
    with parts[f"{host()}_alive"].open("rb") as file:
        assert try_lock(file)
        whole(small, tmp_path / "run")
    left = set(folder.glob("*.part"))
    assert left == {parts[f"{host()}_alive"], parts["elsewhere_alive"]}


def test_a_snapshot_without_its_measures_counts(small: Path, tmp_path: Path) -> None:
    (tmp_path / "run" / "snapshots" / "s-000000000200.safetensors.measures").mkdir(parents=True)
    with opened(small, tmp_path / "run") as run:
        run.consume(max_events=200)
        assert run.context.last_commit is not None
        assert run.context.last_commit.snapshot == "s-000000000200"
        assert run.snapshots.take_failure() is None


@pytest.mark.parametrize("error", [KeyError("a bug"), MemoryError(), OSError("disk full")])
def test_whatever_keeps_a_snapshot_from_being_written_is_told(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*args: Any) -> bytes:
        raise error

    with opened(small, tmp_path / "run") as run:
        run.consume(max_events=40)
        with monkeypatch.context() as patch:
            patch.setattr(snapshot, "encode", fails)
            run.scheduler.begin()
            run.snapshots.wait()
        failure = run.snapshots.take_failure()
        assert failure is not None
        assert failure.reason == "write"
        assert str(error) in failure.message
        assert run.consume() == "finished"


def test_older_snapshots_that_cannot_be_deleted_stop_nobody(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streamforest.runtime.checkpoint.storage._PATIENCE", 0.0)
    folder = tmp_path / "run" / "snapshots"
    with opened(small, tmp_path / "run", "run.keep_snapshots=1") as run:
        run.consume(max_events=200)
        with (folder / "pins.lock").open("ab") as file:
            assert try_lock(file)
            run.consume(max_events=200)
        assert "held by another process" in caplog.text
        caplog.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", _read_only)
            run.consume(max_events=100)
        assert "Read-only" in caplog.text
        assert len(run.snapshots.names()) == 3
        run.consume(max_events=100)
        assert run.snapshots.names() == ["s-000000000600"]


def _read_only(path: Path, missing_ok: bool = False) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_partition_that_was_made_anew_is_not_taken_for_the_old_one(
    small: Path, tmp_path: Path, rebuilt: bool
) -> None:
    with opened(small, tmp_path / "run") as run:
        run.consume(max_events=80)
        (partition,) = run.state.positions
        found = run.log.journal.last_commit()
        if rebuilt:
            run.context.demote()

        def recover(new_partitions: dict[Partition, int]) -> None:
            answer = Owned(Commit(found, {}, new_partitions))
            run.log.membership.try_acquire = lambda: answer  # type: ignore[method-assign]
            run.recover()

        with pytest.raises(RecoveryError, match=r"up to offset 80, .*recreated.* --from log-end"):
            recover({partition: 0})
        recover({("another", 0): 5})
        assert run.state.positions == {partition: 80, ("another", 0): 5}
        recover({("another", 0): 5})  # added, and not yet committed: met once more
        assert run.context.pending.added == [("another", 0, 5)]


def test_a_request_that_comes_while_another_is_committed_stays(small: Path, tmp_path: Path) -> None:
    text = small.read_text(encoding="utf-8")
    for name in ("first", "second"):
        text += f'\n[[shadow]]\nname = "{name}"\nkind = "online"\nn_trees = 1\n'
    small.write_text(text, encoding="utf-8")
    with opened(small, tmp_path / "run") as run:
        requests = run.settings.requests
        requests.request_promotion("first")
        usual = run.committer.send

        def send() -> bool:
            run.committer.send = usual  # type: ignore[method-assign]
            made = usual()
            requests.request_promotion("second")
            return made

        run.committer.send = send  # type: ignore[method-assign]
        run.consume(max_events=40)  # a commit, and the one that names the last snapshot
        assert run.main == "second"
        assert not requests.waiting
        requests.request_promotion("nobody")
        run.consume(max_events=40)
        assert not requests.waiting


@pytest.mark.parametrize("where", ["clear", "recover"])
def test_starting_over_may_be_cut_short_anywhere(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    files = whole(small, tmp_path / "run")

    def killed(*arguments: Any) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder if where == "clear" else Run, where, killed)
        with pytest.raises(InterruptedError), opened(small, tmp_path / "run", fresh=True):
            pass
    if where == "clear":
        with pytest.raises(RecoveryError, match="--fresh"), opened(small, tmp_path / "run"):
            pass
    with opened(small, tmp_path / "run", fresh=where == "clear") as run:
        assert run.consume() == "finished"
    assert contents(tmp_path / "run") == files


def test_a_lost_commit_of_a_file_run_is_told_as_such(small: Path, tmp_path: Path) -> None:
    whole(small, tmp_path / "run")
    (tmp_path / "run" / "commit.json").unlink()
    with (
        pytest.raises(RecoveryError, match=r"commit\.json is not there: .*--fresh"),
        opened(small, tmp_path / "run"),
    ):
        pass


def test_how_new_an_event_is_goes_out_with_its_prediction(small: Path, tmp_path: Path) -> None:
    """As of that event, however the run is cut; the first event has nothing to be compared with."""
    ncm = "model.kind=ncm"
    files = whole(small, tmp_path / "whole", ncm)
    with opened(small, tmp_path / "cut", ncm, "run.batch_size=7") as run:
        run.consume(max_events=130)
    with opened(small, tmp_path / "cut", ncm, "run.batch_size=50") as run:
        assert run.consume() == "finished"
    assert contents(tmp_path / "cut") == files
    written = [json.loads(line) for line in files["predictions.jsonl"].splitlines()]
    assert "novelty" not in written[0]
    novelty = {True: [], False: []}
    for line in written[60:]:
        novelty[line.get("new", False)].append(line["novelty"])
    assert len(novelty[True]) == 8  # classes that came later
    assert np.median(novelty[True]) > 1.3 * np.median(novelty[False])
