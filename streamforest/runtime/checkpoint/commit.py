"""Commits: everything pending becomes true at once, or not at all.

This is the only decision point of a run. A `RunContext` says where the run is: its state, what was advanced
since the last commit (`Pending`), the commit that was sent and may be in doubt (`Attempt`), and the last
commit. A `Committer` sends what is pending to the log, together with a journal record and the name of the
newest durable snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from streamforest.errors import BrokerError
from streamforest.io.codec.events import pack_predictions
from streamforest.io.log import CommitInDoubt, Log, OutputRecord, Partition, Transaction
from streamforest.runtime.checkpoint.journal import (
    CommitMetadata,
    Entry,
    Interleaving,
    read_commit_metadata,
    revisions_of,
)
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.store import Snapshot, SnapshotFolder
from streamforest.runtime.operate.requests import Announcement

log = logging.getLogger(__name__)

_PACK_BYTES = 500_000


@dataclass
class Pending:
    """What was advanced and waits for the next commit; `first` is the number of its first event."""

    first: int = 0
    predictions: list[OutputRecord] = field(default_factory=list)
    dead_letters: list[OutputRecord] = field(default_factory=list)
    order: Interleaving = field(default_factory=Interleaving)
    added: list[tuple[str, int, int]] = field(default_factory=list)
    promoted: str = ""
    announced: list[Announcement] = field(default_factory=list)
    adopted: str = ""
    origin: str = ""
    moved: list[tuple[str, int, int]] = field(default_factory=list)
    size: int = 0
    timestamps: list[int] = field(default_factory=list)
    """Of its records, in milliseconds."""


@dataclass
class Attempt:
    """A commit that is being made: until the log says what became of it, it is in doubt."""

    pending: Pending
    transaction: Transaction
    metadata: CommitMetadata
    """What the commit says of itself, as it was last sent."""

    def metadata_at(self, place: int) -> str:
        """The metadata as text, now that the place of the journal record is known."""
        self.metadata = msgspec.structs.replace(self.metadata, journal=place)
        return self.metadata.text()


class RunContext:
    """Where a run is. Only the methods here say which state, pending and last commit count; whoever
    processes events fills the state and the pending that are there.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._pending = Pending()
        self._attempt: Attempt | None = None
        self._last_commit: CommitMetadata | None = None
        self._snapshot: Snapshot | None = None

    @property
    def state(self) -> RunState:
        """What the run has become, including what is pending."""
        return self._state

    @property
    def pending(self) -> Pending:
        """What no commit has been made of yet."""
        return self._pending

    @property
    def attempt(self) -> Attempt | None:
        """The commit that was sent and may not have been made."""
        return self._attempt

    @property
    def last_commit(self) -> CommitMetadata | None:
        """The last commit of the log, if this process owns it and has read it."""
        return self._last_commit

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot known to be durable, whichever process wrote it."""
        return self._snapshot

    @property
    def next_commit(self) -> int:
        """The number of the next commit."""
        return 0 if self._last_commit is None else self._last_commit.commit + 1

    def begin(self, partitions: Mapping[Partition, int]) -> None:
        """Before the first commit of all: it says where the partitions begin."""
        self._state.positions = {}
        self._pending = Pending()
        self.add_partitions(partitions)

    def add_partitions(self, partitions: Mapping[Partition, int]) -> None:
        """Read these partitions too, unless they are read already; the next commit says so."""
        for (topic, number), offset in sorted(partitions.items()):
            if (topic, number) not in self._state.positions:
                self._state.positions[topic, number] = offset
                self._pending.added.append((topic, number, offset))

    def uncommitted_partitions(self) -> set[Partition]:
        """Partitions that were added, and that no commit is known to have named."""
        attempted = [] if self._attempt is None else self._attempt.pending.added
        return {(topic, number) for topic, number, _ in [*self._pending.added, *attempted]}

    def send(self, attempt: Attempt) -> None:
        """The attempt takes what is pending; from here on, events are pending for the commit after it."""
        self._attempt, self._pending = attempt, Pending(self._state.events)

    def committed(self) -> None:
        """The attempt was made."""
        assert self._attempt is not None
        self._last_commit, self._attempt = self._attempt.metadata, None

    def name_snapshot(self, snapshot: Snapshot) -> None:
        """The next commits name this one."""
        self._snapshot = snapshot

    def demote(self) -> tuple[RunState, CommitMetadata] | None:
        """Another process has the log: drop what is pending and the attempt. The state and its commit,
        if the state is exactly that of the last commit.
        """
        last, attempt, pending = self._last_commit, self._attempt, self._pending
        self._last_commit, self._attempt, self._pending = None, None, Pending()
        events = self._state.events
        if last is None or attempt is not None or not pending.first == last.events == events:
            return None
        return self._state, last

    def follow(self, state: RunState) -> None:
        """The state of a standby, which is not its own to commit."""
        self._state = state

    def rebuilt(self, state: RunState, last_commit: CommitMetadata, snapshot: Snapshot) -> None:
        """Continue after a commit, from a state that was rebuilt from a snapshot."""
        self._state, self._last_commit, self._snapshot = state, last_commit, snapshot
        self._attempt, self._pending = None, Pending(state.events)

    def adopt(self, state: RunState, last_commit: CommitMetadata, pending: Pending) -> None:
        """Continue after a commit, from a state that an operator chose; `pending` says so."""
        self._state, self._last_commit, self._pending = state, last_commit, pending


class Committer:
    """Sends the commits of one run, in order."""

    def __init__(
        self, log: Log, snapshots: SnapshotFolder, context: RunContext, pack: bool = False
    ) -> None:
        self._log = log
        self._snapshots = snapshots
        self._context = context
        self._pack = pack
        self._doubted: int | None = None
        """The commit that was in doubt last."""

    def prepare(self) -> Attempt:
        """Make an attempt of what is pending.

        1. The journal record: which slices, in which order, since the last commit.
        2. The newest durable snapshot is named, so that recovery begins there.
        """
        context = self._context
        state, pending = context.state, context.pending
        number, named = context.next_commit, self._newest_snapshot()
        order = pending.order.order()
        entry = Entry(
            number,
            pending.first,
            state.events,
            pending.order.slices(),
            pending.added,
            state.gate.limits.rules,
            pending.promoted,
            pending.adopted,
            pending.origin,
            pending.moved,
            revisions_of(state.models),
            order,
            3 if pending.announced else 2 if order else 1,
            pending.announced,
        )
        transaction = Transaction(
            number,
            packed(pending.predictions) if self._pack else pending.predictions,
            pending.dead_letters,
            msgspec.json.encode(entry),
            dict(state.positions),
            lambda place: attempt.metadata_at(place),
        )
        metadata = CommitMetadata(number, -1, state.events, named.name, named.hash, named.since)
        attempt = Attempt(pending, transaction, metadata)
        context.send(attempt)
        return attempt

    def send(self) -> bool:
        """Send the attempt; False if it is in doubt.

        3. The log commits predictions, dead letters, journal and positions at once (for Kafka see
           `KafkaSink.commit`, its own five steps; for files `RunFolder.commit`).
        4. In doubt, the log has to be acquired again (`Ownership`), which says what was committed last.
           If that is this attempt, it was made; if it is the commit before, the very same is sent again;
           if the log went on without us, the attempt is dropped. Another process may meanwhile have made
           a commit of the same number: its place in the journal tells it from ours.
        """
        attempt = self._context.attempt
        assert attempt is not None
        try:
            self._log.sink.commit(attempt.transaction)
        except CommitInDoubt as doubt:
            number, again = attempt.transaction.number, self._doubted
            self._doubted = number
            level = logging.DEBUG if number == again else logging.WARNING  # once for a commit
            log.log(level, "commit %d in doubt: %s", number, doubt)
            return False
        self._context.committed()
        return True

    def forget_older(self, attempt: Attempt) -> None:
        """Delete snapshots that are no longer needed.

        5. Older ones go only once the log itself says that a commit names a newer one.
        """
        try:
            text = self._log.journal.last_commit()
        except BrokerError as error:
            log.info("the last commit could not be read back: %s", error)
            return
        if text is not None and read_commit_metadata(text).commit >= attempt.metadata.commit:
            self._snapshots.prune(attempt.metadata.snapshot)

    def _newest_snapshot(self) -> Snapshot:
        written, named = self._snapshots.written, self._context.snapshot
        if written is not None and (named is None or written.events >= named.events):
            self._context.name_snapshot(written)
            return written
        assert named is not None, "a run begins with a snapshot"
        return named


def packed(predictions: list[OutputRecord]) -> list[OutputRecord]:
    """Many predictions in few messages: one a source partition, up to half a megabyte each.

    >>> [m.value for m in packed([OutputRecord(b"1"), OutputRecord(b"2"), OutputRecord(b"3", partition=1)])]
    [b'[1,2]', b'[3]']
    """
    by_partition: dict[int, list[list[bytes]]] = {}
    sizes: dict[int, int] = {}
    for message in predictions:
        packs = by_partition.setdefault(message.partition, [])
        value = message.value or b""
        size = sizes.get(message.partition, _PACK_BYTES) + len(value)
        if size >= _PACK_BYTES:
            packs.append([])
            size = len(value)
        sizes[message.partition] = size
        packs[-1].append(value)
    return [
        OutputRecord(
            pack_predictions(values),
            None,
            [("streamforest.pack", str(len(values)).encode())],
            partition,
        )
        for partition, packs in by_partition.items()
        for values in packs
    ]
