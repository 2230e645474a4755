"""When snapshots are taken, and what became of each.

A snapshot is of a committed state, so it is begun right after a commit; the stream waits for the copy
only. It counts once a later commit names it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from streamforest.errors import SnapshotError
from streamforest.observe.telemetry import (
    Listener,
    SnapshotFailed,
    SnapshotStarted,
    SnapshotWritten,
)
from streamforest.runtime.checkpoint.commit import RunContext
from streamforest.runtime.checkpoint.journal import read_commit_metadata
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.store import Check, RefusedError, SnapshotFolder
from streamforest.runtime.processing.schedule import CommitSchedule

log = logging.getLogger(__name__)


class SnapshotScheduler:
    """The snapshots of one run."""

    def __init__(
        self,
        snapshots: SnapshotFolder,
        context: RunContext,
        schedule: CommitSchedule,
        check: Check,
        source: Mapping[str, Any],
        telemetry: Listener,
    ) -> None:
        """`check` is what a start does with a snapshot; `source` says what the events come from."""
        self._snapshots = snapshots
        self._context = context
        self._schedule = schedule
        self._check = check
        self._source = source
        self._telemetry = telemetry
        self._reported = ""

    def due(self) -> bool:
        """Whether it is time for a snapshot, and this is a place for one: right after a commit."""
        context = self._context
        events, named = context.state.events, context.snapshot
        if events != context.pending.first or self._snapshots.busy:
            return False
        if named is not None and named.events == events:
            return False
        return self._schedule.snapshot_due(events)

    def request(self) -> None:
        """Let one be due at the next place for it."""
        self._schedule.want_snapshot()

    def begin(self, since: int | None = None) -> None:
        """Copy the state and let it be written; the stream waits for the copy only. It is taken after the
        journal record of the last commit, unless `since` says after which.
        """
        begun = time.perf_counter()
        last = self._context.last_commit
        if since is None:
            since = -1 if last is None else last.journal
        self._write(self._context.state, since)
        self._schedule.snapshotted()
        self._telemetry.on_event(SnapshotStarted(time.perf_counter() - begun))

    def _write(self, state: RunState, since: int) -> None:
        jsonable = state.jsonable(self._source)
        self._snapshots.begin(
            state.models, jsonable, state.events, since, state.passing(), self._check
        )

    def write_now(self, since: int | None = None) -> None:
        """A snapshot that is durable when this returns; RefusedError if its own check refuses it."""
        snapshots = self._snapshots
        snapshots.wait()
        self.report()
        self.begin(since)
        snapshots.wait()
        written = snapshots.written
        if written is None or written.events != self._context.state.events:
            failure = snapshots.take_failure()
            if failure is None:
                raise SnapshotError("the snapshot was not written")
            self._telemetry.on_event(SnapshotFailed(failure.reason))
            raise (RefusedError if failure.reason == "check" else SnapshotError)(failure.message)
        self.report()

    def write_last(self) -> bool:
        """The snapshot of a clean stop; False if its check refuses it. Nothing is lost then: the last
        commit names the one before, and the next start learns again what the journal lists after it.
        """
        events, named = self._context.state.events, self._context.snapshot
        try:
            self.write_now()
            return True
        except RefusedError as error:
            log.error(
                "no snapshot at event %d: a start would refuse it (%s). All events are committed; the "
                "next start begins at %s and learns the %d events after it again",
                events,
                error,
                "the beginning" if named is None else named.name,
                events - (0 if named is None else named.events),
            )
            return False

    def followed(self, state: RunState, place: int, last_commit: Callable[[], str | None]) -> None:
        """A standby has followed a commit, which stands in the journal at `place`: take a snapshot if it
        is time for one.
        """
        if self._snapshots.busy or not self._schedule.snapshot_due(state.events):
            return
        self._schedule.snapshotted()
        if f"s-{state.events:012d}" in self._snapshots.names():
            return  # the owner's, in a folder that is shared
        self._write(state, place)
        metadata = last_commit()
        if metadata is not None:
            self._snapshots.prune(read_commit_metadata(metadata).snapshot)

    def report(self) -> None:
        """Say once of each snapshot what became of it."""
        written, failure = self._snapshots.written, self._snapshots.take_failure()
        if failure is not None:
            refused = "a start would refuse it: " if failure.reason == "check" else ""
            log.error(
                "no snapshot: %s%s; recovery will take longer until one is written",
                refused,
                failure.message,
            )
            self._telemetry.on_event(SnapshotFailed(failure.reason))
        if written is not None and written.name != self._reported:
            self._reported = written.name
            log.log(
                # by number of events there may be thousands
                logging.DEBUG if self._schedule.snapshots_by_number else logging.INFO,
                "snapshot %s: %d bytes in %.1f s",
                written.name,
                written.bytes,
                written.seconds,
            )
            self._telemetry.on_event(SnapshotWritten(written.name, written.seconds, written.bytes))
