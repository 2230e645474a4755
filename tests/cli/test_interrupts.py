"""Ctrl-C while a command is being imported, and `python -m streamforest`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import os, signal, sys
from importlib.abc import MetaPathFinder

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
moment, sys.argv = sys.argv[1], ["streamforest", *sys.argv[2:]]

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == moment:
            os.kill(os.getpid(), signal.SIGINT)
        return None

from streamforest.__main__ import main
sys.meta_path.insert(0, Interrupting())
main()
"""


@pytest.mark.parametrize("moment", ["click", "river", "streamforest.runtime.factory"])
def test_an_interrupt_during_the_imports_is_one_line(moment: str) -> None:
    command = [sys.executable, "-c", CHILD, moment, "run", "nowhere.toml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


def test_a_daemon_may_have_no_stderr() -> None:
    command = f"exec {shlex.quote(sys.executable)} -m streamforest --version 2>&-"
    done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, timeout=120)
    assert done.returncode == 0
    assert done.stdout.startswith(b"streamforest")


def test_the_package_is_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamforest"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stdout.startswith("streamforest, version ")
    wrong = subprocess.run(
        [*command, "run", "nowhere.toml"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert wrong.returncode == 2
    assert "Usage" not in wrong.stderr
    assert wrong.stderr.startswith("Error: nowhere.toml: ")
