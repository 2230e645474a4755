"""A log in memory, for one or more processes: every answer of it can be scripted, and nothing waits.

`MemoryBroker` is what the processes share; `MemoryMember` is one process's view of it, and plays all four
roles of a `Log`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from streamforest.io.codec.events import encode
from streamforest.io.kafka.merge import Merge
from streamforest.io.log import (
    Acquisition,
    Commit,
    CommitInDoubt,
    Log,
    LogUnavailable,
    Owned,
    Partition,
    Records,
    Standby,
    Transaction,
)

Fate = Literal["made", "not made"]


@dataclass(frozen=True)
class MemoryRecord:
    """One message."""

    offset: int
    value: bytes
    timestamp: int = 0
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class MemoryBroker:
    """What all processes see: the records, the journal, what was published, the last commit."""

    records: dict[Partition, list[MemoryRecord]] = field(default_factory=dict)
    journal: list[bytes] = field(default_factory=list)
    predictions: list[bytes] = field(default_factory=list)
    dead_letters: list[bytes] = field(default_factory=list)
    metadata: str | None = None
    positions: dict[Partition, int] = field(default_factory=dict)
    owner: MemoryMember | None = None

    def add(
        self,
        events: list[dict[str, Any]],
        partition: Partition = ("events", 0),
        timestamps: Sequence[int] | None = None,
    ) -> None:
        """Append events to a partition."""
        records = self.records.setdefault(partition, [])
        for event, timestamp in zip(events, timestamps or [0] * len(events), strict=True):
            records.append(MemoryRecord(len(records), encode(event), timestamp))

    def take(self, transaction: Transaction) -> None:
        """Make a transaction true."""
        self.journal.append(transaction.journal)
        self.metadata = transaction.metadata(len(self.journal) - 1)
        self.predictions += [message.value or b"" for message in transaction.predictions]
        self.dead_letters += [message.value or b"" for message in transaction.dead_letters]
        self.positions = dict(transaction.positions)


class MemoryMember:
    """One process. Until something else is scripted, it owns the log if nobody else does."""

    numbers_commits = False
    committed_only = True

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.answers: list[Acquisition | Callable[[], Acquisition | None]] = []
        """What the next questions for ownership are answered; what a function gives, unless None."""
        self.fates: list[Fate | Callable[[Transaction], None] | None] = []
        """What becomes of the next commits, each in doubt; None: it is made, and said so."""
        self.unavailable = 0
        """So many readings fail, after one that does not."""
        self.asked = 0
        self.kept_alive = 0
        self.sent: list[int] = []
        self._positions: dict[Partition, int] = {}
        self._merge = Merge({})

    @property
    def log(self) -> Log:
        """This member as a log."""
        return Log(self, self, self, self)

    # ---- membership

    def try_acquire(self) -> Acquisition:
        self.asked += 1
        if self.answers:
            answer = self.answers.pop(0)
            if callable(answer):
                answer = answer()
            if answer is not None:
                return answer
        if self.broker.owner not in (None, self):
            return Standby()
        self.broker.owner = self
        return self.owned()

    def owned(self) -> Owned:
        """What an owner is told."""
        broker = self.broker
        new = {partition: 0 for partition in broker.records if partition not in broker.positions}
        return Owned(Commit(broker.metadata, dict(broker.positions), new))

    def keep_alive(self) -> None:
        self.kept_alive += 1

    def release(self) -> None:
        if self.broker.owner is self:
            self.broker.owner = None

    def trouble(self) -> str | None:
        return None

    # ---- source

    def poll(self, max_records: int, timeout: float) -> Records | None:
        """All that is there, in the order of record times."""
        if self.broker.owner is not self or set(self._positions) != set(self.broker.records):
            return None
        for partition, records in self.broker.records.items():
            position = self._positions[partition]
            self._merge.add(partition, list(records[position:]))
            self._positions[partition] = len(records)
        return self._merge.take(max_records, 0.0, lambda partition: 0.0)

    def seek(self, positions: Mapping[Partition, int], times: Mapping[Partition, int]) -> None:
        self._positions = dict(positions)
        self._merge = Merge({partition: times.get(partition, 0) for partition in positions})

    def reader(self, positions: Mapping[Partition, int]) -> MemoryMember:
        return self

    def take(
        self, partition: Partition, first: int, end: int, max_records: int | None = None
    ) -> list[Any]:
        if self.unavailable:
            self.unavailable -= 1
            raise LogUnavailable("away")
        return list(self.broker.records[partition][first:end][:max_records])

    def close(self) -> None:
        """Nothing is held."""

    def lag(self) -> dict[Partition, int]:
        return {
            p: end - self._positions.get(p, 0) + self._merge.buffered(p)
            for p, end in self.ends().items()
        }

    def unread(self, positions: Mapping[Partition, int]) -> bool:
        return any(end > positions.get(p, 0) for p, end in self.ends().items())

    def ends(self) -> dict[Partition, int]:
        return {partition: len(records) for partition, records in self.broker.records.items()}

    def at_end(self) -> bool:
        return not any(self.lag().values())

    # ---- sink

    def commit(self, transaction: Transaction) -> None:
        self.sent.append(transaction.number)
        if self.broker.owner is not self:
            raise CommitInDoubt("fenced")
        fate = self.fates.pop(0) if self.fates else None
        if fate in (None, "made"):
            self.broker.take(transaction)
        elif callable(fate):
            fate(transaction)
        if fate is not None:
            raise CommitInDoubt("no answer")

    # ---- journal

    def read(
        self, since: int, until: int | None, keep_alive: Callable[[], None] = lambda: None
    ) -> Generator[tuple[int, bytes], None, None]:
        last = len(self.broker.journal) if until is None else until + 1
        yield from ((place, self.broker.journal[place]) for place in range(since + 1, last))

    def tail(self, since: int) -> MemoryTail:
        return MemoryTail(self.broker, since)

    def last_commit(self) -> str | None:
        return self.broker.metadata


class MemoryTail:
    """The journal as it grows."""

    def __init__(self, broker: MemoryBroker, since: int) -> None:
        self._broker, self._next = broker, since + 1

    def poll(self) -> list[tuple[int, bytes]]:
        found = list(enumerate(self._broker.journal))[self._next :]
        self._next += len(found)
        return found

    def at_end(self) -> bool:
        return self._next >= len(self._broker.journal)

    def close(self) -> None:
        """Nothing is held."""
