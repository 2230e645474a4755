"""Taking up a run where its last commit stands: at a start, after a rebalance, after a doubt.

The log says what was committed last, whoever did it. If that is our own last commit, memory is only ahead
of it and stays; otherwise the state is rebuilt (`replayer.py`), from what a standby has followed
(`standby.py`) or from a snapshot and the journal after it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from streamforest.errors import RecoveryError
from streamforest.io.log import Commit, LogUnavailable, Partition
from streamforest.runtime.checkpoint.commit import Pending
from streamforest.runtime.checkpoint.journal import CommitMetadata, read_commit_metadata
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.recovery.replayer import rebuild, refuse_lost_offsets
from streamforest.runtime.recovery.standby import Standby

if TYPE_CHECKING:
    from streamforest.runtime.processing.loop import Run

log = logging.getLogger(__name__)

_TRIES = 10  # recoveries begun in a row, each with a broker that answered and then went away


class TakingUp:
    """Puts a run where the log says that it stands."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def recover(self, found: Commit | None = None) -> None:
        """Own the log and stand where its last commit stands; follow it while another owns it.

        `found` is what the log says, if it has just been asked.
        """
        run = self._run
        run.telemetry.ready("recovering")
        with closing(Standby(run)) as standby:
            for left in reversed(range(_TRIES)):
                found = found or run.log.attach(standby.step)
                try:
                    self._take_up(found, standby)
                    break
                except LogUnavailable as error:
                    if not left:
                        raise
                    log.warning("%s; recovering anew", error)
                    found = None
        run.telemetry.role("owner", len(run.state.positions))
        run.telemetry.ready(None)
        log.info("ready at event %d, %d partitions", run.events, len(run.state.positions))

    def _take_up(self, found: Commit, standby: Standby) -> None:
        """From what the log says to a state that goes on from there.

        If the last commit is our own, nothing was lost: memory is only ahead of it, and stays. A state
        that is being rebuilt counts for nothing until it is done, so that this can be begun anew.
        """
        run = self._run
        standing = None if found.metadata is None else read_commit_metadata(found.metadata)
        if standing is None and run.commits.standing is not None:
            raise RecoveryError(
                "the log no longer knows this pipeline's commits: its offsets were deleted while "
                "it ran. Start the pipeline again and follow what it says"
            )
        if standing is None:
            self._begin(found)
        elif standing != run.commits.standing:
            if run.commits.standing is not None:
                run.snapshots.disown()
                run.commits.standing = None
            warm = standby.hand_over(standing)
            restore, advance = run.states.restored, run.advance_again
            run.state, run.commits.named = rebuild(
                run.log,
                run.snapshots,
                standing,
                found,
                restore,
                advance,
                warm,
                run.settings.accept_version_change,
            )
            run.commits.standing = standing
            run.pending = Pending(run.events)
            if run.settings.accept_version_change and run.events != run.commits.named.events:
                run.clocks.want_snapshot()  # so that the change is asked for once, not at every start
        if standing is not None:
            self._refuse_made_anew(found.started)
        self.meet(found.started)
        if run.state.late is not None:
            run.telemetry.recovered(run.state.late)
        run.log.seek(run.state.positions)

    def _refuse_made_anew(self, started: Mapping[Partition, int]) -> None:
        """A partition that was committed and has no offset any more is another one by that name: what
        it holds now would be taken for what was read long ago.
        """
        run = self._run
        new = {(topic, number) for topic, number, _ in run.pending.added}
        for partition in sorted(started):
            if partition in run.state.positions and partition not in new:
                raise RecoveryError(
                    f"{partition[0]}-{partition[1]} was read up to offset "
                    f"{run.state.positions[partition]}, but the group has no offset of it any more: "
                    "the topic was deleted and made anew. Give the pipeline another name to start "
                    "over, or go on behind all that the topics hold now with `streamforest snapshots "
                    "adopt PIPELINE SNAPSHOT --from log-end`"
                )

    def meet(self, started: Mapping[Partition, int]) -> None:
        """Take up partitions that were added; the next commit says so."""
        run = self._run
        for (topic, number), at in sorted(started.items()):
            if (topic, number) not in run.state.positions:
                run.state.positions[topic, number] = at
                run.pending.added.append((topic, number, at))

    def _begin(self, found: Commit) -> None:
        """The first commit of all: positions and a snapshot of nothing.

        It shows that the folder can be written before any work is done.
        """
        run = self._run
        refuse_lost_offsets(run.snapshots)
        run.snapshotting.now()
        run.state.positions = dict(found.started)
        run.pending = Pending(added=[(*p, at) for p, at in sorted(found.started.items())])
        run.commit_now()

    def take_over(self, state: RunState, standing: CommitMetadata) -> None:
        """Go on with a state that was made elsewhere; the next commit follows that one."""
        self._run.state, self._run.commits.standing = state, standing

    def becomes_standby(self) -> tuple[RunState, CommitMetadata] | None:
        """Another process owns the partitions: what is pending is dropped. The state, if it is exactly
        what the last commit, which was ours, says.
        """
        run = self._run
        run.snapshots.disown()
        standing, run.commits.standing = run.commits.standing, None
        exact = run.events == run.pending.first
        run.pending = Pending()
        if standing is None or not exact or run.events != standing.events:
            return None
        return run.state, standing
