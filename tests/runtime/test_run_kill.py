"""Signals and kill -9 against a real process, each at a moment that is chosen, not hit by luck.

The child runs the real command with one function wrapped: at the chosen moment it says so and
waits. The parent then sends its signal by the child's id. Children are forked from a server that
has the package loaded, so that each test does not pay for the imports.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamforest.__main__ import main
from streamforest.cli import root
from streamforest.io import failpoints
from streamforest.runtime.operate.stopping import StopSignals
from streamforest.testing.forked import context

POLL = "streamforest.io.file_log:FileSource.poll"
Files = dict[str, bytes]
FILES = ("snapshots/s-000000000600.safetensors", "predictions.jsonl", "journal.jsonl")


def run_held(
    talk: Connection, moment: str, call: int, when: str, arguments: list[str], output: Path
) -> None:
    """Run the command; before or after the given call of `moment`, wait for the parent's word."""
    sys.stdout = (output / "out").open("w", encoding="utf-8")
    sys.stderr = (output / "err").open("w", encoding="utf-8")
    module, _, path = moment.partition(":")
    *owners, name = path.split(".")
    place: Any = import_module(module)
    for owner in owners:
        place = getattr(place, owner)
    original, calls = getattr(place, name), 0

    def hold() -> None:
        talk.send("held")
        while not talk.poll(0.005):
            pass

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        here = calls == call
        if here and when == "before":
            hold()
        result = original(*args, **kwargs)
        if here and when == "after":
            hold()
        return result

    note = StopSignals._note

    def noted(self: StopSignals, number: int, frame: Any) -> None:
        note(self, number, frame)
        talk.send("noted")

    setattr(place, name, wrapped)
    StopSignals._note = noted  # type: ignore[method-assign]
    sys.argv = ["streamforest", "run", *arguments]
    main()


@dataclass
class Child:
    """The command in a process of its own, at the moment it was asked to wait at."""

    process: Any
    talk: Connection
    output: Path

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> tuple[int, str, str]:
        """Exit code and what was written to stdout and stderr."""
        self.process.join(60)
        out, err = ((self.output / name).read_text(encoding="utf-8") for name in ("out", "err"))
        return self.process.exitcode, out, err


@contextmanager
def held(small: Path, folder: Path, moment: str, call: int, when: str) -> Iterator[Child]:
    ours, theirs = context.Pipe()
    arguments = [str(small), "--set", f"run.folder={folder}"]
    process = context.Process(
        target=run_held, args=(theirs, moment, call, when, arguments, small.parent)
    )
    process.start()
    theirs.close()
    try:
        assert ours.recv() == "held"
        yield Child(process, ours, small.parent)
    finally:
        process.kill()
        process.join()


def finish(small: Path, folder: Path) -> Files:
    arguments = ["run", str(small), "--quiet", "--set", f"run.folder={folder}"]
    done = CliRunner().invoke(root, arguments)
    assert done.exit_code == 0, done.stderr
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, small_text: str) -> Files:
    """What a run that nobody stopped leaves behind."""
    folder = tmp_path_factory.mktemp("undisturbed")
    path = folder / "small.toml"
    path.write_text(small_text, encoding="utf-8")
    return finish(path, folder / "run")


def line_count(folder: Path) -> int:
    return len((folder / "predictions.jsonl").read_bytes().splitlines())


def run_armed(point: str, passes: int, arguments: list[str], output: Path) -> None:
    """Run the command with a failpoint; the module was loaded before, so it is armed by hand."""
    sys.stdout = (output / "out").open("w", encoding="utf-8")
    sys.stderr = (output / "err").open("w", encoding="utf-8")
    failpoints.arm(point, passes)
    sys.argv = ["streamforest", "run", *arguments]
    main()


# Commits are at events 0, 200, 400, 600 and once more at the end; batches of 40 make five polls
# between them. The first snapshot is that of the beginning.
@pytest.mark.parametrize("passes", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("point", failpoints.NAMES)
def test_kill_9_leaves_no_trace_in_the_result(
    small: Path, tmp_path: Path, undisturbed: Files, point: str, passes: int
) -> None:
    folder = tmp_path / "killed"
    arguments = [str(small), "--quiet", "--set", f"run.folder={folder}"]
    process = context.Process(target=run_armed, args=(point, passes, arguments, small.parent))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    with (folder / "predictions.jsonl").open("ab") as file:
        file.write(b'{"event":9')  # a line torn by the kill
    assert finish(small, folder) == undisturbed


def test_many_kills_in_one_run_leave_no_trace(
    small: Path, tmp_path: Path, undisturbed: Files
) -> None:
    folder = tmp_path / "killed"
    for call in (7, 7):
        with held(small, folder, POLL, call, "after") as child:
            child.signal(signal.SIGKILL)
            child.end()
    assert finish(small, folder) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_batch_snapshots_and_says_where_it_stands(
    small: Path, tmp_path: Path, undisturbed: Files, number: signal.Signals
) -> None:
    folder = tmp_path / "stopped"
    with held(small, folder, POLL, 4, "before") as child:
        child.signal(number)
        assert child.talk.recv() == "noted"
        child.talk.send("go on")
        code, out, err = child.end()
    assert code == 0, err
    assert f"Stopped by {number.name} after event 160 of 600" in err
    assert "160 of 600" in out
    assert line_count(folder) == 160
    finished = finish(small, folder)
    assert [finished[name] for name in FILES[:2]] == [undisturbed[name] for name in FILES[:2]]


def test_a_second_interrupt_ends_at_once(small: Path, tmp_path: Path, undisturbed: Files) -> None:
    folder = tmp_path / "interrupted"
    with held(small, folder, POLL, 8, "before") as child:
        child.signal(signal.SIGINT)
        assert child.talk.recv() == "noted"
        child.signal(signal.SIGINT)
        code, _, err = child.end()
    assert code == 130
    last = json.loads(err.splitlines()[-1])
    assert (last["level"], last["message"]) == ("warning", "interrupted")
    assert finish(small, folder) == undisturbed
