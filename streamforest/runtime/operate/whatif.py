"""What if the model had other parameters: the journal replayed from a snapshot, both side by side.

A forest of other parameters cannot go on from a snapshot of this one, so the changed model begins anew at
the snapshot's place. To compare like with like the model as it is does so too, beside the one that goes on
from the snapshot as it really did. All of them see the same records in the journal's order; nothing is
published, committed or owned, and the pipeline may run meanwhile.
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
from streamforest.runtime.operate.inspect import folder_of, full_name, standing_of
from streamforest.runtime.processing.loop import Run
from streamforest.runtime.recovery.replayer import after, batches
from streamforest.runtime.recovery.revisions import check_revisions


@dataclass(frozen=True)
class Outcome:
    """One way it could have gone, counted since the snapshot."""

    way: str
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
    """The accuracy since a snapshot: as it was, begun anew there, and begun anew with the changes.

    `progress` is told how many events are done, and of how many. VersionChangeError if they were learned
    by another rule than this version has, so that "as it was" would not be, unless that is accepted.
    """
    snapshots = folder_of(pipeline, partition)
    name = full_name(name)
    if name not in snapshots.names():
        raise ConfigError(f"{name}: no such snapshot in {snapshots.path}; see snapshots list")
    standing = standing_of(pipeline, partition)
    if standing is None:
        raise ConfigError("whatif: the pipeline has committed nothing that could be replayed")
    source = None if partition is None else {"partition": partition}
    runs: dict[str, tuple[Run, RunState]] = {}
    logs: list[Log] = []
    try:
        for way, which in (("as it was", pipeline), ("begun anew", pipeline), ("changed", changed)):
            log = log_of(which, partition)
            logs.append(log)
            run = new_run(which, log, snapshots, False, source=source)
            runs[way] = run, run.state
        first, _ = runs["as it was"]
        state = first.states.restored(name, "")
        runs["as it was"] = first, state
        start, begun = state.events, state.measures[state.main or first.main].totals
        labelled, correct = begun.labelled, begun.correct
        for way in ("begun anew", "changed"):
            _, fresh = runs[way]
            fresh.events, fresh.positions = state.events, dict(state.positions)
        total = standing.events - start
        with (
            closing(logs[0].source.reader(state.positions)) as reader,
            closing(logs[0].journal.read(-1, standing.journal)) as journal,
        ):
            entries = read_entries(journal, logs[0].journal.committed_only)
            for entry in after(entries, start, standing.commit):
                if entry.adopted:
                    raise RecoveryError(
                        f"commit {entry.commit} adopted {entry.adopted}: choose a snapshot after that"
                    )
                check_revisions(entry, state.models, accept_version_change)
                for stretches in batches(entry, reader.take):
                    for run, one in runs.values():
                        run.replay(one, stretches)
                progress(entry.events - start, total)
        told = []
        for way, (run, one) in runs.items():
            totals = one.measures[one.main or run.main].totals
            is_first = way == "as it was"
            told.append(
                Outcome(
                    way,
                    totals.labelled - (labelled if is_first else 0),
                    totals.correct - (correct if is_first else 0),
                    None if is_first and labelled else totals.kappa,
                )
            )
        return told
    finally:
        for log in logs:
            log.close()
