"""Commits: everything pending becomes true at once, or not at all.

This is the only decision point of a run. What was advanced since the last commit lives in `Pending`;
a commit hands it to the log together with a journal record and the name of the newest durable snapshot.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import msgspec

from streamforest.io.codec.predictions import encode_pack
from streamforest.io.log import Commit, CommitInDoubt, Log, OutputRecord, Partition, Transaction
from streamforest.runtime.checkpoint.journal import CommitMetadata, Entry, read_commit_metadata
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.store import Snapshot, SnapshotFolder
from streamforest.runtime.recovery.revisions import revisions_of

log = logging.getLogger(__name__)

_PACK_BYTES = 500_000


@dataclass
class Pending:
    """What has been advanced and waits for the next commit; `first` numbers its first event."""

    first: int = 0
    predictions: list[OutputRecord] = field(default_factory=list)
    dead_letters: list[OutputRecord] = field(default_factory=list)
    slices: list[tuple[str, int, int, int]] = field(default_factory=list)
    added: list[tuple[str, int, int]] = field(default_factory=list)
    promoted: str = ""
    adopted: str = ""
    origin: str = ""
    moved: list[tuple[str, int, int]] = field(default_factory=list)
    size: int = 0
    timestamps: list[int] = field(default_factory=list)
    """Of the records in it, in milliseconds."""


class Superseded(Exception):
    """The log went on without us: what is in memory is worth nothing; recover from `found`."""

    def __init__(self, found: Commit) -> None:
        super().__init__("another process has committed in the meantime")
        self.found = found


class Lost(Exception):
    """The partitions are another process's now, and nothing of the commit was made."""


def _lose() -> None:
    raise Lost("another process owns the partitions now")


class Committer:
    """Commits of one run, in order."""

    def __init__(self, log: Log, snapshots: SnapshotFolder, pack: bool = False) -> None:
        self.log = log
        self.snapshots = snapshots
        self.pack = pack
        self.standing: CommitMetadata | None = None
        self.named: Snapshot | None = None
        """The newest snapshot known to be durable, whoever wrote it."""
        self.in_doubt = 0
        self.met: dict[Partition, int] = {}
        """Partitions that no commit has named yet, met when the log was asked about one in doubt."""

    @property
    def next_number(self) -> int:
        """The number of the next commit."""
        return 0 if self.standing is None else self.standing.commit + 1

    def commit(self, state: RunState, pending: Pending) -> None:
        """Make everything pending true; `Superseded` if the log is no longer ours.

        1. The journal record: which slices, in which order, since the last commit.
        2. The newest durable snapshot is named, so that recovery begins there.
        3. The log commits predictions, dead letters, journal and positions at once (for Kafka see
           `KafkaLog.commit`, its own five steps; for files `FileLog.commit`).
        4. In doubt, the log is asked. Committed is committed; if the commit before is still the last,
           the very same is sent again; a log that went on without us is followed by recovery. Another
           process may meanwhile have made a commit of the very same number: its place in the journal
           tells it from ours.
        5. Once a commit that names a newer snapshot has been *read back*, older ones go.
        """
        number, named = self.next_number, self._newest()
        rules = state.gate.limits.rules()
        entry = Entry(
            number,
            pending.first,
            state.events,
            pending.slices,
            pending.added,
            rules,
            pending.promoted,
            pending.adopted,
            pending.origin,
            pending.moved,
            revisions_of(state.models),
        )
        standing = CommitMetadata(number, -1, state.events, named.name, named.hash, named.since)

        def metadata(journal: int) -> str:
            nonlocal standing
            standing = msgspec.structs.replace(standing, journal=journal)
            return standing.text()

        transaction = Transaction(
            number,
            packed(pending.predictions) if self.pack else pending.predictions,
            pending.dead_letters,
            msgspec.json.encode(entry),
            dict(state.positions),
            metadata,
        )
        while True:
            try:
                self.log.commit(transaction)
                break
            except CommitInDoubt as doubt:
                log.warning("commit %d in doubt: %s", number, doubt)
                self.in_doubt += 1
                if self._was_made(standing, state):
                    break
        before, self.standing = self.standing, standing
        if before is None or before.snapshot != standing.snapshot:
            self._forget_older(standing)

    def _was_made(self, ours: CommitMetadata, state: RunState) -> bool:
        """What became of a commit in doubt: whether it is the last one, whole as it was sent."""
        found = self.log.attach(_lose)
        told = None if found.metadata is None else read_commit_metadata(found.metadata)
        if told not in (ours, self.standing):
            raise Superseded(found)
        self.met = found.started
        self.log.seek({**found.started, **state.positions})
        return told == ours

    def _newest(self) -> Snapshot:
        written = self.snapshots.written()
        if written is not None and (self.named is None or written.events >= self.named.events):
            self.named = written
        assert self.named is not None, "a run begins with a snapshot"
        return self.named

    def _forget_older(self, standing: CommitMetadata) -> None:
        """Delete what is no longer needed, after reading back that the commit is there."""
        text = self.log.read_back()
        if text is not None and read_commit_metadata(text).commit >= standing.commit:
            self.snapshots.prune(standing.snapshot)


def packed(predictions: list[OutputRecord]) -> list[OutputRecord]:
    """Many predictions in few messages: one a source partition, up to half a megabyte each.

    >>> [m.value for m in packed([OutputRecord(b"1"), OutputRecord(b"2"), OutputRecord(b"3", partition=1)])]
    [b'[1,2]', b'[3]']
    """
    lanes: dict[int, list[list[bytes]]] = {}
    sizes: dict[int, int] = {}
    for message in predictions:
        packs = lanes.setdefault(message.partition, [])
        value = message.value or b""
        size = sizes.get(message.partition, _PACK_BYTES) + len(value)
        if size >= _PACK_BYTES:
            packs.append([])
            size = len(value)
        sizes[message.partition] = size
        packs[-1].append(value)
    return [
        OutputRecord(
            encode_pack(values), None, [("streamforest.pack", str(len(values)).encode())], lane
        )
        for lane, packs in lanes.items()
        for values in packs
    ]
