"""Adopting a snapshot: the operator says from which snapshot, and from where, a pipeline continues.

There are two reasons to. The group's offsets have expired while no process ran (the broker deletes them
after a week), so that only the journal knows how far the pipeline had come. Or the model has learned what it
should not have, and is rolled back. The journal records the adoption as an entry with an event number of its
own, so that no two snapshots ever have the same name and different content.

    journal      learn again, without publishing, everything that the journal lists after the snapshot
    last-commit  continue at the last commit: what was learned after the snapshot is forgotten
    log-end      continue at the end of the log: records that were not yet read are skipped
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from streamforest.errors import ConfigError, RecoveryError
from streamforest.io.kafka.log import kafka_log
from streamforest.io.kafka.membership import OnlyMember, acquire_alone
from streamforest.io.kafka.settings import for_partition
from streamforest.io.log import Partition
from streamforest.runtime.checkpoint.commit import Pending
from streamforest.runtime.checkpoint.journal import (
    CommitMetadata,
    Entry,
    read_commit_metadata,
    read_entries,
)
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.factory import kafka_settings, new_run, prepared
from streamforest.runtime.operate.inspect import find_snapshot, folder_of

Origin = Literal["journal", "last-commit", "log-end"]
_RECORDED: dict[Origin, str] = {"journal": "own", "last-commit": "committed", "log-end": "end"}
"""The words of the journal's format for each origin."""


@dataclass(frozen=True)
class Adopted:
    """The result of an adoption."""

    name: str
    snapshot: str
    commit: int
    relearned: int
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
    with prepared(pipeline, create_topics=False):
        settings = kafka_settings(pipeline)
        if partition is not None:
            settings = for_partition(settings, partition)
        log = kafka_log(settings, OnlyMember(settings))
        source = None if partition is None else {"partition": partition}
        run = new_run(pipeline, log, snapshots, False, source=source)
        try:
            commit = acquire_alone(log.membership)
            metadata = None if commit.metadata is None else read_commit_metadata(commit.metadata)
            state = run.states.restored(name, "")
            before = state.events
            scan = _JournalScan(metadata)
            keep_alive = log.membership.keep_alive
            with (
                closing(log.journal.read(-1, None, keep_alive)) as journal,
                closing(log.source.reader(state.positions)) as reader,
            ):
                for _, entry in read_entries(journal, log.journal.committed_only):
                    scan.take(entry)
                    if origin == "journal" and before <= entry.first:
                        run.replayer.apply(state, entry, reader, keep_alive, accept_version_change)
                    if scan.complete:
                        break
            last, positions = scan.last, scan.positions
            relearned = state.events - before
            skipped = 0
            if origin == "log-end":
                ends = log.source.ends()
                skipped = sum(ends[p] - offset for p, offset in positions.items() if p in ends)
                positions = {p: ends.get(p, offset) for p, offset in positions.items()}
            if origin != "journal":
                state.positions = positions
            state.events = last.events + 1
            pending = Pending(
                last.events,
                adopted=name,
                origin=_RECORDED[origin],
                moved=[(*p, offset) for p, offset in sorted(state.positions.items())],
            )
            written = run.adopt(state, metadata or _metadata_of(last), pending)
            return Adopted(name, written.snapshot, written.commit, relearned, skipped)
        finally:
            log.close()


class _JournalScan:
    """Reads the journal up to the last commit: its record, and the position of every partition."""

    def __init__(self, metadata: CommitMetadata | None) -> None:
        self._commit = None if metadata is None else metadata.commit
        self._last: Entry | None = None
        self.positions: dict[Partition, int] = {}

    def take(self, entry: Entry) -> None:
        """Read the next record; the record of the last commit is the last one."""
        self._last = entry
        for topic, number, offset in entry.added:
            self.positions[topic, number] = offset
        for topic, number, _, end in entry.slices:
            self.positions[topic, number] = end
        for topic, number, offset in entry.moved:
            self.positions[topic, number] = offset

    @property
    def complete(self) -> bool:
        """Whether the last commit was reached. If it is unknown, the journal is read to its end."""
        return self._last is not None and self._last.commit == self._commit

    @property
    def last(self) -> Entry:
        """The record of the last commit."""
        if self._last is None or (self._commit is not None and not self.complete):
            raise RecoveryError(
                "the journal does not hold the last commit: it was cut or recreated. Give the "
                "pipeline another name to start over"
            )
        return self._last


def _metadata_of(last: Entry) -> CommitMetadata:
    """The metadata of the last commit, as far as its journal record tells it."""
    return CommitMetadata(last.commit, -1, last.events, "s-000000000000", "", -1)
