"""A pipeline that has read nothing may be changed in any way and started again."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from streamforest.errors import ChangedError, ConfigError
from streamforest.io.run_lock import RunLock, claim
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.loop import Run

TEXT = '[pipeline]\nname = "p"\n[source]\nfile = "{file}"\n[model]\nn_trees = 2\n{more}'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "b.jsonl"):
        lines = [json.dumps({"x": {name[0]: i}, "y": i % 2}) for i in range(50)]
        Path(name).write_text("\n".join(lines) + "\n")


def start(file: str, more: str = "", *flags: str) -> AbstractContextManager[Run]:
    Path("p.toml").write_text(TEXT.format(file=file, more=more))
    return opened(load_pipeline(Path("p.toml"), {}, flags))


SHADOW = '[[shadow]]\nname = "s"\nkind = "online"\nn_trees = 1\n'


@pytest.mark.parametrize(
    ("file", "more", "flags"),
    [
        ("a.jsonl", "", ["model.seed=7"]),
        ("a.jsonl", "", ["model.kind=online"]),
        ("b.jsonl", "", []),
        ("a.jsonl", SHADOW, []),
        ("a.jsonl", "", ["limits.min_class_events=2", "source.max_events=30"]),
    ],
)
def test_before_the_first_event_anything_may_change(file: str, more: str, flags: list[str]) -> None:
    with start("a.jsonl") as run:
        assert run.events == 0
    for _ in range(2):  # nor does it matter that it was changed before
        with start(file, more, *flags) as run:
            assert run.events == 0
    with start(file, more, *flags) as run:
        run.consume(max_events=20)
        seen = dict(run.state.positions)
    assert seen == {(file, 0): 20}
    with start(file, more, *flags) as run:
        assert run.events == 20
        run.consume()
        assert run.state.rows.summary().learned > 0
        assert list(run.measures) == (["main", "s"] if more else ["main"])
    with pytest.raises(ChangedError), start(file, more, *flags, "model.n_trees=9"):
        pass


def test_after_a_kill_before_the_second_snapshot_the_changed_run_recovers() -> None:
    with start("a.jsonl") as run:
        assert run.events == 0
    flags = ("run.snapshot_interval_events=1000", "run.commit_interval_events=10", "model.seed=3")
    with start("b.jsonl", "", *flags) as run:
        for _ in range(3):
            run._step(10)
            run._commit()
        committed = run.events
        assert committed > 0
        assert run.snapshots.names() == ["s-000000000000"]
    with start("b.jsonl", "", *flags) as run:  # from the snapshot of nothing and the journal
        assert run.events == committed
        assert run.state.models["main"].forest.seed == 3


def test_a_folder_in_which_nothing_was_read_may_become_another_pipelines(tmp_path: Path) -> None:
    first, second = {"events": "a"}, {"events": "b"}
    claim(tmp_path, first)
    with pytest.raises(ConfigError, match="belongs to another pipeline"):
        claim(tmp_path, second)
    lock, other = RunLock(tmp_path, shared=True), RunLock(tmp_path, shared=True)
    assert not lock.is_alone()
    other.release()
    assert lock.is_alone()
    claim(tmp_path, second, unused=lock.is_alone)
    with pytest.raises(ConfigError):
        claim(tmp_path, first)
    lock.release()
