"""Notices that commits no longer happen while records wait, whatever the cause, on owner and standby alike.

The causes that are known have their own words (`Membership.trouble`): a broker that does not answer, a commit
that is refused. This is for all others: a partition that cannot be read, a broker that takes no messages, a
process that owns the partitions and does nothing with them.

The owner knows what it has read and not committed, and what it has not read. A standby knows the owner's last
commit from the journal, and asks the log whether there is anything to read after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from streamforest.observe.telemetry import (
    CommitMade,
    Followed,
    IterationDone,
    PendingDropped,
    RecordsRead,
    RoleChanged,
    TelemetryEvent,
)

GRACE = 5.0
"""Seconds beyond the commit interval after which it is said that no commit comes."""
_LOOK_SECONDS = 1.0
_ASK_SECONDS = 2.0  # between two questions of a standby


class CommitWatch:
    """A listener; `seconds` and `why` may be asked from any thread."""

    def __init__(
        self,
        commit_seconds: float | None,
        lag: Callable[[], Mapping[tuple[str, int], int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`commit_seconds` is the commit interval; without one there is nothing to watch."""
        self._limit = None if commit_seconds is None else commit_seconds + GRACE
        self._lag = lag
        self._clock = clock
        self._uncommitted: float | None = None
        """Since when records that were read wait for a commit."""
        self._unread: float | None = None
        """Since when, without a commit in between, there were records to read."""
        self._look_at = 0.0
        self._commit = -1
        self._role = ""

    def on_event(self, event: TelemetryEvent) -> None:
        """Note what begins and ends a wait."""
        if self._limit is None:
            return
        match event:
            case RecordsRead():
                if self._uncommitted is None:
                    self._uncommitted = self._clock()
            case CommitMade() | PendingDropped():
                self._uncommitted = self._unread = None
            case IterationDone():
                self._look()
            case Followed():
                self._follow(event)
            case RoleChanged() if event.role != self._role:
                self._uncommitted = self._unread = None  # it was dropped, or is another's
                self._role = event.role
            case _:
                pass

    def _look(self) -> None:
        """The owner, now and then: is there anything to read?"""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._note(any(self._lag().values()), now)

    def _follow(self, event: Followed) -> None:
        """A standby, now and then: has the owner committed since, or is there nothing to read?"""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + _ASK_SECONDS
        committed, self._commit = event.commit != self._commit, event.commit
        self._note(not committed and event.unread(), now)

    def _note(self, unread: bool, now: float) -> None:
        if not unread:
            self._unread = None
        elif self._unread is None:
            self._unread = now

    def seconds(self) -> float:
        """How long records have waited without a commit; 0 if none wait."""
        since = [at for at in (self._uncommitted, self._unread) if at is not None]
        return self._clock() - min(since) if since else 0.0

    def why(self) -> str | None:
        """What to say if it takes too long."""
        seconds = self.seconds()
        if self._limit is None or seconds <= self._limit:
            return None
        whose = "the owner has made no commit" if self._role == "standby" else "no commit"
        return f"{whose} for {seconds:.0f} s while records wait"
