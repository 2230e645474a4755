"""The input of a pipeline on Kafka: the records of the partitions that are ours, in the order of their times.

With `kafka.order = "time"` the partitions are merged by record time (`merge`). A partition that has unread
records is waited for: without end below the offsets at which the partitions ended when reading began, so that
what was there by then has one order; at most `order_wait_seconds` beyond them. One that is read to its end is
not waited for. Unread are records before the last stable offset: those of open transactions do not count,
and a marker at the end of a transaction is passed by the next poll.

With `kafka.order = "arrival"` records are taken as polls bring them.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Set
from contextlib import closing
from typing import Any

from kafka import TopicPartition
from kafka.errors import (
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from streamforest.errors import UnreadGoneError
from streamforest.io.kafka.compat.fetches import StableOffsets, limit_fetches, position_of
from streamforest.io.kafka.compat.workarounds import unpark
from streamforest.io.kafka.membership import Assignment, KafkaMembership
from streamforest.io.kafka.merge import Merge
from streamforest.io.kafka.reader import KafkaReader, reading
from streamforest.io.log import Partition, Records

log = logging.getLogger(__name__)

_POLL_RECORDS = 1_000  # a poll brings at most so many into the merge
_WAITING_POLL = 0.05  # seconds a poll may take while records are buffered
_REPORT_AFTER, _REPORT_EVERY = (
    10.0,
    60.0,
)  # seconds that a partition is waited for before it is logged


class KafkaSource:
    """The events (and labels) of the partitions that are ours."""

    def __init__(self, membership: KafkaMembership) -> None:
        self.settings = settings = membership.settings
        self.membership = membership
        self._assignment, self._retry = membership.assignment, membership.retry
        self._stalls = StallWatch(membership.assignment, settings.stall_seconds)
        self._merge: Merge | None = None
        """None where there is one partition, or the order is that of arrival."""
        self._ends: dict[Partition, int] | None = None
        """Where the partitions ended when reading began; None until the broker has told it."""
        self._stable: tuple[Any, StableOffsets] | None = None
        self._empty: dict[Partition, tuple[int, int]] = {}
        """Positions after which nothing could be read, and the end of the partition at that time."""
        self._report_at = 0.0

    def seek(self, positions: Mapping[Partition, int], times: Mapping[Partition, int]) -> None:
        """Continue from here, with everything resumed; nothing if it was all taken away meanwhile."""
        assignment = self._assignment
        if not assignment.is_ours():
            return
        assignment.refuse_gone(positions)
        partitions = [tuple(tp) for tp in assignment.partitions]
        merges = self.settings.order == "time" and len(partitions) > 1
        self._merge = Merge({p: times.get(p, 0) for p in partitions}) if merges else None
        self._ends = None
        self._note_stable_offsets()
        self._empty = {}
        self.membership.upstream = None
        if merges:
            limit_fetches(assignment.consumer, 4 * self.settings.fetch_bytes, len(partitions))
        with assignment.while_ours():
            for partition, offset in positions.items():
                assignment.consumer.seek(TopicPartition(*partition), offset)
            assignment.consumer.resume(*assignment.partitions)
        self._stalls.begin()
        self.membership.paused = set()

    def _note_stable_offsets(self) -> None:
        """Watch the fetches of the consumer, which may be another one than at the last `seek`."""
        consumer = self._assignment.consumer
        if self._stable is None or self._stable[0] is not consumer:
            self._stable = consumer, StableOffsets(consumer)

    def poll(self, max_records: int, timeout: float) -> Records | None:
        """The next records; None if partitions were assigned again in the meantime."""
        merge = self._merge
        if merge is None:
            polled = self._poll(max_records, timeout)
            return None if polled is None else _in_order_of_arrival(polled)
        if self._ends is None and self._assignment.is_ours():
            self._ends = self._read_ends()
        return self._poll_merged(merge, max_records, time.monotonic() + timeout)

    def _poll_merged(self, merge: Merge, max_records: int, deadline: float) -> Records | None:
        """Poll until the merge has something to hand out, or it is time."""
        while True:
            now = time.monotonic()
            wait = max(0.0, deadline - now)
            if len(merge):
                waits = merge.waits(now, self._wait_for)
                wait = min(wait, _WAITING_POLL) if waits else 0.0
            polled = self._poll(_POLL_RECORDS, wait)
            if polled is None:
                return None
            for tp, records in polled.items():
                merge.add(tuple(tp), records)
            self._pause({TopicPartition(*partition) for partition in merge.full()})
            taken = merge.take(max_records, time.monotonic(), self._wait_for)
            if not self._assignment.is_ours():
                return None
            if taken:
                return taken
            self._report_wait(merge)
            if time.monotonic() >= deadline:
                return taken

    def _report_wait(self, merge: Merge) -> None:
        """Say, once a minute at most, which partitions hold the others up."""
        now = time.monotonic()
        slow = merge.slow(now, _REPORT_AFTER) if now >= self._report_at else []
        if slow:
            self._report_at = now + _REPORT_EVERY
            names = ", ".join(f"{topic}-{number}" for topic, number in slow)
            log.warning("waiting for %s: unread records there come before all others", names)

    def _poll(self, max_records: int, timeout: float) -> Mapping[Any, list[Any]] | None:
        """One poll of the consumer; None if the partitions are no longer ours."""
        assignment = self._assignment
        if not assignment.is_ours():
            return None
        unpark(assignment.consumer)
        polled: Mapping[Any, list[Any]] = {}
        try:
            polled = assignment.consumer.poll(
                timeout_ms=int(timeout * 1000), max_records=max_records
            )
        except OffsetOutOfRangeError as error:
            raise UnreadGoneError(
                f"events of {_places(error)} are gone from the log before they were read: raise the "
                "topic's retention"
            ) from error
        except LogTruncationError as error:
            raise UnreadGoneError(
                f"the broker has lost events that were read already ({error}), as an unclean leader "
                "election does"
            ) from error
        except NoOffsetForPartitionError:
            pass  # a partition that was just added: its assignment comes with the next poll
        except KafkaError as error:
            self._retry.back_off("poll", error)
        except (KeyError, AssertionError) as error:
            log.info("the assignment has changed: %r", error)
            assignment.detach()
            return None
        assignment.watch()
        if not assignment.is_ours():
            return None
        if polled:
            self._retry.recovered()
        self._retry.heard(assignment.silent_for())
        self._stalls.note(polled, self.membership.paused)
        self._name_hanging()
        return polled

    def _name_hanging(self) -> None:
        """Note for `trouble` which transactions of whoever writes the input hang."""
        hanging = self._stable[1].hanging(self.settings.stall_seconds) if self._stable else {}
        ours = [(tp, at) for tp, at in hanging.items() if tp in set(self._assignment.partitions)]
        if not ours:
            self.membership.upstream = None
            return
        names = ", ".join(f"{tp.topic}-{tp.partition} at offset {at.stable}" for tp, at in ours[:5])
        self.membership.upstream = (
            f"a transaction of a producer of the input is open for over {self.settings.stall_seconds:.0f} s, "
            f"and nothing after it can be read: {names}; its producer must end it, or an administrator "
            "(kafka-transactions find-hanging, then abort)"
        )

    def _pause(self, full: set[TopicPartition]) -> None:
        """Read the partitions whose buffers are full no further, and all others on."""
        paused = self.membership.paused
        if full == paused:
            return
        with self._assignment.while_ours():
            self._assignment.consumer.pause(*(full - paused))
            self._assignment.consumer.resume(*(paused - full))
        self.membership.paused = full

    def _wait_for(self, partition: Partition) -> float:
        """How many seconds to wait for a partition of which nothing is buffered."""
        tp = TopicPartition(*partition)
        position = position_of(self._assignment.consumer, tp)
        if position is None:
            return 0.0
        if self._ends is None or position < self._ends.get(partition, 0):
            return math.inf
        assert self._stable is not None
        return self.settings.order_wait_seconds if position < self._stable[1].get(tp) else 0.0

    def _read_ends(self) -> dict[Partition, int] | None:
        """Where the partitions end now; None if the broker did not say."""
        try:
            return self.ends()
        except KafkaError as error:
            self._retry.back_off("end offsets", error)
        except (AssertionError, KeyError) as error:
            log.info("the assignment has changed: %r", error)
        return None

    def reader(self, positions: Mapping[Partition, int]) -> KafkaReader:
        """A reader of the input from these positions on."""
        return KafkaReader(self.settings.client(), positions)

    def lag(self) -> dict[Partition, int]:
        """Records that could be read at the last fetch and were not handed out yet.

        Those of open transactions cannot, and a marker at the end of a transaction is no record: the
        consumer's position passes it with the next poll.
        """
        assignment, merge, found = self._assignment, self._merge, {}
        for tp in assignment.partitions if assignment.is_ours() else ():
            position = position_of(assignment.consumer, tp)
            end = -1 if self._stable is None else self._stable[1].get(tp)
            if position is not None and end >= 0:
                partition = tuple(tp)
                buffered = 0 if merge is None else merge.buffered(partition)
                found[partition] = max(0, end - position) + buffered
        return found

    def unread(self, positions: Mapping[Partition, int]) -> bool:
        """Whether any record can be read after these positions; a standby asks it.

        Markers of transactions are behind many a last record. Where the offsets say that there is more, it
        is looked at, once until a partition ends elsewhere.
        """
        consumer = self._assignment.consumer
        if consumer is None:
            return False
        with reading():
            ends = consumer.end_offsets([TopicPartition(*p) for p in positions], timeout_ms=5_000)
        more = {
            partition: (position, end)
            for partition, position in positions.items()
            if (end := ends[TopicPartition(*partition)]) > position
        }
        if all(self._empty.get(partition) == places for partition, places in more.items()):
            return False
        with closing(self.reader({p: positions[p] for p in more})) as reader:
            if reader.has_any({TopicPartition(*p): end for p, (_, end) in more.items()}):
                return True
        self._empty = more
        return False

    def ends(self) -> dict[Partition, int]:
        """Where all partitions end now."""
        found = self._assignment.consumer.end_offsets(self._assignment.partitions)
        return {tuple(tp): offset for tp, offset in found.items()}

    def at_end(self) -> bool:
        """Whether every partition has been read to where it ends now."""
        assignment = self._assignment
        if not assignment.is_ours() or (self._merge is not None and len(self._merge)):
            return False
        try:
            ends = assignment.consumer.end_offsets(assignment.partitions)
            return all(assignment.consumer.position(tp) >= end for tp, end in ends.items())
        except (KafkaError, AssertionError, KeyError):
            return False


def _places(error: OffsetOutOfRangeError) -> str:
    """The partitions and offsets that an error of kafka-python names."""
    offsets = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    named = [f"{tp.topic}-{tp.partition} from offset {at} on" for tp, at in offsets.items()]
    return ", ".join(named) or str(error)


def _in_order_of_arrival(polled: Mapping[Any, list[Any]]) -> Records:
    """What one poll brought, partition by partition."""
    taken = Records()
    for tp, records in polled.items():
        taken.partitions.extend([(tp.topic, tp.partition)] * len(records))
        taken.records.extend(records)
    return taken


class StallWatch:
    """The position of each partition, and since when it has been there."""

    def __init__(self, assignment: Assignment, stall_seconds: float) -> None:
        self._assignment = assignment
        self._stall_seconds = stall_seconds
        self._at: dict[TopicPartition, tuple[int, float]] = {}

    def begin(self) -> None:
        """Nothing has been read yet."""
        self._at.clear()

    def note(self, polled: Mapping[Any, Any], held: Set[TopicPartition]) -> None:
        """Look at what a poll has brought. A partition that has records but has brought none for a
        long time is fetched again; those that are `held` back are not meant to bring any.

        The broker itself is asked where it ends: a fetch that was lost tells nothing.
        """
        consumer = self._assignment.consumer
        now = time.monotonic()
        quiet = []
        for tp in held & self._at.keys():
            self._at[tp] = self._at[tp][0], now  # its time begins when it is read on
        for tp in (consumer.assignment() & set(self._assignment.partitions)) - held:
            position, since = self._at.get(tp, (-1, now))
            if tp in polled:
                self._at[tp] = (polled[tp][-1].offset + 1, now)
                continue
            self._at[tp] = (position, since)
            if now - since > self._stall_seconds:
                quiet.append(tp)
        for tp, end in self._ends(quiet).items():
            with self._assignment.while_ours():
                position = consumer.position(tp)
                self._at[tp] = (position, now)
                if position >= end:
                    continue
                log.warning("%s-%d stalled at offset %d of %d; fetching again", *tp, position, end)
                consumer.seek(tp, position)
                consumer.resume(tp)

    def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions end now; nothing if the broker does not tell."""
        if not partitions:
            return {}
        try:
            found: dict[TopicPartition, int] = self._assignment.consumer.end_offsets(partitions)
        except (KafkaError, AssertionError, KeyError) as error:
            log.info("the ends of the partitions could not be asked for: %r", error)
            return {}
        return found
