"""The loop in one process: what it writes, and that stopping and going on leaves no trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from streamforest.errors import ConfigError, SnapshotError, StreamForestError
from streamforest.runtime.config import load_pipeline
from streamforest.runtime.folder import RunFolder
from streamforest.runtime.loop import Run

FILES = ("snapshot.safetensors", "predictions.jsonl")


@contextmanager
def opened(path: Path, folder: Path, *flags: str, fresh: bool = False) -> Iterator[Run]:
    pipeline = load_pipeline(path, {}, flags)
    run = pipeline.config.run
    with (
        RunFolder(folder) as held,
        Run(
            pipeline.source,
            pipeline.models,
            held,
            batch=run.batch,
            snapshot_every=run.snapshot_every,
            fresh=fresh,
        ) as current,
    ):
        yield current


def whole(path: Path, folder: Path, *flags: str) -> dict[str, bytes]:
    with opened(path, folder, *flags) as run:
        assert run.consume() == "finished"
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def test_predictions_are_those_of_the_model_event_by_event(small: Path, tmp_path: Path) -> None:
    files = whole(small, tmp_path / "run")
    pipeline = load_pipeline(small)
    model, batch = pipeline.models["main"], pipeline.source.rows(0, 600)
    posteriors = model.advance(batch.x, batch.y)
    written = [json.loads(line) for line in files["predictions.jsonl"].splitlines()]
    assert [line["event"] for line in written] == list(range(600))
    assert [line["truth"] for line in written] == batch.y
    assert np.array_equal([line["probability"] for line in written], posteriors.max(axis=1))
    assert written[0] == {"event": 0, "label": None, "probability": 0.0, "truth": batch.y[0]}
    classes = model.classes_
    assert [line["label"] for line in written[1:]] == [
        classes[k] for k in posteriors.argmax(axis=1)[1:]
    ]


@pytest.mark.parametrize("flag", ["run.batch=1", "run.batch=7", "run.batch=600", "model.n_jobs=2"])
def test_batch_size_and_threads_change_no_byte(small: Path, tmp_path: Path, flag: str) -> None:
    assert whole(small, tmp_path / "a") == whole(small, tmp_path / "b", flag)


def test_snapshot_interval_changes_no_byte(small: Path, tmp_path: Path) -> None:
    assert whole(small, tmp_path / "a") == whole(small, tmp_path / "b", "run.snapshot_every=90")


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
        if name == "lost":
            (folder / "measures.json").unlink()
        if name == "broken":
            (folder / "measures.json").write_text('{"events": 300, "models": []}')
        with opened(small, folder) as run:
            run.consume()
            main = run.measures["main"]
            assert main.totals.events == 600
            assert main.totals.classes == 10
            assert main.per_event.total == (600 if name == "kept" else 300)
            assert run.pace.events == (600 if name == "kept" else 300)


def test_an_error_leaves_the_last_snapshot_in_charge(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with opened(small, folder) as run:
        run.source._stream.X[333, 5] = np.nan
        with pytest.raises(StreamForestError, match=r"events 320 to 359: model main refused"):
            run.consume()
    with opened(small, folder) as run:
        assert run.events == 200
        run.consume()
    assert contents(folder) == whole(small, tmp_path / "whole")


def test_a_finished_run_has_nothing_left_and_fresh_starts_over(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    before = whole(small, folder)
    with opened(small, folder) as run:
        assert run.finished
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
        pytest.raises(ConfigError, match=r"model\.n_trees is 6 and was 5.*--fresh"),
        opened(small, folder, "model.n_trees=6"),
    ):
        pass
    with (
        pytest.raises(ConfigError, match=r"source\.schedule\.every is 61 and was 60"),
        opened(small, folder, "source.schedule.every=61"),
    ):
        pass
    with (
        pytest.raises(ConfigError, match=r"model\.kind is 'OnlineForest"),
        opened(small, folder, "model.kind=online"),
    ):
        pass
    with opened(small, folder, "model.n_jobs=2") as run:
        assert run.events == 100


def test_a_damaged_snapshot_is_a_typed_error_and_fresh_helps(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    whole(small, folder)
    (folder / "snapshot.safetensors").write_bytes(b"no snapshot at all")
    with pytest.raises(SnapshotError), opened(small, folder):
        pass
    with opened(small, folder, fresh=True) as run:
        assert run.events == 0


def test_a_snapshot_of_a_model_alone_is_no_run(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    load_pipeline(small).models["main"].save(folder / "snapshot.safetensors")
    with pytest.raises(SnapshotError, match="holds no run"), opened(small, folder):
        pass


def test_lost_predictions_are_named(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    whole(small, folder)
    (folder / "predictions.jsonl").unlink()
    with pytest.raises(SnapshotError, match=r"predictions\.jsonl: 0 bytes"), opened(small, folder):
        pass


def test_a_folder_is_held_by_one_run_at_a_time(small: Path, tmp_path: Path) -> None:
    with opened(small, tmp_path / "run") as run:
        with (
            pytest.raises(StreamForestError, match="another run is under way"),
            opened(small, tmp_path / "run"),
        ):
            pass
        run.consume(max_events=10)
