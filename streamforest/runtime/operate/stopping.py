"""Stopping on request: SIGINT and SIGTERM request a stop, and the loop stops between two batches."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any


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
        self._before: dict[signal.Signals, Any] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested is not None:
            raise KeyboardInterrupt
        self.requested = signal.Signals(number).name

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
