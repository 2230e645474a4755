"""Owner or standby: the state machine that puts a run where the last commit of its log is.

    joining     asks the log for ownership
    following   another process is the owner: replays its commits as they are made
    replaying   owns the log: from a snapshot, or from what was followed, to the last commit
    owning      its state is that of the last commit, or ahead of it by what is pending

    joining ──► following ──► replaying ──► owning
       │                      ▲      │         │
       ├──────────────────────┘      │         │  partitions assigned again,
       ◄─────────────────────────────┘         │  or a commit in doubt
       ◄────────── log unavailable ────────────┘

The log says what was committed last, whichever process made that commit. If it is our own last commit, memory
is only ahead of it and stays. If it is the commit that was in doubt, that was made. Anything else means that
the log went on without us: what is pending is dropped, and the state is rebuilt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from enum import Enum

from streamforest.errors import (
    ChangedError,
    ConfigError,
    RecordsGoneError,
    RecoveryError,
    SnapshotError,
    StorageError,
)
from streamforest.io.log import (
    Acquisition,
    Commit,
    Joining,
    Log,
    LogUnavailable,
    Owned,
    Partition,
    Released,
    Standby,
    Stopped,
)
from streamforest.observe.telemetry import (
    Followed,
    Heartbeat,
    LabelsRecovered,
    Listener,
    ModelsChanged,
    PendingDropped,
    Readiness,
    RoleChanged,
)
from streamforest.runtime.checkpoint.commit import RunContext
from streamforest.runtime.checkpoint.journal import CommitMetadata, read_commit_metadata
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.scheduler import SnapshotScheduler
from streamforest.runtime.checkpoint.store import Snapshot, SnapshotFolder
from streamforest.runtime.recovery.remedies import Remedies
from streamforest.runtime.recovery.replayer import Replayer
from streamforest.runtime.recovery.standby import Follower

log = logging.getLogger(__name__)

_MAX_TRIES = 10  # recoveries in a row, each with a log that answered and then went away
_STORAGE_RETRY = 5.0  # seconds before object storage that did not answer is asked again
_MOMENT = 0.1  # seconds between two signs of life in that time
_STOP_GRACE = 20.0  # seconds a stop waits for the log, to commit what is pending
_REPORT_EVERY = 30.0  # seconds between two lines that say that partitions are awaited


class Phase(Enum):
    """What the machine is doing."""

    JOINING = "joining"
    FOLLOWING = "following"
    REPLAYING = "replaying"
    OWNING = "owning"


class Ownership:
    """Brings a run to `owning`, from wherever it is."""

    def __init__(
        self,
        log: Log,
        context: RunContext,
        snapshots: SnapshotFolder,
        scheduler: SnapshotScheduler,
        replayer: Replayer,
        remedies: Remedies,
        telemetry: Listener,
        stopping: Callable[[], bool],
    ) -> None:
        """`stopping` says whether a stop was requested; it is asked whenever there is a wait."""
        self.phase = Phase.JOINING
        self._log = log
        self._context = context
        self._snapshots = snapshots
        self._scheduler = scheduler
        self._replayer = replayer
        self._remedies = remedies
        self._telemetry = telemetry
        self._stopping = stopping
        self._follower = self._new_follower()
        self._commit: Commit | None = None
        self._tries = 0
        self._has_owned = False
        self.at_work = False
        """Whether this process has followed or owned anything yet: then it waits for its object storage."""
        self._stop_seen: float | None = None
        self._reported = 0.0

    def acquire(self) -> None:
        """Own the log, with the state of its last commit; Stopped if a stop comes first."""
        self._telemetry.on_event(Readiness("recovering"))
        self._tries, self._reported = 0, time.monotonic()
        self.phase = Phase.JOINING
        try:
            while self.phase is not Phase.OWNING:
                self._check_stop()
                self.step()
                self._heartbeat()
        finally:
            self._follower.close()
        if self._context.last_commit is not None:
            self.report_ready()

    def report_ready(self) -> None:
        """Report the owner at work. Not before the first commit of all: operators ask for it."""
        context = self._context
        partitions = len(context.state.positions)
        self._telemetry.on_event(RoleChanged("owner", partitions))
        self._telemetry.on_event(Readiness(None))
        log.info("ready at event %d, %d partitions", context.state.events, partitions)

    def step(self) -> None:
        """One transition, or a moment of waiting for one."""
        if self.phase is Phase.JOINING:
            self._join()
        elif self.phase is Phase.FOLLOWING:
            self._follow()
        elif self.phase is Phase.REPLAYING:
            self._replay()

    # ---- joining

    def _join(self) -> None:
        answer = self._try_acquire()
        if isinstance(answer, Standby):
            self._become_standby()
        elif isinstance(answer, Joining) and time.monotonic() - self._reported > _REPORT_EVERY:
            self._reported = time.monotonic()
            log.info("waiting for partitions")

    def _try_acquire(self) -> Acquisition:
        """Ask for the log. Who gets it goes on to replay; who is not meant to wait for it stops."""
        answer = self._log.membership.try_acquire()
        if isinstance(answer, Released):
            raise Stopped(answer.reason)
        if isinstance(answer, Owned):
            self._commit, self.phase = answer.commit, Phase.REPLAYING
        return answer

    # ---- following

    def _become_standby(self) -> None:
        """Another process owns the log. A state that is exactly that of the last commit is followed on;
        any other is dropped, with all that was pending.
        """
        self._snapshots.disown()
        exact = self._context.demote()
        self._follower = self._new_follower()
        if exact is not None:
            self._follower.begin(*exact)
        self.phase, self.at_work = Phase.FOLLOWING, True
        log.info("standby: another process owns the partitions")
        self._follow_on()

    def _new_follower(self) -> Follower:
        return Follower(self._log, self._replayer, self._followed, self._heartbeat)

    def _follow(self) -> None:
        if isinstance(self._try_acquire(), Standby):
            self._follow_on()

    def _follow_on(self) -> None:
        follower, context = self._follower, self._context
        follower.step()
        if follower.state is not None:
            context.follow(follower.state)
        self._scheduler.report()
        events = context.state.events
        self._telemetry.on_event(RoleChanged("standby", 0, events, follower.behind))
        self._telemetry.on_event(ModelsChanged(context.state.summaries))
        self._telemetry.on_event(Readiness(follower.trouble))
        if follower.state is not None:
            self._telemetry.on_event(Followed(follower.commit, follower.unread))

    def _followed(self, place: int) -> None:
        assert self._follower.state is not None
        self._scheduler.followed(self._follower.state, place, self._log.journal.last_commit)

    # ---- replaying

    def _replay(self) -> None:
        """Go to the last commit. A state that is being rebuilt counts for nothing until it is done, so
        that a log that goes away meanwhile is asked again.
        """
        assert self._commit is not None
        try:
            self._go_to(self._commit)
        except LogUnavailable as error:
            self._tries += 1
            if self._tries >= _MAX_TRIES:
                raise
            log.warning("%s; recovery starts again", error)
            self.phase = Phase.JOINING
            return
        except StorageError as error:
            if not self.at_work:
                raise  # whoever starts a process looks at what it says
            self._await_storage(error)
            self.phase = Phase.JOINING
            return
        self.phase, self._has_owned, self.at_work = Phase.OWNING, True, True

    def _await_storage(self, error: StorageError) -> None:
        """A process that was at work stays in the group while its snapshots cannot be had: nobody else could
        have them either, and it is ready again as soon as they can. Nothing of its own is pending.
        """
        log.warning("%s; recovery starts again in %g s", error, _STORAGE_RETRY)
        self._telemetry.on_event(Readiness(f"recovering: {error}"))
        until = time.monotonic() + _STORAGE_RETRY
        while time.monotonic() < until:
            self._between()
            time.sleep(_MOMENT)

    def _go_to(self, commit: Commit) -> None:
        context = self._context
        found = None if commit.metadata is None else read_commit_metadata(commit.metadata)
        if context.attempt is not None and found == context.attempt.metadata:
            context.committed()
        if found is None and context.last_commit is not None:
            raise RecoveryError(
                "the log no longer knows this pipeline's commits: its offsets were deleted while "
                "it ran. Start the pipeline again and follow what it says"
            )
        if found is None and context.attempt is None:
            self._begin(commit)
        elif found is not None and found != context.last_commit:
            if context.last_commit is not None:
                log.warning(
                    "another process has committed in the meantime: what is pending is dropped"
                )
                self._snapshots.disown()
            context.demote()
            state, snapshot = self._rebuild(commit, found)
            context.rebuilt(state, found, snapshot)
            self._telemetry.on_event(PendingDropped())
            if snapshot.hash != found.hash and not found.events:
                self._scheduler.write_now()  # the next commit names it
            if self._replayer.accept_version_change and state.events != snapshot.events:
                self._scheduler.request()  # so that the change is asked for once, not at every start
        if found is not None:
            self._refuse_recreated(commit.new_partitions, found)
        context.add_partitions(commit.new_partitions)
        if context.state.late is not None:
            self._telemetry.on_event(LabelsRecovered(context.state.late.status()))
        try:
            self._log.source.seek(context.state.positions, context.state.times)
        except RecordsGoneError as error:
            if found is None:
                raise
            raise self._remedies.explained(error, found, commit.positions) from error

    def _rebuild(self, commit: Commit, found: CommitMetadata) -> tuple[RunState, Snapshot]:
        """The state as of a commit, and the snapshot that recovery begins at.

        A pipeline that has read nothing has nothing to lose: if it was changed, whatever it is that was
        changed, it begins as it is now.
        """
        warm = self._follower.hand_over(found)
        try:
            return self._replayer.rebuild(commit, found, warm, self._between)
        except (ChangedError, ConfigError, RecoveryError, SnapshotError) as error:
            if found.events and isinstance(error, RecordsGoneError):
                raise self._remedies.explained(error, found, commit.positions) from error
            if found.events:
                raise
            log.info("nothing was read yet, so the pipeline begins as it is now (%s)", error)
            state = self._replayer.states.fresh()
            state.positions = dict(commit.positions)
            return state, Snapshot(found.snapshot, "", found.journal, 0, 0, 0.0)

    def _begin(self, commit: Commit) -> None:
        """Before the first commit of all, which says where the partitions begin: a snapshot of nothing.
        It shows that the folder can be written before any work is done.
        """
        self._remedies.refuse_lost_offsets(self._log.source.ends)
        self._scheduler.write_now()
        self._context.begin(commit.new_partitions)

    def _refuse_recreated(
        self, new_partitions: Mapping[Partition, int], last: CommitMetadata
    ) -> None:
        """RecoveryError where a partition that was committed has no offset any more."""
        positions, uncommitted = (
            self._context.state.positions,
            self._context.uncommitted_partitions(),
        )
        for partition in sorted(new_partitions):
            if partition in positions and partition not in uncommitted:
                name = self._remedies.newest(last, {}) or last.snapshot
                self._remedies.refuse_recreated(partition, positions[partition], name)

    # ---- while it takes long

    def _between(self) -> None:
        """Between two batches of a replay: nothing is pending, so a stop need not wait."""
        if self._stopping():
            raise Stopped("asked to stop while recovering")
        self._log.membership.keep_alive()
        self._heartbeat()

    def _heartbeat(self) -> None:
        self._telemetry.on_event(Heartbeat())

    def _check_stop(self) -> None:
        """Stopped once a stop was requested: at once if nothing of ours can be pending, else after a
        while in which the log may come back and take what is.
        """
        if not self._stopping():
            return
        now = time.monotonic()
        self._stop_seen = self._stop_seen or now
        waits = self._has_owned and self.phase is not Phase.FOLLOWING
        if not waits or now - self._stop_seen > _STOP_GRACE:
            raise Stopped("asked to stop while waiting for the broker or for partitions")
