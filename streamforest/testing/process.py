"""A consumer as a child process, which a test can stop or kill at a chosen moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from streamforest.io.failpoints import VARIABLE

_START = "import sys; sys.argv[0] = 'streamforest'; from streamforest.__main__ import main; main()"


class Consumer:
    """`streamforest run PIPELINE` as a child process.

    With a `failpoint` such as `"after-produce"` it kills itself with SIGKILL at the n-th pass.

    >>> consumer = Consumer("pipeline.toml", failpoint="before-commit", passes=2)  # doctest: +SKIP
    >>> consumer.start(); consumer.wait()  # doctest: +SKIP
    -9
    """

    command = "run"
    """The subcommand; `serve` for a replica."""

    def __init__(
        self,
        pipeline: str | Path,
        *arguments: str,
        failpoint: str | None = None,
        passes: int = 1,
        folder: Path | None = None,
    ) -> None:
        self._command = [sys.executable, "-c", _START, self.command, str(pipeline), *arguments]
        self._folder = folder
        self._environ = {**os.environ, "STREAMFOREST_QUIET": "1"}
        if failpoint is not None:
            self._environ[VARIABLE] = f"{failpoint}:{passes}"
        self._errors = tempfile.NamedTemporaryFile(prefix="consumer-", suffix=".log")  # noqa: SIM115
        self._output = tempfile.NamedTemporaryFile(prefix="consumer-", suffix=".out")  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The child's id."""
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> Consumer:
        """Start the process; `until_ready` waits until it processes events."""
        self._process = subprocess.Popen(
            self._command,
            env=self._environ,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
        )
        return self

    def log(self) -> str:
        """What it has written to stderr so far."""
        return Path(self._errors.name).read_text(encoding="utf-8", errors="replace")

    def output(self) -> str:
        """What it has written to stdout so far."""
        return Path(self._output.name).read_text(encoding="utf-8", errors="replace")

    def messages(self) -> list[str]:
        """The messages of its log."""
        messages = []
        for line in self.log().splitlines():
            try:
                messages.append(str(json.loads(line)["message"]))
            except (ValueError, KeyError, TypeError):
                messages.append(line)
        return messages

    def until(self, condition: Callable[[Consumer], bool], timeout: float = 60.0) -> None:
        """Wait until a condition holds; AssertionError with its log if it ends or takes too long."""
        assert self._process is not None, "not started"
        deadline = time.monotonic() + timeout
        while True:
            code = self._process.poll()  # before the condition: what it did before its end counts
            if condition(self):
                return
            assert code is None, f"the consumer ended with {code}:\n{self.log()[-3000:]}"
            assert time.monotonic() < deadline, f"waited {timeout} s:\n{self.log()[-3000:]}"
            time.sleep(0.02)

    def until_ready(self, timeout: float = 60.0) -> None:
        """Wait until it owns its partitions and has recovered."""
        self.until(lambda c: any(m.startswith("ready at event") for m in c.messages()), timeout)

    def wait_or_fail(self, timeout: float = 120.0) -> int:
        """Its exit code; AssertionError with its log if it does not end."""
        try:
            return self.wait(timeout)
        except (subprocess.TimeoutExpired, TimeoutError):
            raise AssertionError(f"still alive after {timeout} s:\n{self.log()[-3000:]}") from None

    def expect_exit(self, code: int, timeout: float = 120.0) -> None:
        """Wait until it ends; AssertionError with its log if it does not, or with another exit code."""
        found = self.wait_or_fail(timeout)
        assert found == code, f"ended with {found}, not {code}:\n{self.log()[-3000:]}"

    def wait(self, timeout: float = 120.0) -> int:
        """Its exit code; a negative one is the signal that ended it."""
        assert self._process is not None, "not started"
        return self._process.wait(timeout)

    def gone(self) -> bool:
        """Whether it has ended."""
        assert self._process is not None, "not started"
        return self._process.poll() is not None

    def kill(self) -> int:
        """Kill it with SIGKILL."""
        return self._end(signal.SIGKILL)

    def stop(self, timeout: float = 60.0) -> int:
        """Stop it with SIGTERM; returns its exit code."""
        return self._end(signal.SIGTERM, timeout)

    def _end(self, number: signal.Signals, timeout: float = 60.0) -> int:
        assert self._process is not None, "not started"
        if not self.gone():
            self._process.send_signal(number)
        return self._process.wait(timeout)

    def __enter__(self) -> Consumer:
        return self.start() if self._process is None else self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self.kill()
        self._errors.close()
        self._output.close()
