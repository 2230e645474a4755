"""A hot standby: follows the journal of the process that owns the partitions, so that it can take over.

It reads the committed journal record by record, reads the same slices of the input and advances its own
models through them, publishing nothing. Since the models are deterministic, its state after a commit is
the owner's, bit for bit, and so is a snapshot taken there. When the owner goes, there is nothing to load and
nothing to replay but what was committed since the last look.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from streamforest.errors import (
    RecoveryError,
    SnapshotError,
    StreamForestError,
    VersionChangeError,
)
from streamforest.io.log import Log, Reader, Tail
from streamforest.runtime.checkpoint.journal import (
    CommitMetadata,
    Entry,
    read_commit_metadata,
    read_entry,
)
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.store import Snapshot, SnapshotFolder
from streamforest.runtime.recovery.replayer import Advance, Restore, apply, newest_usable

if TYPE_CHECKING:
    from streamforest.runtime.processing.loop import Run

log = logging.getLogger(__name__)

_AT_ONCE = 5_000  # records advanced before the group is looked after again
_QUEUED = 1_000  # journal records in hand; no more are read until there are fewer
_AGAIN = 5.0  # seconds before following is tried anew after something went wrong
_ANOTHER_RULE = 60.0  # seconds before it is tried anew where the owner learns by another rule

AtCommit = Callable[[RunState, int], None]
"""Told after each commit that was followed: the state, and where the journal has its record."""


class Follower:
    """Keeps a state as of the last commit of somebody else."""

    def __init__(
        self,
        log_: Log,
        snapshots: SnapshotFolder,
        restore: Restore,
        advance: Advance,
        fresh: Callable[[], RunState],
        at_commit: AtCommit,
    ) -> None:
        self._log = log_
        self._snapshots = snapshots
        self._restore, self._advance = restore, advance
        self._fresh, self._at_commit = fresh, at_commit
        self.state: RunState | None = None
        self.place = -1
        self.trouble: str | None = None
        self._commit = -1
        self._tail: Tail | None = None
        self._reader: Reader | None = None
        self._queue: deque[tuple[int, Entry]] = deque()
        self._not_before = 0.0

    @property
    def behind(self) -> int:
        """Events that were committed, as far as is known, and not yet followed."""
        if self.state is None or not self._queue:
            return 0
        return max(0, self._queue[-1][1].events - self.state.events)

    def begin(self, state: RunState, standing: CommitMetadata) -> None:
        """Go on from a state that is known: this process was the owner until now."""
        self.state, self.place, self._commit = state, standing.journal, standing.commit

    def step(self) -> None:
        """Follow a little further. What goes wrong is told and tried anew, later: a standby that cannot
        follow is still there to take over from a snapshot.
        """
        if time.monotonic() < self._not_before:
            return
        try:
            if self.state is not None or self._load():
                self._follow()
                self.trouble = None
        except VersionChangeError as error:
            # another version owns the partitions, as in the middle of an update: this process is ready to
            # take over all the same, from a snapshot. Nor is the change accepted here, whatever was asked
            # for: snapshots of another state would stand under the names of the owner's.
            self.trouble = None
            log.warning("standing by without following the journal: %s", error)
            self._not_before = time.monotonic() + _ANOTHER_RULE
            self.close()
        except StreamForestError as error:
            self.trouble = str(error)
            log.warning("cannot follow the journal: %s", error)
            self._not_before = time.monotonic() + _AGAIN
            self.close()

    def _load(self) -> bool:
        """Begin at the newest snapshot that can be used, else at the journal's beginning."""
        text = self._log.standing()
        if text is None:
            return False  # nobody has committed anything yet
        standing = read_commit_metadata(text)
        try:
            self.state, snapshot = newest_usable(self._snapshots, standing, self._restore)
            self.place = snapshot.since
        except (RecoveryError, SnapshotError):
            self.state, self.place = self._fresh(), -1
        self._commit = -1
        log.info("following from event %d", self.state.events)
        return True

    def _follow(self) -> None:
        state = self.state
        assert state is not None
        if self._tail is None:
            self._tail = self._log.tail(self.place)
        if self._tail is None:
            return
        if len(self._queue) < _QUEUED:
            self._queue.extend((place, read_entry(place, raw)) for place, raw in self._tail.poll())
        done = 0
        # without transactions the last record may never have been committed: it waits for the next
        least = 0 if self._log.exactly_once else 1
        while len(self._queue) > least and done < _AT_ONCE:
            place, entry = self._queue.popleft()
            if self._queue and self._queue[0][1].commit == entry.commit:
                continue
            if entry.commit <= self._commit or (
                entry.events <= state.events and entry.first < state.events
            ):
                self.place = place
                continue
            done += max(1, entry.events - entry.first)
            if self._reader is None:
                self._reader = self._log.reader(state.positions)
            apply(state, entry, self._reader, self._advance, self._snapshots, self._restore)
            self.place, self._commit = place, entry.commit
            self._at_commit(state, place)

    def hand_over(self, standing: CommitMetadata) -> tuple[RunState, Snapshot] | None:
        """The state, if it is of the journal that this commit closes; the rest is then to be replayed
        from there. None if there is nothing of use.
        """
        state, self.state = self.state, None
        self.close()
        if state is None or state.events > standing.events or self._commit > standing.commit:
            return None
        return state, Snapshot("memory", "", self.place, state.events, 0, 0.0)

    def close(self) -> None:
        """Let go of the readers and of what was followed."""
        for held in (self._tail, self._reader):
            if held is not None:
                held.close()
        self._tail = self._reader = None
        self._queue.clear()
        self.state = None


class Standby:
    """What a run does while another process is the owner."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._follower: Follower | None = None

    def step(self) -> None:
        """Follow a little further, and tell how far behind."""
        run = self._run
        if self._follower is None:
            self._follower = self._begin()
        self._follower.step()
        if self._follower.state is not None:
            run.state = self._follower.state
        run.snapshotting.tell()
        run.telemetry.role("standby", 0, run.events, self._follower.behind)
        run.telemetry.ready(self._follower.trouble)

    def _begin(self) -> Follower:
        run = self._run
        follower = Follower(
            run.log,
            run.snapshots,
            run.states.restored,
            run.advance_again,
            run.states.fresh,
            self._followed,
        )
        exact = run.taking_up.becomes_standby()
        if exact is not None:
            follower.begin(*exact)
        log.info("standing by: another process owns the partitions")
        return follower

    def _followed(self, state: RunState, place: int) -> None:
        """A commit of the owner's was followed; now and then, a snapshot of it."""
        run = self._run
        if run.snapshots.busy or not run.clocks.snapshot_due(state.events):
            return
        run.clocks.snapshotted()
        if f"s-{state.events:012d}" in run.snapshots.names():
            return  # the owner's, in a folder that is shared
        plain = state.plain(run.source)
        run.snapshots.begin(
            state.models, plain, state.events, place, state.passing(), run.states.check
        )
        text = run.log.standing()
        if text is not None:
            run.snapshots.prune(read_commit_metadata(text).snapshot)

    def hand_over(self, standing: CommitMetadata) -> tuple[RunState, Snapshot] | None:
        """What was followed so far; None if that is nothing of use."""
        return None if self._follower is None else self._follower.hand_over(standing)

    def close(self) -> None:
        """Let go of everything."""
        if self._follower is not None:
            self._follower.close()
