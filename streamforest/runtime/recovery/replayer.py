"""Recovery: from the last commit back to exactly the state that was.

The commit names a snapshot; the journal lists what was advanced after it. If that snapshot is gone or
damaged, an older one that the journal still reaches does as well, only slower.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import closing
from itertools import islice
from typing import Any, TypeVar

from streamforest.errors import ConfigError, RecordsGoneError, RecoveryError, SnapshotError
from streamforest.io.features.reader import EventReader
from streamforest.io.log import Commit, Log, Reader, Records
from streamforest.runtime.checkpoint.journal import (
    CommitMetadata,
    Entry,
    Run,
    read_entries,
    runs_of,
)
from streamforest.runtime.checkpoint.run_state import MakeReader, RunState
from streamforest.runtime.checkpoint.store import Snapshot, SnapshotFolder
from streamforest.runtime.labels.store import LateRules
from streamforest.runtime.operate.requests import announce
from streamforest.runtime.processing.adapters import Model
from streamforest.runtime.processing.limits import Limits
from streamforest.runtime.recovery.revisions import (
    check_revisions,
    note_revisions,
    warn_of_versions,
)

log = logging.getLogger(__name__)

Advance = Callable[[RunState, Records], None]
Found = TypeVar("Found")

_BATCH = 5_000  # records advanced between two heartbeats
_MOMENT = 0.1  # seconds between two heartbeats while a snapshot is loaded


class States:
    """Makes the states of one pipeline: before the first event, or as a snapshot has it."""

    def __init__(
        self,
        models: Mapping[str, Model],
        limits: Limits,
        snapshots: SnapshotFolder,
        late: LateRules | None,
        source: Mapping[str, Any],
        reader: MakeReader = EventReader,
    ) -> None:
        self._reader = reader
        self._models, self._limits = models, limits
        self._snapshots = snapshots
        self._late, self._source = late, source

    def fresh(self) -> RunState:
        """Before the first event."""
        return RunState.new(self._models, self._limits, self._late, self._reader)

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
            models, plain, self._models, self._limits, self._source, self._late, self._reader
        )
        if name != f"s-{state.events:012d}":
            raise SnapshotError(f"it is of event {state.events}, which its name does not say")
        return state


class Replayer:
    """Brings states of one pipeline forward through its journal, publishing nothing."""

    def __init__(
        self,
        log: Log,
        snapshots: SnapshotFolder,
        states: States,
        advance: Advance,
        accept_version_change: bool = False,
    ) -> None:
        self._log = log
        self._snapshots = snapshots
        self.states = states
        self._advance = advance
        self.accept_version_change = accept_version_change

    def rebuild(
        self,
        commit: Commit,
        metadata: CommitMetadata,
        warm: tuple[RunState, int] | None,
        between: Callable[[], None],
    ) -> tuple[RunState, Snapshot]:
        """The state as of a commit, and the snapshot that recovery begins at.

        1. Load the snapshot that the commit names, else an older one; or take a `warm` state that has
           followed the journal up to a place. `between` is called while it loads.
        2. Read the journal from there to the commit.
        3. Advance through its slices, in order, calling `between` after each batch.
        4. Compare with what the commit says: number of events and every position.

        VersionChangeError if events were learned by another rule than this version has, unless that is
        accepted.
        """
        begun = time.monotonic()
        if warm is None:
            state, origin = _alive(lambda: self.newest_usable(metadata), between)
            since = origin.since
        else:
            (state, since), origin = warm, _named(metadata)
        start = state.events
        # both hold a client with a thread, which would keep the process alive after an error
        with (
            closing(self._log.source.reader(state.positions)) as reader,
            closing(self._log.journal.read(since, metadata.journal)) as journal,
        ):
            entries = read_entries(journal, self._log.journal.committed_only)
            warned = warm is not None
            for entry in after(entries, state.events, metadata.commit):
                if not warned and entry.events > entry.first:
                    warn_of_versions(origin.name, self._snapshots.sidecar(origin.name))
                    warned = True
                self.apply(state, entry, reader, between, self.accept_version_change)
        _compare(state, metadata, commit)
        if state.events == start:
            note_revisions(state.models, state.events)
        log.info(
            "at event %d again: %s, %d events advanced once more in %.1f s",
            state.events,
            "followed in memory" if warm else f"snapshot {origin.name}",
            state.events - start,
            time.monotonic() - begun,
        )
        return state, origin

    def apply(
        self,
        state: RunState,
        entry: Entry,
        reader: Reader,
        between: Callable[[], None],
        accept: bool = False,
        partial: bool = False,
    ) -> int:
        """Advance a state through one journal record; how many events it learned again. `accept` what was
        learned by another rule. `partial`: records may be gone, and journal records before this one; the
        state is then another than it was, and stands where it stood.
        """
        if partial:
            state.events = entry.first
        if entry.first != state.events:
            raise RecordsGoneError(
                f"the journal has a gap: commit {entry.commit} begins at event {entry.first}, "
                f"but event {state.events} is due"
            )
        if entry.events > entry.first and entry.rules != state.gate.limits.rules:
            raise ConfigError(
                f"events since the last usable snapshot were judged by {entry.rules}, now it is "
                f"{state.gate.limits.rules}: run once more with the old settings and stop it "
                "cleanly, then change them"
            )
        if entry.adopted:  # it learns nothing, and takes a number of its own
            if entry.origin != "own":
                state.become(self.states.restored(entry.adopted, ""))
            state.positions = {(topic, number): at for topic, number, at in entry.moved}
            state.events = entry.events
            return 0
        check_revisions(entry, state.models, accept)
        for topic, number, at in entry.added:
            state.positions[topic, number] = at
        for records in remaining(entry, reader) if partial else batches(entry, reader):
            self._advance(state, records)
            between()
        learned = state.events - entry.first
        if partial:
            state.events = entry.events
            state.positions.update({(t, n): end for t, n, _, end in entry.slices})
        if state.events != entry.events:
            raise _records_gone(entry)
        if entry.promoted:
            state.main = entry.promoted
        announce(state.models, entry.announced)
        return learned

    def newest_usable(self, metadata: CommitMetadata) -> tuple[RunState, Snapshot]:
        """The state of the snapshot that a commit names, or of the newest older one that can be read."""
        restore = self.states.restored
        try:
            return restore(metadata.snapshot, metadata.hash), _named(metadata)
        except SnapshotError as error:
            first = error
        for name in self._snapshots.older(metadata.snapshot):
            try:
                state = restore(name, "")
            except SnapshotError as error:
                log.warning("%s", error)
                continue
            log.warning("%s; going on from the older %s", first, name)
            return state, Snapshot(name, "", -1, state.events, 0, 0.0)
        remedy = _remedy(self._snapshots)
        raise RecoveryError(f"{first}; no older snapshot can be used either; {remedy}")


def _alive(work: Callable[[], Found], between: Callable[[], None]) -> Found:
    """What `work` returns, in a thread of its own: an object store that hangs for minutes must not cost
    the membership of the group, nor delay a stop.
    """
    found: Future[Found] = Future()

    def do() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=do, name="load-snapshot", daemon=True).start()
    while not wait([found], _MOMENT).done:
        between()
    return found.result()


def _named(metadata: CommitMetadata) -> Snapshot:
    """The snapshot that a commit names, wherever it is."""
    name = metadata.snapshot
    return Snapshot(name, metadata.hash, metadata.since, int(name[2:]), 0, 0.0)


def after(entries: Iterable[tuple[int, Entry]], events: int, commit: int) -> Iterator[Entry]:
    """Entries that a state of so many events has not seen, up to a commit."""
    for _, entry in entries:
        if entry.commit <= commit and (entry.events > events or entry.first >= events):
            yield entry


def batches(entry: Entry, reader: Reader) -> Iterator[Records]:
    """The records of an entry in its order, about so many at once; RecordsGoneError if some are gone."""
    if entry.order:
        yield from _alternating(entry, reader)
        return
    batch = Records()
    for topic, partition, first, end in entry.slices:
        records = reader.take((topic, partition), first, end)
        batch.partitions.extend([(topic, partition)] * len(records))
        batch.records.extend(records)
        if len(batch) >= _BATCH:
            yield batch
            batch = Records()
    if batch:
        yield batch


def _alternating(entry: Entry, reader: Reader) -> Iterator[Records]:
    """The records of an entry whose partitions alternate."""
    partitions = [(topic, number) for topic, number, _, _ in entry.slices]
    offsets = [first for _, _, first, _ in entry.slices]
    ends = [end for _, _, _, end in entry.slices]
    for runs in _in_batches(runs_of(entry)):
        wanted: Counter[int] = Counter()
        for index, count in runs:
            wanted[index] += count
        found = {}
        for index, count in wanted.items():
            records = reader.take(partitions[index], offsets[index], ends[index], count)
            if len(records) < count:
                raise _records_gone(entry)
            offsets[index] = records[-1].offset + 1
            found[index] = iter(records)
        batch = Records()
        for index, count in runs:
            batch.partitions.extend([partitions[index]] * count)
            batch.records.extend(islice(found[index], count))
        yield batch
    if offsets != ends:
        raise _records_gone(entry)


def remaining(entry: Entry, reader: Reader) -> Iterator[Records]:
    """The records of an entry that are left, in its order. Of a partition that alternates with others, the
    first records count as gone: retention deletes those.
    """
    found = [reader.take((topic, number), first, end) for topic, number, first, end in entry.slices]
    partitions = [(topic, number) for topic, number, _, _ in entry.slices]
    runs = list(runs_of(entry)) if entry.order else [(i, len(part)) for i, part in enumerate(found)]
    gone = [-len(records) for records in found]
    for index, count in runs:
        gone[index] += count
    left = [iter(records) for records in found]
    batch = Records()
    for index, count in runs:
        missing = max(0, min(count, gone[index]))
        gone[index] -= missing
        batch.partitions.extend([partitions[index]] * (count - missing))
        batch.records.extend(islice(left[index], count - missing))
    if batch:
        yield batch


def _in_batches(runs: Iterator[Run]) -> Iterator[list[Run]]:
    batch: list[Run] = []
    size = 0
    for run in runs:
        batch.append(run)
        size += run[1]
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _records_gone(entry: Entry) -> RecordsGoneError:
    return RecordsGoneError(
        f"commit {entry.commit} took {entry.events - entry.first} events, but its slices hold fewer "
        "records now: they are gone from the log"
    )


def _compare(state: RunState, metadata: CommitMetadata, commit: Commit) -> None:
    if state.events != metadata.events:
        raise RecordsGoneError(
            f"the last commit is at event {metadata.events}, but the journal leads to {state.events}"
        )
    for partition, at in commit.positions.items():
        if state.positions.get(partition) != at:
            raise RecoveryError(
                f"{partition[0]}-{partition[1]} was committed at offset {at}, but the journal leads "
                f"to {state.positions.get(partition)}: the group's offsets were changed from outside"
            )


def _remedy(snapshots: SnapshotFolder) -> str:
    return (
        f"put the missing file back into {snapshots.path}, or start over "
        "(a file run: --fresh; on Kafka: another pipeline name)"
    )
