"""A consumer forked from a server that has everything loaded: the same process, without the wait."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from streamforest.io import failpoints
from streamforest.testing.process import Consumer

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["streamforest.testing.preload"])


class _Handle:
    """What `Consumer` needs of a process, on top of multiprocessing's."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid = int(process.pid)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float) -> int:
        """The exit code, waited for."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise TimeoutError(f"still alive after {timeout} s")
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """A signal, by id."""
        os.kill(self.pid, number)


class ForkedConsumer(Consumer):
    """Like `Consumer`, and ready in a moment: for tests that start many."""

    def start(self) -> ForkedConsumer:
        """Fork the consumer."""
        told = self._environ.get(failpoints.VARIABLE, "")
        process = context.Process(
            target=_live,
            args=(self._command[4:], told, self._folder, self._output.name, self._errors.name),
        )
        process.start()
        self._process = _Handle(process)  # type: ignore[assignment]
        return self


def _live(arguments: list[str], failpoint: str, folder: Path | None, out: str, err: str) -> None:
    """The child: its own streams, folder and failpoint, then the command."""
    for number, name in ((1, out), (2, err)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND), number)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", buffering=1)
    if folder is not None:
        os.chdir(folder)
    if failpoint:
        name, _, passes = failpoint.partition(":")
        failpoints.arm(name, int(passes))
    os.environ["STREAMFOREST_QUIET"] = "1"
    sys.argv = ["streamforest", "run", *arguments]
    import_module("streamforest.cli").main()
