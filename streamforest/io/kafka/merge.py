"""The order in which records of several partitions are processed: a merge by record time.

The next record is the one with the smallest (time, topic, partition, offset). Its time is the highest record
timestamp in its partition up to and with it: within a partition the offsets decide, whatever the timestamps
say. So the order is a function of the records alone. How they are cut into polls does not change it, nor does
any clock, as long as every partition that has unread records is waited for.

Whether it has any, and how long it is waited for, the caller says. After that time the others go on without
it until it brings records again. What was then done stands in the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from typing import Any

from streamforest.io.log import Partition, Records

MAX_RECORDS = 1_000
"""Records buffered of one partition; it is not read further until half of them are processed."""
_ALL_RECORDS = 64_000  # of all partitions: with many of them, each has less
_FEWEST = 50
MAX_BYTES = 128 << 20
"""Bytes of all buffered records, each partition its share; one poll of a partition always has room."""

WaitFor = Callable[[Partition], float]
"""How many seconds a partition without buffered records is waited for; 0 if it has no unread ones."""


@dataclass(slots=True)
class _Buffer:
    """Records of one partition that were read and are not processed yet."""

    partition: Partition
    time: int
    """The highest timestamp before the first record that it gets when it is empty; 0 if there is none."""
    records: deque[Any] = field(default_factory=deque)
    polls: deque[tuple[int, int]] = field(default_factory=deque)
    """Records and bytes of each poll of which some are left."""
    bytes: int = 0
    """Of all these polls."""
    full: bool = False
    empty_since: float | None = None
    """When it was first found empty although it has unread records."""


class Merge:
    """Buffered records by partition, handed out in order.

    >>> from types import SimpleNamespace as R
    >>> merge = Merge({("events", 0): 0, ("labels", 0): 0})
    >>> first, second, third = (R(offset=i, timestamp=at, key=None, value=b"", headers=[]) for i, at in
    ...                         ((0, 10), (1, 30), (0, 20)))
    >>> merge.add(("events", 0), [first, second])
    >>> merge.add(("labels", 0), [third])
    >>> merge.take(10, now=0.0, wait_for=lambda partition: 0.0).partitions
    [('events', 0), ('labels', 0), ('events', 0)]
    """

    def __init__(
        self,
        times: Mapping[Partition, int],
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`times` has the highest timestamp of each partition before the first record that is added."""
        self._buffers = [_Buffer(partition, time) for partition, time in sorted(times.items())]
        self._rank = {buffer.partition: rank for rank, buffer in enumerate(self._buffers)}
        self._heap: list[tuple[int, int]] = []
        """Time of the first buffered record and rank of its partition, for those that have one."""
        count = max(1, len(self._buffers))
        self._max_records = max(_FEWEST, min(max_records, _ALL_RECORDS // count))
        self._max_bytes = max_bytes // count

    def add(self, partition: Partition, records: list[Any]) -> None:
        """Records that were read."""
        if not records:
            return
        rank = self._rank[partition]
        buffer = self._buffers[rank]
        if not buffer.records:
            heappush(self._heap, (max(buffer.time, records[0].timestamp), rank))
        size = sum(map(size_of, records))
        buffer.records.extend(records)
        buffer.polls.append((len(records), size))
        buffer.bytes += size
        buffer.empty_since = None

    def __len__(self) -> int:
        return sum(len(buffer.records) for buffer in self._buffers)

    def buffered(self, partition: Partition) -> int:
        """How many records of a partition wait; any thread may ask."""
        rank = self._rank.get(partition)
        return 0 if rank is None else len(self._buffers[rank].records)

    def full(self) -> set[Partition]:
        """Partitions that are not to be read further for now."""
        for buffer in self._buffers:
            _free(buffer)
            room = 2 if buffer.full else 1
            buffer.full = (
                len(buffer.records) * room >= self._max_records
                or buffer.bytes * room >= self._max_bytes
            )
        return {buffer.partition for buffer in self._buffers if buffer.full}

    def slow(self, now: float, seconds: float) -> list[Partition]:
        """Partitions with unread records of which none have been buffered for so long."""
        return [
            buffer.partition
            for buffer in self._buffers
            if buffer.empty_since is not None and now - buffer.empty_since >= seconds
        ]

    def take(self, max_records: int, now: float, wait_for: WaitFor) -> Records:
        """The next records, at most so many; none while a partition is waited for."""
        taken = Records()
        if self.waits(now, wait_for):
            return taken
        heap, buffers = self._heap, self._buffers
        partitions, records = taken.partitions, taken.records
        while heap and len(records) < max_records:
            time, rank = heap[0]
            buffer = buffers[rank]
            held = buffer.records
            records.append(held.popleft())
            partitions.append(buffer.partition)
            if held:
                timestamp = held[0].timestamp
                heapreplace(heap, (timestamp if timestamp > time else time, rank))
                continue
            buffer.time = time
            heappop(heap)
            if _waits(buffer, now, wait_for):
                break
        return taken

    def waits(self, now: float, wait_for: WaitFor) -> bool:
        """Whether nothing can be handed out, because a partition is waited for or nothing is there."""
        if not self._heap:
            return True
        waited = [_waits(b, now, wait_for) for b in self._buffers if not b.records]
        return any(waited)  # all of them, since each notes since when


def _free(buffer: _Buffer) -> None:
    """Count the bytes of polls no longer of which every record was handed out."""
    gone = sum(count for count, _ in buffer.polls) - len(buffer.records)
    while buffer.polls and gone >= buffer.polls[0][0]:
        count, size = buffer.polls.popleft()
        gone -= count
        buffer.bytes -= size


def _waits(buffer: _Buffer, now: float, wait_for: WaitFor) -> bool:
    """Whether an empty partition is waited for; notes since when it is."""
    seconds = wait_for(buffer.partition)
    if seconds <= 0:
        buffer.empty_since = None
        return False
    if buffer.empty_since is None:
        buffer.empty_since = now
    return now - buffer.empty_since < seconds


def size_of(record: Any) -> int:
    """Bytes of a record, more or less."""
    size = len(record.value or b"") + len(record.key or b"")
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size
