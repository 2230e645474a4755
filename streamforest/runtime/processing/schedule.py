"""When a commit is due, and when a snapshot."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from streamforest.io.codec.events import Format
from streamforest.runtime.checkpoint.commit import Pending
from streamforest.runtime.checkpoint.journal import MAX_BYTES
from streamforest.runtime.labels.store import LateRules
from streamforest.runtime.operate.requests import OperatorRequests

_IDLE_POLL = 0.5  # seconds a poll may wait when nothing is pending
_PENDING_BYTES = 64 << 20  # a commit comes early rather than hold more


@dataclass(frozen=True)
class Settings:
    """`[run]`, `[predictions]` and `[dead_letters]`, as the loop needs them."""

    batch: int = 500
    commit_seconds: float | None = 0.5
    commit_events: int = 10_000
    snapshot_seconds: float | None = 60.0
    snapshot_events: int | None = None
    bad_events: Literal["dead-letter", "skip", "stop"] = "dead-letter"
    top: int = 3
    pack: bool = False
    late: LateRules | None = None
    """By what labels meet their events; None where every event brings its label."""
    labels_topic: str | None = None
    """The topic that holds labels alone, where there is one."""
    events_format: Format = "json"
    """What messages are made of; a label that was held goes to the dead letters as such a message."""
    requests: OperatorRequests = field(default_factory=OperatorRequests)
    """Where an operator says what is to happen at the next commit."""
    accept_version_change: bool = False
    """Learn journalled events again although they were learned by another rule."""
    drain: bool = False
    """End when everything there was has been read, instead of waiting for more."""


class CommitSchedule:
    """Counts events and seconds since the last commit and the last snapshot."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last_commit = self._last_snapshot = time.monotonic()
        self._looked = self._sampled = 0.0
        self._wanted = False

    def ask(self, events: int, pending: Pending, limit: int | None) -> tuple[int, float]:
        """How many records to poll for, never beyond where a commit or snapshot by number is due; and
        how many seconds to wait for them.
        """
        settings = self._settings
        most = min(settings.batch, pending.first + settings.commit_events - events)
        if settings.snapshot_events is not None:
            most = min(most, settings.snapshot_events - events % settings.snapshot_events)
        if limit is not None:
            most = min(most, limit - events)
        timeout = _IDLE_POLL
        if settings.commit_seconds is not None and events != pending.first:
            due = self._last_commit + settings.commit_seconds
            timeout = min(timeout, max(0.0, due - time.monotonic()))
        return max(1, most), timeout

    def commit_due(self, events: int, pending: Pending) -> bool:
        """Whether what is pending should be committed now."""
        settings = self._settings
        waiting = events - pending.first
        if not waiting:
            return bool(pending.added)
        if waiting >= settings.commit_events:
            return True
        if pending.size >= _PENDING_BYTES or pending.order.size >= MAX_BYTES:
            return True
        if settings.snapshot_events and events % settings.snapshot_events == 0:
            return True
        late = time.monotonic() - self._last_commit
        return settings.commit_seconds is not None and late >= settings.commit_seconds

    def snapshot_due(self, events: int) -> bool:
        """Whether it is time for a snapshot, if this is a place for one."""
        settings = self._settings
        if self._wanted or (settings.snapshot_events and events % settings.snapshot_events == 0):
            return True
        late = time.monotonic() - self._last_snapshot
        return settings.snapshot_seconds is not None and late >= settings.snapshot_seconds

    @property
    def snapshots_by_number(self) -> bool:
        """Whether snapshots are taken after so many events."""
        return self._settings.snapshot_events is not None

    def request_due(self, requests: OperatorRequests) -> bool:
        """Whether an operator request waits; checked once a second."""
        now = time.monotonic()
        if now - self._looked < 1.0:
            return False
        self._looked = now
        return requests.promotion() is not None or requests.announcements.waiting() is not None

    def sample_due(self) -> bool:
        """Whether to measure what predicting takes; once a second."""
        now = time.monotonic()
        if now - self._sampled < 1.0:
            return False
        self._sampled = now
        return True

    def committed(self) -> None:
        """A commit was made."""
        self._last_commit = time.monotonic()

    def want_snapshot(self) -> None:
        """Let one be due at the next place for it."""
        self._wanted = True

    def snapshotted(self) -> None:
        """A snapshot was begun."""
        self._last_snapshot, self._wanted = time.monotonic(), False
