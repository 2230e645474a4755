"""Dead letters in the log: at most one record a minute for each reason, however many there are."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamforest.observe.accounting import WARNING_SHARE
from streamforest.observe.telemetry import EventRefused, RowsRead, TelemetryEvent
from streamforest.text import printable

log = logging.getLogger(__name__)

_EVERY = 60.0  # seconds
_MAX_MESSAGE = 300  # characters


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
            "%s%s with reason '%s', %d of %d events so far; at %s: %s. Remedy: %s",
            self._prefix,
            "a dead letter" if since == 1 else f"{since} more dead letters",
            event.reason,
            self._refused,
            read,
            printable(event.place, _MAX_MESSAGE),
            printable(event.message, _MAX_MESSAGE),
            self._remedies.get(event.reason, "see the message"),
        )
