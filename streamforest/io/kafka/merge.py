"""Several partitions read side by side, by the time of their records.

A consumer that catches up gets a day of events from one partition before the first label of another:
everything in between would have to wait in a store. So records are handed on in the order of their
timestamps, in runs: the partition whose next record is the oldest goes on until it is a little ahead of
the next one. A partition that is known to have more but has brought nothing yet is waited for, a bounded
time; after that the others go on without it until it brings something again. One whose next record lies far
ahead of all others (the year 9999) is not held up for ever either: now and then one record of it goes first.
Nothing here decides what is right: the order becomes true by being journalled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from streamforest.io.log import Partition, RecordSlice

SLACK_MS = 100
"""A run may be ahead by this much: runs stay long, and so does not the journal."""
_PASSED = 5.0  # seconds
HELD = 2_000
"""Records of one partition in hand; it is not read further until there are fewer."""
HELD_BYTES = 128 << 20
"""What all of them may take, each partition its share; one message always has room."""
_MESSAGE = 1 << 20


class Alignment:
    """Records in hand, by partition.

    >>> from types import SimpleNamespace as R
    >>> aligned = Alignment(patience=1.0, slack_ms=0)
    >>> first, second, third = (R(offset=i, timestamp=at, key=None, value=b"") for i, at in
    ...                         ((0, 10), (1, 30), (0, 20)))
    >>> aligned.add(("events", 0), [first, second])
    >>> aligned.add(("labels", 0), [third])
    >>> [s[:3] for s in aligned.take(10, now=0.0, behind=lambda empty: [])]
    [(('events', 0), 0, 1), (('labels', 0), 0, 1), (('events', 0), 1, 2)]
    """

    def __init__(
        self,
        patience: float,
        slack_ms: int = SLACK_MS,
        held: int = HELD,
        held_bytes: int = HELD_BYTES,
    ) -> None:
        self._patience = patience
        self._slack = slack_ms
        self._most = held
        self._most_bytes = held_bytes
        self._held: dict[Partition, deque[Any]] = {}
        self._bytes: dict[Partition, int] = {}
        self._since: dict[Partition, float] = {}
        self._passed: dict[Partition, float] = {}

    def begin(self, partitions: Collection[Partition]) -> None:
        """Forget everything in hand: these are read from elsewhere now."""
        self._held = {partition: deque() for partition in sorted(partitions)}
        self._bytes = dict.fromkeys(self._held, 0)
        self._since, self._passed = {}, {}

    def add(self, partition: Partition, records: list[Any]) -> None:
        """Records that were read."""
        self._held.setdefault(partition, deque()).extend(records)
        self._bytes[partition] = self._bytes.get(partition, 0) + sum(map(size_of, records))
        self._since.pop(partition, None)

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def full(self) -> set[Partition]:
        """Partitions of which enough is in hand."""
        share = max(_MESSAGE, self._most_bytes // max(1, len(self._held)))
        return {
            p
            for p, held in self._held.items()
            if len(held) >= self._most or self._bytes[p] >= share
        }

    def take(
        self,
        most: int,
        now: float,
        behind: Callable[[list[Partition]], Collection[Partition]],
    ) -> list[RecordSlice]:
        """The next records, at most so many; nothing while a partition is worth waiting for.

        `behind` tells which of some partitions without records in hand have more to bring.
        """
        if self._waits(now, behind):
            return []
        taken: list[RecordSlice] = []
        while most > 0:
            heads = sorted((h[0].timestamp, p) for p, h in self._held.items() if h)
            if not heads:
                break
            partition = self._next(heads, now)
            others = [at for at, other in heads if other != partition]
            until = min(others) + self._slack if others else None
            run = self._run(self._held[partition], until, most)
            most -= len(run)
            self._bytes[partition] -= sum(map(size_of, run))
            taken.append(RecordSlice(partition, run[0].offset, run[-1].offset + 1, run))
            if not self._held[partition] and self._waits(now, behind):
                break  # it may have brought only a part of what there is
        return taken

    def _next(self, heads: list[tuple[int, Partition]], now: float) -> Partition:
        """The partition with the oldest record, or one that was passed over for very long."""
        for _, partition in heads[1:]:
            if now - self._passed.setdefault(partition, now) > max(_PASSED, self._patience):
                self._passed[partition] = now
                return partition
        self._passed.pop(heads[0][1], None)
        return heads[0][1]

    @staticmethod
    def _run(held: deque[Any], until: int | None, most: int) -> list[Any]:
        run = [held.popleft()]
        while held and len(run) < most and (until is None or held[0].timestamp <= until):
            run.append(held.popleft())
        return run

    def _waits(
        self, now: float, behind: Callable[[list[Partition]], Collection[Partition]]
    ) -> bool:
        empty = [p for p, held in self._held.items() if not held]
        if not empty or not len(self):
            return False
        missing = set(behind(empty))
        for partition in empty:
            if partition in missing:
                self._since.setdefault(partition, now)
            else:
                self._since.pop(partition, None)
        return any(now - self._since[p] < self._patience for p in missing)


def size_of(record: Any) -> int:
    """Bytes of a record, more or less."""
    return len(record.value or b"") + len(record.key or b"")
