"""What if the model had other parameters? The journal is replayed from a snapshot with both.

A forest with other parameters cannot continue from this forest's snapshot, so the changed model starts
untrained at the snapshot's event. For a fair comparison an untrained copy of the current model runs beside
it, and the current model as it continued from the snapshot. All three see the same records in the journal's
order. Nothing is published, committed or owned, and the pipeline may keep running.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from streamforest.errors import ConfigError, RecoveryError
from streamforest.io.log import Log
from streamforest.runtime.checkpoint.journal import read_entries
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.factory import log_of, new_run
from streamforest.runtime.operate.inspect import find_snapshot, folder_of, last_commit_of
from streamforest.runtime.processing.loop import Run
from streamforest.runtime.recovery.replayer import after, batches
from streamforest.runtime.recovery.revisions import check_revisions


@dataclass(frozen=True)
class Outcome:
    """The result of one of the models since the snapshot."""

    variant: str
    labelled: int
    correct: int
    kappa: float | None

    @property
    def accuracy(self) -> float | None:
        """Share predicted correctly; None without labels."""
        return self.correct / self.labelled if self.labelled else None


def whatif(
    pipeline: Pipeline,
    changed: Pipeline,
    name: str,
    partition: int | None = None,
    accept_version_change: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Outcome]:
    """The accuracy since a snapshot of the model as it was, untrained there, and untrained with the changes.

    `progress` receives the number of events done, and of all events. VersionChangeError if the events were
    learned by another rule than this version's, unless `accept_version_change`: the model "as it was" could
    not be reproduced.
    """
    snapshots = folder_of(pipeline, partition)
    name = find_snapshot(snapshots, name)
    last = last_commit_of(pipeline, partition)
    if last is None:
        raise ConfigError("whatif: the pipeline has no commits to replay")
    source = None if partition is None else {"partition": partition}
    runs: dict[str, tuple[Run, RunState]] = {}
    logs: list[Log] = []
    try:
        for variant, which in (
            ("as it was", pipeline),
            ("untrained", pipeline),
            ("changed", changed),
        ):
            log = log_of(which, partition)
            logs.append(log)
            run = new_run(which, log, snapshots, False, source=source)
            runs[variant] = run, run.state
        first, _ = runs["as it was"]
        state = first.states.restored(name, "")
        runs["as it was"] = first, state
        start, begun = state.events, state.measures[state.main or first.main].totals
        labelled, correct = begun.labelled, begun.correct
        for variant in ("untrained", "changed"):
            _, fresh = runs[variant]
            fresh.events, fresh.positions = state.events, dict(state.positions)
        total = last.events - start
        with (
            closing(logs[0].source.reader(state.positions)) as reader,
            closing(logs[0].journal.read(-1, last.journal)) as journal,
        ):
            entries = read_entries(journal, logs[0].journal.committed_only)
            for entry in after(entries, start, last.commit):
                if entry.adopted:
                    raise RecoveryError(
                        f"commit {entry.commit} adopted {entry.adopted}: choose a later snapshot"
                    )
                check_revisions(entry, state.models, accept_version_change)
                for records in batches(entry, reader):
                    for run, one in runs.values():
                        run.replay(one, records)
                progress(entry.events - start, total)
        outcomes = []
        for variant, (run, one) in runs.items():
            totals = one.measures[one.main or run.main].totals
            is_first = variant == "as it was"
            outcomes.append(
                Outcome(
                    variant,
                    totals.labelled - (labelled if is_first else 0),
                    totals.correct - (correct if is_first else 0),
                    None if is_first and labelled else totals.kappa,
                )
            )
        return outcomes
    finally:
        for log in logs:
            log.close()
