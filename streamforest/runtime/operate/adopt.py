"""Adopting a snapshot: the operator says from which snapshot, and from where, a pipeline continues.

There are three reasons to. The group's offsets have expired while no process ran (the broker deletes them
after a week), so that only the journal knows how far the pipeline had come. Records that recovery needs are
gone from the log, or unread ones are. Or the model has learned what it should not have, and is rolled back.
The journal records the adoption as an entry with an event number of its own, so that no two snapshots ever
have the same name and different content.

    journal      learn again, without publishing, everything that the journal lists after the snapshot
    earliest     the same as far as it is left; continue at the last commit, or where the log begins now
    last-commit  continue at the last commit: what was learned after the snapshot is forgotten
    log-end      continue at the end of the log: records that were not yet read are skipped

What the broker says of the last commit is the truth. Only if it says nothing, or nothing of some partition,
the journal is asked: a journal that was cut is no obstacle.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Literal

from streamforest.errors import ConfigError, RecordsGoneError, RecoveryError
from streamforest.io.kafka.log import kafka_log
from streamforest.io.kafka.membership import OnlyMember, acquire_alone
from streamforest.io.kafka.remaining import RemainingReader
from streamforest.io.kafka.settings import for_partition
from streamforest.io.log import Commit, Journal, Log, Partition, Reader
from streamforest.runtime.checkpoint.commit import Pending
from streamforest.runtime.checkpoint.journal import (
    CommitMetadata,
    Entry,
    read_commit_metadata,
    read_entries,
)
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.factory import kafka_settings, new_run, prepared
from streamforest.runtime.operate.inspect import find_snapshot, folder_of
from streamforest.runtime.processing.loop import Run

Origin = Literal["journal", "earliest", "last-commit", "log-end"]
ORIGINS: tuple[Origin, ...] = ("journal", "earliest", "last-commit", "log-end")
_RECORDED: dict[Origin, str] = {
    "journal": "own",
    "earliest": "earliest",
    "last-commit": "committed",
    "log-end": "end",
}
"""The words of the journal's format for each origin."""


@dataclass(frozen=True)
class Adopted:
    """The result of an adoption."""

    name: str
    snapshot: str
    commit: int
    relearned: int
    forgotten: int
    """Number of events after the snapshot that were not learned again."""
    skipped: int
    """Number of records that will never be read."""


def adopt(
    pipeline: Pipeline,
    name: str,
    origin: Origin,
    partition: int | None = None,
    accept_version_change: bool = False,
) -> Adopted:
    """Make a stopped pipeline continue from a snapshot.

    ConfigError if there is no such snapshot; VersionChangeError if events that must be learned again were
    learned by another rule, unless `accept_version_change`.
    """
    if pipeline.config.kafka is None:
        raise ConfigError(
            "adopt: works for a pipeline on Kafka only; start a file run over with run --fresh"
        )
    snapshots = folder_of(pipeline, partition)
    name = find_snapshot(snapshots, name)
    with prepared(pipeline, create_topics=False), ExitStack() as stack:
        settings = kafka_settings(pipeline)
        if partition is not None:
            settings = for_partition(settings, partition)
        log = kafka_log(settings, OnlyMember(settings))
        stack.callback(log.close)
        source = None if partition is None else {"partition": partition}
        run = new_run(pipeline, log, snapshots, False, source=source)
        commit = acquire_alone(log.membership)
        state = run.states.restored(name, "")
        reader: Reader | None = None
        if origin == "journal":
            reader = log.source.reader(state.positions)
        elif origin == "earliest":
            assigned = commit.new_partitions.keys() | commit.positions.keys()
            reader = RemainingReader(
                settings.client(), {p: state.positions.get(p, 0) for p in assigned}
            )
        if reader is not None:
            stack.enter_context(closing(reader))
        return _Adoption(run, log, commit, state, name, origin).carry_out(
            reader, accept_version_change
        )


class _Adoption:
    """One adoption, step by step."""

    def __init__(
        self, run: Run, log: Log, commit: Commit, state: RunState, name: str, origin: Origin
    ) -> None:
        self._run, self._log, self._commit = run, log, commit
        self._state, self._name, self._origin = state, name, origin
        text = commit.metadata
        self._metadata = None if text is None else read_commit_metadata(text)

    def carry_out(self, reader: Reader | None, accept: bool) -> Adopted:
        """Learn again what is to be, move to where to continue, commit."""
        state, origin = self._state, self._origin
        first, relearned, adoptions = state.events, 0, 0
        keep_alive = self._log.membership.keep_alive
        scan = _JournalScan(self._metadata, state.events)

        def learn(entry: Entry) -> None:
            nonlocal relearned, adoptions
            if reader is not None and first <= entry.first:
                adoptions += bool(entry.adopted)
                partial = origin == "earliest"
                relearned += self._run.replayer.apply(
                    state, entry, reader, keep_alive, accept, partial
                )

        scan.read(self._log.journal, self._since(), learn, keep_alive)
        last = scan.last_commit(strict=origin in ("journal", "last-commit"))
        if origin == "journal" and state.events != last.events:
            raise RecordsGoneError(
                f"the journal does not lead from {self._name} to the last commit, at event "
                f"{last.events}: it was cut or recreated. --from earliest goes on with what is left"
            )
        committed = self._committed(scan)
        positions = self._positions(committed, reader)
        skipped = sum(max(0, at - committed.get(p, at)) for p, at in positions.items())
        state.positions = positions
        state.events = last.events + 1
        pending = Pending(
            last.events,
            # what was learned again in part can be had from its own snapshot only
            adopted=f"s-{state.events:012d}" if origin == "earliest" else self._name,
            origin=_RECORDED[origin],
            moved=[(*p, offset) for p, offset in sorted(positions.items())],
        )
        written = self._run.adopt(state, last, pending, scan.place)
        forgotten = last.events - first - relearned - adoptions
        return Adopted(self._name, written.snapshot, written.commit, relearned, forgotten, skipped)

    def _since(self) -> int:
        """From where on the journal is read."""
        metadata = self._metadata
        if metadata is None:
            return -1
        if self._origin in ("journal", "earliest"):
            return metadata.since if metadata.snapshot == self._name else -1
        # the broker knows all positions, or they do not matter: the last record is enough
        known = self._origin == "log-end" or not self._commit.new_partitions
        return metadata.journal - 1 if known else -1

    def _committed(self, scan: _JournalScan) -> dict[Partition, int]:
        """Where the last commit ended in each partition."""
        new, committed = self._commit.new_partitions, self._commit.positions
        if self._metadata is not None and self._origin == "earliest":
            return {**new, **committed}  # one without a commit is a new one of the same name
        found = {**scan.positions, **committed}
        if self._origin == "earliest":
            ends = self._log.source.ends()  # a topic that ends earlier is a new one, too
            return {
                p: at if found.get(p, at) > ends[p] else found.get(p, at) for p, at in new.items()
            }
        if self._origin == "journal":
            found = self._state.positions
        return {p: at for p, at in found.items() if p in new or p in committed}

    def _positions(
        self, committed: dict[Partition, int], reader: Reader | None
    ) -> dict[Partition, int]:
        """Where to continue in each partition."""
        if self._origin == "log-end":
            return self._log.source.ends()
        if isinstance(reader, RemainingReader):
            return reader.clamped(committed)
        return committed


class _JournalScan:
    """Reads the journal up to the last commit: its record, and the position of every partition."""

    def __init__(self, metadata: CommitMetadata | None, events: int) -> None:
        """`events` is the number of events of the snapshot."""
        self._metadata = metadata
        self._events = events
        self._last: Entry | None = None
        self.place = -1
        """Of the last record; -1 if there is none."""
        self.positions: dict[Partition, int] = {}

    def read(
        self,
        journal: Journal,
        since: int,
        learn: Callable[[Entry], None],
        keep_alive: Callable[[], None],
    ) -> None:
        """Read it from a place on, or from its beginning if that is later."""
        try:
            self._read(journal, since, learn, keep_alive)
        except RecordsGoneError:
            if self._last is not None or since < 0:
                raise
            self._read(journal, -1, learn, keep_alive)

    def _read(
        self,
        journal: Journal,
        since: int,
        learn: Callable[[Entry], None],
        keep_alive: Callable[[], None],
    ) -> None:
        with closing(journal.read(since, None, keep_alive)) as raw:
            for place, entry in read_entries(raw, journal.committed_only):
                self._take(place, entry)
                learn(entry)
                if self._metadata is not None and entry.commit == self._metadata.commit:
                    break

    def _take(self, place: int, entry: Entry) -> None:
        self.place, self._last = place, entry
        for topic, number, offset in entry.added:
            self.positions[topic, number] = offset
        for topic, number, _, end in entry.slices:
            self.positions[topic, number] = end
        for topic, number, offset in entry.moved:
            self.positions[topic, number] = offset

    def last_commit(self, strict: bool) -> CommitMetadata:
        """What the last commit says, or what its journal record tells of it; if neither is there, what the
        snapshot tells, unless that is too little: `strict`.
        """
        if self._metadata is not None:
            return self._metadata
        if self._last is not None:
            commit, events = self._last.commit, self._last.events
        elif strict:
            raise RecoveryError(
                "neither the group nor the journal knows how far the pipeline has come: --from log-end "
                "keeps the model and skips what the topics hold now, --from earliest reads it"
            )
        else:
            commit, events = -1, self._events
        return CommitMetadata(commit, -1, events, "s-000000000000", "", -1)
