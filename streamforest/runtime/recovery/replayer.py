"""Recovery: from the last commit back to exactly the state that was.

The commit names a snapshot; the journal lists what was advanced after it. If that snapshot is gone or
damaged, an older one that the journal still reaches does as well, only slower.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

from streamforest.errors import ConfigError, RecoveryError, SnapshotError
from streamforest.io.log import Commit, Log, Reader, RecordSlice
from streamforest.runtime.checkpoint.journal import CommitMetadata, Entry, read_entries
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.store import Snapshot, SnapshotFolder
from streamforest.runtime.labels.store import LateRules
from streamforest.runtime.processing.admission import Limits
from streamforest.runtime.processing.models import Model
from streamforest.runtime.recovery.revisions import (
    check_revisions,
    note_revisions,
    warn_of_versions,
)

log = logging.getLogger(__name__)

Restore = Callable[[str, str], RunState]
"""From a snapshot's name and expected hash to the state it holds."""
Advance = Callable[[RunState, list[RecordSlice]], None]

_AT_ONCE = 5_000  # records advanced between two signs of life


class States:
    """Makes the states of one pipeline: before the first event, or as a snapshot has it."""

    def __init__(
        self,
        models: Mapping[str, Model],
        limits: Limits,
        snapshots: SnapshotFolder,
        late: LateRules | None,
        source: Mapping[str, Any],
    ) -> None:
        self._models, self._limits = models, limits
        self._snapshots = snapshots
        self._late, self._source = late, source

    def fresh(self) -> RunState:
        """Before the first event."""
        return RunState.new(self._models, self._limits, self._late)

    def restored(self, name: str, expected: str) -> RunState:
        """The state that a snapshot holds, checked against the pipeline."""
        models, plain = self._snapshots.load(name, expected)
        path = self._snapshots.file(name)
        try:
            state = self.check(name, models, plain)
        except ConfigError as error:
            raise ConfigError(
                f"{path}: {error}. Put them back, choose another run.folder, or start over with "
                "--fresh"
            ) from error
        except SnapshotError as error:
            raise SnapshotError(f"{path}: {error}") from error
        state.restore_passing(self._snapshots.passing(name))
        return state

    def check(self, name: str, models: dict[str, Any], plain: dict[str, Any]) -> RunState:
        """The state that the models and the plain data of a snapshot make up; SnapshotError if they do
        not. Before a snapshot is named, its writer asks the same.
        """
        state = RunState.restored(
            models, plain, self._models, self._limits, self._source, self._late
        )
        if name != f"s-{state.events:012d}":
            raise SnapshotError(f"it is of event {state.events}, which its name does not say")
        return state


def rebuild(
    log_: Log,
    snapshots: SnapshotFolder,
    standing: CommitMetadata,
    found: Commit,
    restore: Restore,
    advance: Advance,
    warm: tuple[RunState, Snapshot] | None = None,
    accept: bool = False,
) -> tuple[RunState, Snapshot]:
    """The state as of a commit, and the snapshot it was rebuilt from.

    1. Load the snapshot the commit names, else an older one; or take a `warm` state that has followed
       the journal so far.
    2. Read the journal from there to the commit.
    3. Advance through its slices, in order, publishing nothing.
    4. Compare with what the commit says: number of events and every position.

    VersionChangeError if events were learned by another rule than this version has, unless `accept`.
    """
    begun = time.monotonic()
    state, origin = warm or newest_usable(snapshots, standing, restore)
    start = state.events
    # both hold a client with a thread, which would keep the process alive after an error
    with (
        closing(log_.reader(state.positions)) as reader,
        closing(log_.journal(origin.since, standing.journal)) as journal,
    ):
        entries = read_entries(journal, log_.exactly_once)
        told = warm is not None
        for entry in after(entries, state.events, standing.commit):
            if not told and entry.events > entry.first:
                warn_of_versions(origin.name, snapshots.sidecar(origin.name))
                told = True
            apply(state, entry, reader, advance, snapshots, restore, log_.idle, accept)
    _compare(state, standing, found)
    if state.events == start:
        note_revisions(state.models, state.events)
    log.info(
        "at event %d again: %s, %d events advanced once more in %.1f s",
        state.events,
        "followed in memory" if warm else f"snapshot {origin.name}",
        state.events - start,
        time.monotonic() - begun,
    )
    return state, _named(standing) if warm else origin


def apply(
    state: RunState,
    entry: Entry,
    reader: Reader,
    advance: Advance,
    snapshots: SnapshotFolder,
    restore: Restore,
    idle: Callable[[], None] = lambda: None,
    accept: bool = False,
) -> None:
    """Advance a state through one journal record. `accept` what was learned by another rule."""
    if entry.first != state.events:
        raise RecoveryError(
            f"the journal has a gap: commit {entry.commit} begins at event {entry.first}, "
            f"but event {state.events} is due; {_remedy(snapshots)}"
        )
    if entry.events > entry.first and entry.rules != state.gate.limits.rules():
        raise ConfigError(
            f"events since the last usable snapshot were judged by {entry.rules}, now it is "
            f"{state.gate.limits.rules()}: run once more with the old settings and stop it "
            "cleanly, then change them"
        )
    if not entry.adopted:  # which learns nothing, and takes a number of its own
        check_revisions(entry, state.models, accept)
    if entry.adopted:
        if entry.origin != "own":
            state.become(restore(entry.adopted, ""))
        state.positions = {(topic, number): at for topic, number, at in entry.moved}
        state.events = entry.events
        return
    for topic, number, at in entry.added:
        state.positions[topic, number] = at
    for slices in chunks(entry, reader.take):
        advance(state, slices)
        idle()
    if state.events != entry.events:
        raise RecoveryError(
            f"commit {entry.commit} took {entry.events - entry.first} events, but its slices "
            f"hold {state.events - entry.first} now: records are gone from the log"
        )
    if entry.promoted:
        state.main = entry.promoted


def _named(standing: CommitMetadata) -> Snapshot:
    """The snapshot that a commit names, wherever it is."""
    name = standing.snapshot
    return Snapshot(name, standing.hash, standing.since, int(name[2:]), 0, 0.0)


def newest_usable(
    snapshots: SnapshotFolder, standing: CommitMetadata, restore: Restore
) -> tuple[RunState, Snapshot]:
    """The state of the snapshot that a commit names, or of the newest older one that can be read."""
    try:
        state = restore(standing.snapshot, standing.hash)
        return state, Snapshot(
            standing.snapshot, standing.hash, standing.since, state.events, 0, 0.0
        )
    except SnapshotError as error:
        first = error
    for name in snapshots.older(standing.snapshot):
        try:
            state = restore(name, "")
        except SnapshotError as error:
            log.warning("%s", error)
            continue
        log.warning("%s; going on from the older %s", first, name)
        return state, Snapshot(name, "", -1, state.events, 0, 0.0)
    raise RecoveryError(f"{first}; no older snapshot can be used either; {_remedy(snapshots)}")


def after(entries: Iterable[tuple[int, Entry]], events: int, commit: int) -> Iterator[Entry]:
    """Entries that a state of so many events has not seen, up to a commit."""
    for _, entry in entries:
        if entry.commit <= commit and (entry.events > events or entry.first >= events):
            yield entry


def chunks(entry: Entry, take: Callable[..., list[object]]) -> Iterator[list[RecordSlice]]:
    """The slices of an entry, as many at once as is good."""
    batch: list[RecordSlice] = []
    size = 0
    for topic, partition, first, end in entry.slices:
        records = take((topic, partition), first, end)
        batch.append(RecordSlice((topic, partition), first, end, records))
        size += len(records)
        if size >= _AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _compare(state: RunState, standing: CommitMetadata, found: Commit) -> None:
    if state.events != standing.events:
        raise RecoveryError(
            f"the last commit is at event {standing.events}, but the journal leads to {state.events}"
        )
    for partition, at in found.positions.items():
        if state.positions.get(partition) != at:
            raise RecoveryError(
                f"{partition[0]}-{partition[1]} was committed at offset {at}, but the journal leads "
                f"to {state.positions.get(partition)}: the group's offsets were changed from outside"
            )


def refuse_lost_offsets(snapshots: SnapshotFolder) -> None:
    """Snapshots without a commit: the group's offsets have expired, or the folder is another's."""
    names = [name for name in snapshots.names() if name != "s-000000000000"]
    if names:
        raise RecoveryError(
            f"{snapshots.path} holds snapshots up to {names[-1]}, but the broker knows no commit of "
            "this pipeline: its offsets have expired (offsets.retention.minutes), or this is another "
            "broker. Where its journal is still there, `streamforest snapshots adopt PIPELINE "
            f"{names[-1]}` goes on exactly where it ended; else move the folder away to start over"
        )


def _remedy(snapshots: SnapshotFolder) -> str:
    return (
        f"put the missing file back into {snapshots.path}, or start over "
        "(a file run: --fresh; on Kafka: another pipeline name)"
    )
