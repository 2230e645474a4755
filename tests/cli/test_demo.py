"""`streamforest demo` in an empty folder: what it shows, what it leaves, and the commands it ends with."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from integration.waiting import get, until

from streamforest.cli import root
from streamforest.testing.broker import download
from streamforest.testing.plugin import missing
from streamforest.testing.process import _START

FILE = Path("streamforest-demo/demo.toml")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")
    return tmp_path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, arguments)


def checked(done: Result) -> str:
    """The report of a demo that has come to its end."""
    assert done.exit_code == 0, done.stderr
    assert "live page: http://127.0.0.1:" in done.stderr
    assert re.search(r"\d+ of 5,391 events", done.stderr)
    assert "last new class" in done.stderr
    told = done.stdout
    assert "5,391 of 5,391, 10 classes" in told
    assert "by class age  1–10: " in told
    assert re.search(r"new classes +10 of 10 reached 80 % recall, after \d+ to \d+ events", told)
    assert "latency" in told
    return told


def commands(told: str) -> list[list[str]]:
    lines = told.partition("Go on with:")[2].splitlines()
    return [shlex.split(line) for line in lines if line.startswith("  ") and line[2] != " "]


def test_the_demo_from_the_file_and_the_commands_to_go_on_with() -> None:
    told = checked(invoke("demo", "--source", "file", "--rate", "100000"))
    keep, other, python = commands(told)

    assert keep[0] == "streamforest"
    child = subprocess.Popen(
        [sys.executable, "-c", _START, *keep[1:]], stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stderr is not None
        told = ""
        while "The page stays" not in told:
            line = child.stderr.readline()
            assert line, f"ended with {child.wait(60)}:\n{told}"
            told += line
        url = re.search(r"The page stays.*(http://\S+)", told)
        assert url is not None
        until(lambda: '"finished":true' in get(f"{url[1]}page/now.json")[1])
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.wait()

    done = invoke(*other[1:])
    assert done.exit_code == 0, done.stderr
    assert "5,391 of 5,391" in done.stdout
    assert python[0] == "python"
    found = subprocess.run([sys.executable, *python[1:]], capture_output=True, text=True)
    assert "'classes': 10" in found.stdout, found.stderr


def test_the_demo_can_be_repeated_but_does_not_overwrite_what_somebody_changed() -> None:
    assert invoke("demo", "--source", "file", "--rate", "100000").exit_code == 0
    checked(invoke("demo", "--source", "file", "--rate", "100000"))
    FILE.write_text(FILE.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    done = invoke("demo", "--source", "file")
    assert done.exit_code == 2
    assert "was changed since the demo wrote it" in done.stderr
    assert FILE.read_text(encoding="utf-8").endswith("# mine\n")


def test_without_java_the_demo_says_so_and_reads_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "missing", lambda: "Java 17 is not installed: install it")
    done = invoke("demo", "--rate", "100000")
    checked(done)
    assert "straight from the file: Java 17 is not installed: install it." in done.stderr
    refused = invoke("demo", "--source", "broker")
    assert refused.exit_code == 1
    assert "--source broker: Java 17 is not installed" in refused.stderr


def test_the_demo_through_a_broker_of_its_own() -> None:
    reason = download.missing()
    if reason is not None:
        missing(reason)
    done = invoke("demo", "--source", "broker", "--rate", "5000")
    told = checked(done)
    assert "Through a Kafka broker of its own, 127.0.0.1:" in done.stderr
    snapshot = commands(told)[2][-1].split("'")[1]
    assert os.path.exists(snapshot)
