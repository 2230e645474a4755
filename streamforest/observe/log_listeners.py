"""Listeners that log what a run reports: dead letters, and a broker that is gone or back.

Dead letters give at most one record a minute for each reason, however many there are; a broker gives one when
it is gone and one when it is back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamforest.observe.accounting import WARNING_SHARE
from streamforest.observe.telemetry import (
    EventRefused,
    Heartbeat,
    IterationDone,
    LogOpened,
    Readiness,
    RowsRead,
    TelemetryEvent,
)
from streamforest.text import printable

log = logging.getLogger(__name__)

_EVERY = 60.0  # seconds between two records about one reason
_MAX_MESSAGE = 300  # characters
_LOOK_SECONDS = 1.0  # between two looks at the broker


@dataclass
class _Reason:
    """Dead letters of one reason since the last record about them."""

    logged_at: float
    since: int = 0


class RowLog:
    """A listener that logs dead letters: info while they are few, a warning above 1 % of the events."""

    def __init__(
        self,
        remedies: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
        name: str = "",
    ) -> None:
        """`name` stands before each record, where a process has several runs."""
        self._remedies, self._clock = remedies, clock
        self._prefix = f"{name}: " if name else ""
        self._reasons: dict[str, _Reason] = {}
        self._read = self._refused = 0

    def on_event(self, event: TelemetryEvent) -> None:
        """Count the rows of a poll; log a dead letter, unless one of its kind was logged just now."""
        if isinstance(event, RowsRead):
            self._read += event.records - event.labels
        elif isinstance(event, EventRefused):
            self._refused += 1
            self._refuse(event)

    def _refuse(self, event: EventRefused) -> None:
        now = self._clock()
        known = self._reasons.get(event.reason)
        if known is not None and now - known.logged_at < _EVERY:
            known.since += 1
            return
        since = 1 if known is None else known.since + 1
        self._reasons[event.reason] = _Reason(now)
        read = max(self._read, self._refused)
        share = self._refused / read
        log.log(
            logging.WARNING if share > WARNING_SHARE else logging.INFO,
            "%s%s with reason '%s' (%d so far); at %s: %s. Remedy: %s",
            self._prefix,
            "a dead letter" if since == 1 else f"{since} more dead letters",
            event.reason,
            self._refused,
            printable(event.place, _MAX_MESSAGE),
            printable(event.message, _MAX_MESSAGE),
            self._remedies.get(event.reason, "see the message"),
        )


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
