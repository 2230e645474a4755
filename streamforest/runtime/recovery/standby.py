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
from streamforest.runtime.recovery.replayer import Replayer

log = logging.getLogger(__name__)

_BATCH = 5_000  # records advanced before the log is asked again who owns it
_MAX_QUEUED = 1_000  # journal records in hand; no more are read until there are fewer
_RETRY_AFTER = 5.0  # seconds before following is tried again after a failure
_ANOTHER_RULE = 60.0  # seconds before it is tried again where the owner learns by another rule


class Follower:
    """Keeps a state as of the last commit of another process."""

    def __init__(
        self,
        log_: Log,
        replayer: Replayer,
        at_commit: Callable[[int], None],
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """`at_commit` is told after each commit that was followed where the journal has its record;
        `between` is called after each batch.
        """
        self._log = log_
        self._replayer = replayer
        self._at_commit, self._between = at_commit, between
        self.state: RunState | None = None
        self.place = -1
        self.trouble: str | None = None
        self.another_rule: str | None = None
        """Why nothing is followed though nothing is wrong: the owner learns by another rule."""
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

    @property
    def commit(self) -> int:
        """The last commit that was followed; -1 before the first."""
        return self._commit

    def at_end(self) -> bool:
        """Whether every commit that was made before this call has been followed."""
        if self.state is None or self._tail is None or len(self._queue) > self._held_back:
            return False
        return self._tail.at_end()

    @property
    def _held_back(self) -> int:
        """Without transactions the last record may never have been committed: it waits for the next."""
        return 0 if self._log.journal.committed_only else 1

    def unread(self) -> bool:
        """Whether there are records after what was followed: work for the owner. No if nobody can tell.

        A record of the journal that is held back tells what the owner has read, committed or about to be.
        """
        if self.state is None or len(self._queue) > self._held_back:
            return False
        positions = dict(self.state.positions)
        for _, entry in self._queue:
            for topic, partition, _, end in entry.slices:
                positions[topic, partition] = max(end, positions.get((topic, partition), 0))
        try:
            return self._log.source.unread(positions)
        except StreamForestError as error:
            log.info("the end of the input cannot be asked for: %s", error)
            return False

    def begin(self, state: RunState, last_commit: CommitMetadata) -> None:
        """Go on from a state that is known: this process was the owner until now."""
        self.state, self.place, self._commit = state, last_commit.journal, last_commit.commit

    def step(self, max_records: int = _BATCH) -> None:
        """Follow a little further: at least a commit, and no more once `max_records` were advanced. A failure
        is reported and tried again later: a standby that cannot follow is still there to take over from a
        snapshot.
        """
        if time.monotonic() < self._not_before:
            return
        try:
            if self.state is not None or self._load():
                self._follow(max_records)
                self.trouble = self.another_rule = None
        except VersionChangeError as error:
            # another version owns the partitions, as in the middle of an update: this process is ready to
            # take over all the same, from a snapshot. Nor is the change accepted here, whatever was asked
            # for: snapshots of another state would stand under the names of the owner's.
            self.trouble, self.another_rule = None, str(error)
            log.warning("the journal is not followed: %s", error)
            self._not_before = time.monotonic() + _ANOTHER_RULE
            self.close()
        except StreamForestError as error:
            self.trouble = str(error)
            log.warning("cannot follow the journal: %s", error)
            self._not_before = time.monotonic() + _RETRY_AFTER
            self.close()

    def _load(self) -> bool:
        """Begin at the newest snapshot that can be used, else at the journal's beginning."""
        text = self._log.journal.last_commit()
        if text is None:
            return False  # nobody has committed anything yet
        try:
            self.state, snapshot = self._replayer.newest_usable(read_commit_metadata(text))
            self.place = snapshot.since
        except (RecoveryError, SnapshotError):
            self.state, self.place = self._replayer.states.fresh(), -1
        self._commit = -1
        log.info("following from event %d", self.state.events)
        return True

    def _follow(self, max_records: int) -> None:
        state = self.state
        assert state is not None
        if self._tail is None:
            self._tail = self._log.journal.tail(self.place)
        if self._tail is None:
            return
        if len(self._queue) < _MAX_QUEUED:
            self._queue.extend((place, read_entry(place, raw)) for place, raw in self._tail.poll())
        done = 0
        while len(self._queue) > self._held_back and done < max_records:
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
                self._reader = self._log.source.reader(state.positions)
            self._replayer.apply(state, entry, self._reader, self._between)
            self.place, self._commit = place, entry.commit
            self._at_commit(place)

    def hand_over(self, metadata: CommitMetadata) -> tuple[RunState, int] | None:
        """The state and its place in the journal that this commit closes; the rest is to be replayed from
        there. None if nothing useful was followed.
        """
        state, self.state = self.state, None
        self.close()
        if state is None or state.events > metadata.events or self._commit > metadata.commit:
            return None
        return state, self.place

    def close(self) -> None:
        """Let go of the readers and of what was followed."""
        for held in (self._tail, self._reader):
            if held is not None:
                held.close()
        self._tail = self._reader = None
        self._queue.clear()
        self.state = None
