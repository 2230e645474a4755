"""A broker that is gone, and one that is back, in the log: one record for each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from streamforest.observe.telemetry import (
    Heartbeat,
    IterationDone,
    LogOpened,
    Readiness,
    TelemetryEvent,
)

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0


class TroubleLog:
    """A listener that asks the log now and then why nothing can be committed, once the run is at work."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, name: str = "") -> None:
        """`name` stands before each record, where a process has several runs."""
        self._clock = clock
        self._prefix = f"{name}: " if name else ""
        self._trouble: Callable[[], str | None] = lambda: None
        self._ready = False
        self._since: float | None = None
        self._looked = clock() - _LOOK_SECONDS

    def on_event(self, event: TelemetryEvent) -> None:
        """Look whether all is well."""
        if isinstance(event, LogOpened):
            self._trouble = event.trouble
        elif isinstance(event, Readiness):
            self._ready = self._ready or event.reason is None
        elif isinstance(event, IterationDone | Heartbeat) and self._ready:
            self._look()

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        reason = self._trouble()
        if reason is not None and self._since is None:
            self._since = now
            log.warning("%snothing can be committed now: %s", self._prefix, reason)
        elif reason is None and self._since is not None:
            seconds, self._since = now - self._since, None
            log.info("%scommits can be made again, after %.0f s", self._prefix, seconds)
