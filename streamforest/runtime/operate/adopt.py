"""Adopting a snapshot: the operator says from which one, and from where, a pipeline is to go on.

Two occasions. The group's offsets have expired while nobody ran (the broker forgets them after a week), so
that only the journal knows how far the pipeline had come. Or the model has learned what it should not have,
and is to be rolled back. It is recorded in the journal as an entry that takes an event number of its own, so
that no two snapshots ever have one name and different content.

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
from streamforest.runtime.operate.inspect import folder_of, full_name

Origin = Literal["journal", "last-commit", "log-end"]
_RECORDED: dict[Origin, str] = {"journal": "own", "last-commit": "committed", "log-end": "end"}
"""The words of the journal's format for each origin."""


@dataclass(frozen=True)
class Adopted:
    """What became of it."""

    name: str
    snapshot: str
    commit: int
    relearned: int
    skipped: int
    """Records that will never be read."""


def adopt(
    pipeline: Pipeline,
    name: str,
    origin: Origin,
    partition: int | None = None,
    accept_version_change: bool = False,
) -> Adopted:
    """Let a pipeline that is not running go on from a snapshot; ConfigError if there is no such one,
    VersionChangeError if what it is to learn again was learned by another rule, unless that is accepted.
    """
    if pipeline.config.kafka is None:
        raise ConfigError("adopt: for a pipeline on Kafka; a file run starts over with run --fresh")
    snapshots = folder_of(pipeline, partition)
    name = full_name(name)
    if name not in snapshots.names():
        raise ConfigError(f"{name}: no such snapshot in {snapshots.path}; see snapshots list")
    with prepared(pipeline, create_topics=False):
        settings = kafka_settings(pipeline)
        if partition is not None:
            settings = for_partition(settings, partition)
        log = kafka_log(settings, OnlyMember(settings))
        source = None if partition is None else {"partition": partition}
        run = new_run(pipeline, log, snapshots, False, source=source)
        try:
            found = acquire_alone(log.membership)
            standing = None if found.metadata is None else read_commit_metadata(found.metadata)
            state = run.states.restored(name, "")
            before = state.events
            told = _Told(standing)
            keep_alive = log.membership.keep_alive
            with (
                closing(log.journal.read(-1, None, keep_alive)) as journal,
                closing(log.source.reader(state.positions)) as reader,
            ):
                for _, entry in read_entries(journal, log.journal.committed_only):
                    told.take(entry)
                    if origin == "journal" and before <= entry.first:
                        run.replayer.apply(state, entry, reader, keep_alive, accept_version_change)
                    if told.complete:
                        break
            last, positions = told.last, told.positions
            relearned = state.events - before
            skipped = 0
            if origin == "log-end":
                ends = log.source.ends()
                skipped = sum(ends[p] - at for p, at in positions.items() if p in ends)
                positions = {p: ends.get(p, at) for p, at in positions.items()}
            if origin != "journal":
                state.positions = positions
            state.events = last.events + 1
            pending = Pending(
                last.events,
                adopted=name,
                origin=_RECORDED[origin],
                moved=[(*p, at) for p, at in sorted(state.positions.items())],
            )
            written = run.adopt(state, _standing(last, standing), pending)
            return Adopted(name, written.snapshot, written.commit, relearned, skipped)
        finally:
            log.close()


class _Told:
    """What the journal tells up to the last commit: its record, and where every partition stands."""

    def __init__(self, standing: CommitMetadata | None) -> None:
        self._commit = None if standing is None else standing.commit
        self._last: Entry | None = None
        self.positions: dict[Partition, int] = {}

    def take(self, entry: Entry) -> None:
        """The next record; none comes after the one of the last commit."""
        self._last = entry
        for topic, number, at in entry.added:
            self.positions[topic, number] = at
        for topic, number, _, end in entry.slices:
            self.positions[topic, number] = end
        for topic, number, at in entry.moved:
            self.positions[topic, number] = at

    @property
    def complete(self) -> bool:
        """Whether that was the last commit. Where nobody knows it any more, it is the last record."""
        return self._last is not None and self._last.commit == self._commit

    @property
    def last(self) -> Entry:
        """The record of the last commit."""
        if self._last is None or (self._commit is not None and not self.complete):
            raise RecoveryError(
                "the journal does not have the last commit: it was cut or made anew. Give the "
                "pipeline another name to start over"
            )
        return self._last


def _standing(last: Entry, standing: CommitMetadata | None) -> CommitMetadata:
    return standing or CommitMetadata(last.commit, -1, last.events, "s-000000000000", "", -1)
