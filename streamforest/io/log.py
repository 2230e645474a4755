"""The log of a pipeline, by role: where events come from and where everything about them goes.

    source      hands out records, in the order in which they are to be processed
    sink        makes predictions, dead letters, a journal record and positions true in one commit
    journal     tells what was committed, in order, and what the last commit said
    membership  says whether this process owns the log, or another does

`Log` bundles one of each. Kafka is one such log, a recorded file with its run folder another, and the tests
have one in memory. How bytes become events is no business of the log: a run gets a decode function.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from streamforest.errors import BrokerError, StreamForestError

Partition = tuple[str, int]
"""Topic and number."""
Headers = list[tuple[str, bytes]]


class Record(Protocol):
    """One message of the input (kafka-python's own record is one)."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Records:
    """Records in the order in which they are processed; `partitions[i]` is that of `records[i]`.

    Two lists of one length: partitions may alternate with every record, and this costs no more then.
    """

    partitions: list[Partition] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, partition: Partition, records: list[Any]) -> Records:
        """Records of one partition."""
        return cls([partition] * len(records), records)

    def __len__(self) -> int:
        return len(self.records)

    def last(self) -> dict[Partition, Any]:
        """The last record of each partition."""
        return dict(zip(self.partitions, self.records, strict=True))


class OutputRecord(NamedTuple):
    """One message to publish; `partition` is taken modulo the number of partitions of its topic."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = []  # noqa: RUF012 - never changed
    partition: int = 0

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        carried = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.value or b"") + len(self.key or b"") + carried


@dataclass
class Transaction:
    """Everything that one commit makes true at once."""

    number: int
    predictions: list[OutputRecord]
    dead_letters: list[OutputRecord]
    journal: bytes
    positions: Mapping[Partition, int]
    metadata: Callable[[int], str]
    """From the place of its journal record to the text that is committed with the offsets."""


@dataclass(frozen=True)
class Commit:
    """What the last commit said; `metadata` is None before the first one."""

    metadata: str | None
    positions: dict[Partition, int]
    new_partitions: dict[Partition, int] = field(default_factory=dict)
    """Partitions that no commit has named yet, and the offset at which reading each begins."""


# ---- what `Membership.try_acquire` answers


@dataclass(frozen=True)
class Owned:
    """This process is the only owner, and this is the last commit."""

    commit: Commit


@dataclass(frozen=True)
class Joining:
    """Nobody knows yet: ask again."""


@dataclass(frozen=True)
class Standby:
    """Another process is the owner."""


@dataclass(frozen=True)
class Released:
    """The log was given to another process, and this one is not meant to wait for it."""

    reason: str


Acquisition = Owned | Joining | Standby | Released


# ---- the three exceptions that steer recovery


class CommitInDoubt(StreamForestError):
    """The outcome of a commit is unknown: the next acquisition tells what was committed last."""


class LogUnavailable(BrokerError):
    """Records that were read before cannot be read again now: acquire, and start recovery again."""


class Stopped(StreamForestError):
    """A stop was requested while waiting: what was not committed is done again by the next run."""


# ---- roles


class Reader(Protocol):
    """Reads records again that were read before."""

    def take(
        self, partition: Partition, first: int, end: int, max_records: int | None = None
    ) -> list[Any]:
        """The records from offset `first` to before `end`, or the first `max_records` of them;
        RecoveryError if they are gone.
        """

    def close(self) -> None:
        """Release its resources."""


class Tail(Protocol):
    """Reads the journal as it grows."""

    def poll(self) -> list[tuple[int, bytes]]:
        """What was committed since the last call, with its place."""

    def at_end(self) -> bool:
        """Whether everything that was committed before this call has been polled."""

    def close(self) -> None:
        """Release its resources."""


class Source(Protocol):
    """Hands out the records of the input."""

    def poll(self, max_records: int, timeout: float) -> Records | None:
        """The next records; None if this process is no longer the owner, and has to acquire again."""

    def seek(self, positions: Mapping[Partition, int], times: Mapping[Partition, int]) -> None:
        """Continue from these positions. `times` has the highest record timestamp before each, where
        there was one: the order of what follows depends on it.
        """

    def reader(self, positions: Mapping[Partition, int]) -> Reader:
        """A reader of the input from these positions on."""

    def lag(self) -> dict[Partition, int]:
        """Records not yet polled, as far as is known."""

    def unread(self, positions: Mapping[Partition, int]) -> bool:
        """Whether there are records after these positions. Whoever does not own the log may ask, too;
        LogUnavailable if it does not answer.
        """

    def ends(self) -> dict[Partition, int]:
        """The offset after the last record of each partition."""

    def at_end(self) -> bool:
        """Whether everything there is has been polled."""


class Sink(Protocol):
    """Takes what became of the records."""

    numbers_commits: bool
    """Whether predictions carry the number of the commit that made them true."""

    def commit(self, transaction: Transaction) -> None:
        """Make it true, all or nothing; CommitInDoubt if the outcome is unknown."""


class Journal(Protocol):
    """Tells what was committed."""

    committed_only: bool
    """Whether every record in it belongs to a commit that was made."""

    def read(
        self, since: int, until: int | None, keep_alive: Callable[[], None] = lambda: None
    ) -> Generator[tuple[int, bytes], None, None]:
        """Records after place `since`, up to and including `until`, or all there are now. A wait for
        the log calls `keep_alive`.
        """

    def tail(self, since: int) -> Tail | None:
        """The records after place `since`, as they are written; None where no second process can be."""

    def last_commit(self) -> str | None:
        """The metadata of the last commit, whichever process made it; None before the first."""


class Membership(Protocol):
    """Says who owns the log. All of it but `trouble` is called from one thread."""

    def try_acquire(self) -> Acquisition:
        """Try to become the only owner; waits a moment at most."""

    def keep_alive(self) -> None:
        """Keep the ownership while the loop is busy with something else."""

    def release(self) -> None:
        """Give the ownership up and close everything."""

    def trouble(self) -> str | None:
        """What keeps the log from working now; may be asked at any time, from any thread."""


@dataclass
class Log:
    """One log: its four roles."""

    source: Source
    sink: Sink
    journal: Journal
    membership: Membership

    def close(self) -> None:
        """Leave cleanly."""
        self.membership.release()
