"""A consumer forked from a process that has everything loaded, so that it starts at once."""

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
    """A process of multiprocessing with the methods of `Popen` that `Consumer` uses."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid = int(process.pid)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float) -> int:
        """Wait for the exit code."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise TimeoutError(f"still alive after {timeout} s")
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)


class ForkedConsumer(Consumer):
    """A `Consumer` that starts at once, for tests that start many."""

    def start(self) -> ForkedConsumer:
        """Fork the consumer."""
        failpoint = self._environ.get(failpoints.VARIABLE, "")
        process = context.Process(
            target=_run_child,
            args=(
                self._command[3:],
                failpoint,
                self._folder,
                self._output.name,
                self._errors.name,
                {k: v for k, v in self._environ.items() if k.startswith("AWS_")},
            ),
        )
        process.start()
        self._process = _Handle(process)  # type: ignore[assignment]
        return self


def _run_child(
    arguments: list[str],
    failpoint: str,
    folder: Path | None,
    out: str,
    err: str,
    credentials: dict[str, str],
) -> None:
    """In the child: set up streams, folder and failpoint, then run the command."""
    for number, name in ((1, out), (2, err)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND), number)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", buffering=1)
    if folder is not None:
        os.chdir(folder)
    if failpoint:
        name, _, passes = failpoint.partition(":")
        failpoints.arm(name, int(passes))
    os.environ.update(credentials)  # the process that forks may be older than they are
    os.environ["STREAMFOREST_QUIET"] = "1"
    sys.argv = ["streamforest", *arguments]
    import_module("streamforest.__main__").main()
