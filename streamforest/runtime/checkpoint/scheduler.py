"""Snapshots of a run under way: when one is begun, and what is told of it.

A snapshot is of a committed state, so it is begun right after a commit; the stream waits for the copy
only. It counts once a later commit names it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from streamforest.errors import SnapshotError
from streamforest.runtime.checkpoint.store import RefusedError

if TYPE_CHECKING:
    from streamforest.runtime.processing.loop import Run

log = logging.getLogger(__name__)


class Snapshotting:
    """Snapshots of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._told = ""

    def due(self) -> bool:
        """Only right after a commit: a snapshot is of a committed state."""
        run = self._run
        named = run.commits.named
        if run.events != run.pending.first or run.snapshots.busy:
            return False
        if named is not None and named.events == run.events:
            return False
        return run.clocks.snapshot_due(run.events)

    def begin(self) -> None:
        """Copy the state and let it be written; the stream waits for the copy only."""
        begun = time.perf_counter()
        run = self._run
        standing, state = run.commits.standing, run.state
        since = -1 if standing is None else standing.journal
        run.snapshots.begin(
            state.models,
            state.plain(run.source),
            state.events,
            since,
            state.passing(),
            run.states.check,
        )
        run.clocks.snapshotted()
        run.telemetry.stalled(time.perf_counter() - begun)

    def now(self) -> None:
        """A snapshot that is durable when this returns; RefusedError if its own check refuses it."""
        run = self._run
        snapshots = run.snapshots
        snapshots.wait()
        self.tell()
        self.begin()
        snapshots.wait()
        written = snapshots.written()
        if written is None or written.events != run.events:
            failure = snapshots.take_failure()
            if failure is None:
                raise SnapshotError("the snapshot was not written")
            run.telemetry.snapshot_failed(failure.reason)
            raise (RefusedError if failure.reason == "check" else SnapshotError)(failure.message)
        self.tell()

    def last(self) -> bool:
        """The snapshot of a clean stop; False if it is refused. That is told, and nothing is lost: the
        last commit goes on naming the one before, and the next start learns again what the journal lists
        after it.
        """
        run = self._run
        try:
            self.now()
            return True
        except RefusedError as error:
            named = run.commits.named
            log.error(
                "no snapshot at event %d: a start would refuse it (%s). All events are committed; the "
                "next start begins at %s and learns the %d events after it again",
                run.events,
                error,
                "the beginning" if named is None else named.name,
                run.events - (0 if named is None else named.events),
            )
            return False

    def tell(self) -> None:
        """Say once of each snapshot what became of it."""
        run = self._run
        written, failure = run.snapshots.written(), run.snapshots.take_failure()
        if failure is not None:
            refused = "a start would refuse it: " if failure.reason == "check" else ""
            log.error(
                "no snapshot: %s%s; recovery will take longer until one is written",
                refused,
                failure.message,
            )
            run.telemetry.snapshot_failed(failure.reason)
        if written is not None and written.name != self._told:
            self._told = written.name
            run.telemetry.snapshot(run, written)
