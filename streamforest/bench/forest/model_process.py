"""A process of its own for each contestant, pinned to one core and kept for all its repeats.

Why processes: what a model adds to memory can only be told in a process that holds nothing else; a
Java machine beside a model would disturb it; a rival that crashes takes down its own row and not
the benchmark. Only one worker runs at any time. Processes are forked from a small server that has
River and numba imported, so that starting one takes no time.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from streamforest.bench.forest import models
from streamforest.bench.forest.contestant import ModelSpec, Setting
from streamforest.bench.forest.measurement import Measurement, measure
from streamforest.bench.machine import pin
from streamforest.datasets import Stream
from streamforest.errors import StreamForestError
from streamforest.forests.core import registry

WARM_UP_EVENTS = 1_000
WARM_UP_SECONDS = 2.0

_PRELOAD = ["numpy", "numba", "river.ensemble", "river.forest", "river.preprocessing", "river.tree"]

_READY, _PROGRESS, _DONE, _ABSENT, _FAILED = "ready", "progress", "done", "absent", "failed"


class ModelFailed(StreamForestError):
    """A contestant raised an error or its process died. The message says which."""


class ModelAbsent(StreamForestError):
    """An optional rival is not installed or does not pass a smoke run. The message says why."""


@dataclass(frozen=True)
class Request:
    """A request for one run."""

    trees: int
    seed: int
    events: int
    budget: float | None = None


class ModelProcess:
    """The benchmark's end of a contestant's process; use it in a `with` block.

    Entering starts the process and waits for the end of its warm-up: a short run that loads and
    compiles everything and is thrown away.
    """

    def __init__(self, spec: ModelSpec, stream: Stream, trees: int, core: int | None) -> None:
        self.spec = spec
        context = _context()
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, registry.entries(), spec.name, stream, trees, core),
            daemon=True,
        )
        self._theirs = theirs

    def __enter__(self) -> ModelProcess:
        self._process.start()
        self._theirs.close()
        try:
            self._wait_for(_READY, lambda done: None)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, request: Request, on_progress: Callable[[int], None]) -> Measurement:
        """One run of a fresh model."""
        self._connection.send(request)
        result = self._wait_for(_DONE, on_progress)
        assert isinstance(result, Measurement)
        return result

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._connection.close()
        self._process.terminate()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _wait_for(self, wanted: str, on_progress: Callable[[int], None]) -> Any:
        while True:
            try:
                kind, content = self._connection.recv()
            except (EOFError, OSError):
                self._process.join(timeout=5)
                raise ModelFailed(
                    f"{self.spec.name}: its process ended with code {self._process.exitcode}"
                ) from None
            if kind == wanted:
                return content
            if kind == _PROGRESS:
                on_progress(content)
            elif kind == _ABSENT:
                raise ModelAbsent(content)
            else:
                raise ModelFailed(f"{self.spec.name}: {content}")


def _context() -> Any:
    """How processes are started; not every platform has the fork server."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOAD)
        return context
    return multiprocessing.get_context("spawn")


def _serve(
    connection: Connection,
    forests: list[registry.Entry],
    name: str,
    stream: Stream,
    trees: int,
    core: int | None,
) -> None:
    """The contestant's end: warm up, then one run for each request until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the benchmark, which ends us
    pin(core)
    for forest in forests:
        registry.register(forest)
    spec = models.get_spec(name)
    try:
        measure(
            spec,
            Setting(stream, trees, seed=0),
            events=min(len(stream), WARM_UP_EVENTS),
            budget=WARM_UP_SECONDS,
        )
    except Exception as error:
        kind, reason = _why_not(spec, error)
        connection.send((kind, reason))
        return
    connection.send((_READY, None))
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        try:
            result = measure(
                spec,
                Setting(stream, request.trees, request.seed),
                request.events,
                request.budget,
                _throttled(lambda done: connection.send((_PROGRESS, done))),
            )
        except Exception:
            connection.send((_FAILED, traceback.format_exc(limit=-3)))
            return
        connection.send((_DONE, result))


def _throttled(tell: Callable[[int], None], seconds: float = 0.1) -> Callable[[int], None]:
    """Pass a call on only if enough time has passed since the last one."""
    last = 0.0

    def maybe(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= seconds:
            last = now
            tell(done)

    return maybe


def _why_not(spec: ModelSpec, error: Exception) -> tuple[str, str]:
    """How to report a failed warm-up: a missing rival is not a failure of the benchmark."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    if isinstance(error, ModuleNotFoundError) and spec.optional:
        return _ABSENT, f"not installed: {error}"
    if spec.optional:
        return _ABSENT, f"fails its smoke run: {reason}"
    return _FAILED, reason
