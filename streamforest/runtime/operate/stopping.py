"""Stopping on request: SIGINT and SIGTERM request a stop, and the loop stops between two batches."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from streamforest.io.log import Stopped


class StopSignals:
    """While entered, the first SIGINT or SIGTERM is noted; a second one interrupts at once.

    An interrupted run only repeats the events since its last snapshot, so the second signal is safe.

    >>> import os
    >>> with StopSignals() as stop:
    ...     before = stop.requested
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     before, stop.requested
    (None, 'SIGTERM')
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._at_once = False
        self._before: dict[signal.Signals, Any] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested is not None:
            raise KeyboardInterrupt
        self.requested = signal.Signals(number).name
        if self._at_once:
            raise Stopped("asked to stop while waiting for the broker")

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A block that a signal ends at once, with Stopped: while nothing is owned, nothing is lost."""
        if self.requested is not None:
            raise Stopped("asked to stop before it had begun")
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
