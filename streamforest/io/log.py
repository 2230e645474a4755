"""What passes between a log of events and the loop, whatever the log is made of.

A `Log` hands out records in slices of one partition, takes back what became of them in one
atomic commit, and tells after a crash what the last commit said. Kafka is one; a recorded file with
its files beside it is the other. The loop knows only this page.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from streamforest.errors import BrokerError, StreamForestError
from streamforest.io.codec.events import Event

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


class RecordSlice(NamedTuple):
    """Consecutive records of one partition; `end` is the offset to go on at."""

    partition: Partition
    first: int
    end: int
    records: list[Any]


class OutputRecord(NamedTuple):
    """One message to publish; `partition` picks the partition, modulo how many there are."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = []  # noqa: RUF012 - never changed
    partition: int = 0

    @property
    def size(self) -> int:
        """Its bytes, more or less."""
        carried = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.value or b"") + len(self.key or b"") + carried


@dataclass
class Transaction:
    """All that one commit makes true at once."""

    number: int
    predictions: list[OutputRecord]
    dead_letters: list[OutputRecord]
    journal: bytes
    positions: Mapping[Partition, int]
    metadata: Callable[[int], str]
    """From where in the journal its record stands to the text that is committed with the offsets."""


@dataclass(frozen=True)
class Commit:
    """What the last commit said; `metadata` is None where there was none."""

    metadata: str | None
    positions: dict[Partition, int]
    started: dict[Partition, int] = field(default_factory=dict)
    """Partitions that no commit has named yet, and where reading them begins."""


class CommitInDoubt(StreamForestError):
    """A commit whose outcome is not known: `attach` tells the truth."""


class LogUnavailable(BrokerError):
    """What was read before cannot be read again just now: `attach`, and begin recovery anew."""


class Reassigned(StreamForestError):
    """The partitions were given out anew: `attach` again before anything else."""


class Stopped(StreamForestError):
    """Asked to stop while waiting: nothing is lost, what was not committed is done again."""


class Reader(Protocol):
    """Reads once more what was read before."""

    def take(self, partition: Partition, first: int, end: int) -> list[Any]:
        """The records of a stretch; RecoveryError if they are gone."""

    def close(self) -> None:
        """Let go of what it holds."""


class Tail(Protocol):
    """Reads the journal as it grows."""

    def poll(self) -> list[tuple[int, bytes]]:
        """What was committed since the last call, with its place."""

    def close(self) -> None:
        """Let go of what it holds."""


class Log(Protocol):
    """Where events come from and where everything about them goes."""

    exactly_once: bool
    """Whether what stands in the journal is committed."""
    numbers_commits: bool
    """Whether predictions carry the number of the commit that made them true."""

    def attach(self, meanwhile: Callable[[], None] = lambda: None) -> Commit:
        """Become the only owner and read the last commit. While another process is the owner,
        `meanwhile` is called again and again.
        """

    def seek(self, positions: Mapping[Partition, int]) -> None:
        """Go on from here."""

    def poll(self, most: int, timeout: float) -> list[RecordSlice]:
        """The next records, at most `most`; Reassigned if ownership changed."""

    def decode(self, record: Any) -> Event:
        """The event of a record; EventError if it holds none."""

    def commit(self, transaction: Transaction) -> None:
        """Make it true, all or nothing; CommitInDoubt if nobody knows."""

    def read_back(self) -> str | None:
        """What the last commit says, asked of the log itself."""

    def journal(self, since: int, until: int) -> Generator[tuple[int, bytes], None, None]:
        """Journal records after position `since`, up to and with `until`."""

    def standing(self) -> str | None:
        """What the last commit says, also while another process is the owner."""

    def tail(self, since: int) -> Tail | None:
        """The journal after position `since`, as it grows; None where no second process can be."""

    def reader(self, positions: Mapping[Partition, int]) -> Reader:
        """A reader of the input from these positions on."""

    def idle(self) -> None:
        """A sign of life while the loop is busy with something else."""

    def trouble(self) -> str | None:
        """What keeps it from working right now; asked at any time, from any thread."""

    def lag(self) -> dict[Partition, int]:
        """Records not yet polled, as far as is known."""

    def at_end(self) -> bool:
        """Whether everything there is has been polled."""

    def close(self) -> None:
        """Leave cleanly."""
