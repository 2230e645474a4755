"""Reads again what was read before: the journal, and the events it lists.

Its consumers have no group: they own nothing and commit nothing.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import (
    AuthorizationError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)

from streamforest.errors import BrokerError, RecordsGoneError, RecoveryError
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.clients import connect, persist
from streamforest.io.kafka.compat.records import use_quick_records
from streamforest.io.kafka.compat.workarounds import committed_now, create_client, unpark
from streamforest.io.kafka.merge import size_of
from streamforest.io.kafka.settings import KafkaSettings
from streamforest.io.log import LogUnavailable, Partition

if TYPE_CHECKING:  # its module imports this one
    from streamforest.io.kafka.membership import Assignment

_WAIT_SECONDS = 60.0  # for a record that must be in the log
_MAX_BUFFERED = 20_000  # records buffered of one partition while another is read
_MAX_BUFFERED_BYTES = 128 << 20  # of all partitions, each its share


@contextmanager
def reading() -> Iterator[None]:
    """Turns the client's errors into ours: what may not be read, and what cannot be read just now."""
    try:
        yield
    except TopicAuthorizationFailedError as error:
        raise BrokerError(f"no permission to read the log again: {error}") from error
    except KafkaError as error:
        raise LogUnavailable(
            f"the log cannot be read again now ({type(error).__name__}: {error})"
        ) from error


def _consumer(client: Mapping[str, Any]) -> Any:
    with reading():
        consumer = create_client(
            KafkaConsumer,
            **client,
            group_id=None,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
        )
    use_quick_records(consumer)
    return consumer


def end_offsets(consumer: Any, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The end offsets of partitions; LogUnavailable if the broker does not answer."""
    with reading():
        ends: dict[TopicPartition, int] = consumer.end_offsets(partitions)
    return ends


def position_in(consumer: Any, partition: TopicPartition) -> int:
    """The next offset to read; LogUnavailable if the broker has to be asked and does not answer."""
    with reading():
        return int(consumer.position(partition))


class JournalTail:
    """Committed records of the journal after offset `since`, as it grows."""

    def __init__(
        self, client: Mapping[str, Any], topic: str, since: int, partition: int = 0
    ) -> None:
        self._tp = tp = TopicPartition(topic, partition)
        self._consumer = _consumer(client)
        self._consumer.assign([tp])
        try:
            with reading():
                first = self._consumer.beginning_offsets([tp])[tp]
        except BrokerError:
            self.close()
            raise
        if first > since + 1 and since >= 0:
            self.close()
            raise RecordsGoneError(
                f"the journal {topic!r} begins at {first}, but the newest usable snapshot needs it "
                f"from {since + 1} on: give the topic retention.ms=-1"
            )
        self._consumer.seek(tp, max(since + 1, first))

    def poll(self, timeout_ms: int = 0) -> list[tuple[int, bytes]]:
        """The records committed since the last call, with their offsets."""
        try:
            batch = _poll(self._consumer, timeout_ms).get(self._tp, [])
        except OffsetOutOfRangeError as error:
            raise RecordsGoneError(
                f"the journal {self._tp.topic!r} has no records where they were read before "
                f"({error}); it was truncated or recreated"
            ) from error
        return [(record.offset, record.value) for record in batch]

    def end(self) -> int:
        """The offset at which the journal ends now."""
        return end_offsets(self._consumer, [self._tp])[self._tp]

    def at_end(self) -> bool:
        """Whether everything that was committed before this call has been polled."""
        return self.end() <= position_in(self._consumer, self._tp)

    def records(self, idle: Callable[[], None]) -> Iterator[tuple[int, bytes]]:
        """All records up to the end as of now; `idle` is called after each poll."""
        end = self.end()
        while position_in(self._consumer, self._tp) < end:
            yield from self.poll(500)
            idle()

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close(autocommit=False)


def read_journal(
    client: Mapping[str, Any], topic: str, since: int, until: int, partition: int = 0
) -> Generator[tuple[int, bytes], None, None]:
    """Committed records of the journal after offset `since`, up to and including `until`."""
    if until <= since:
        return
    tail = JournalTail(client, topic, since, partition)
    try:
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            batch = tail.poll(500)
            for offset, value in batch:
                if offset > until:
                    return
                yield offset, value
                if offset == until:
                    return
            if batch:
                deadline = time.monotonic() + _WAIT_SECONDS
            elif time.monotonic() > deadline:
                tail.end()  # LogUnavailable if the broker is away
                raise RecordsGoneError(
                    f"the journal {topic!r} has no record at {until}, which a "
                    "commit names; it was truncated or recreated"
                )
    finally:
        tail.close()


def _poll(consumer: Any, timeout_ms: int = 500) -> Any:
    unpark(consumer)
    try:
        with reading():
            return consumer.poll(timeout_ms=timeout_ms, max_records=2_000)
    except LogUnavailable as error:
        cause = error.__cause__
        if isinstance(cause, OffsetOutOfRangeError):
            raise cause from None
        if not getattr(cause, "retriable", False):
            raise
        time.sleep(0.2)
        return {}


class KafkaReader:
    """Records of several partitions in the journal's order, each partition read forward once."""

    def __init__(self, client: Mapping[str, Any], positions: Mapping[Partition, int]) -> None:
        self._consumer = _consumer(client)
        self._buffers: dict[TopicPartition, deque[Any]] = {}
        self._bytes: Counter[TopicPartition] = Counter()
        self._positions = {
            TopicPartition(*partition): offset for partition, offset in positions.items()
        }
        self._consumer.assign(list(self._positions))
        for tp, offset in self._positions.items():
            self._buffers[tp] = deque()
            self._consumer.seek(tp, offset)

    def take(
        self, partition: Partition, first: int, end: int, max_records: int | None = None
    ) -> list[Any]:
        """The records from `first` to before `end`, or the first `max_records` of them."""
        tp = TopicPartition(*partition)
        if tp not in self._buffers:
            self._add(tp, first)
        buffer = self._buffers[tp]
        deadline = time.monotonic() + _WAIT_SECONDS
        while not self._skip_to(tp, first) or not _holds(buffer, end, max_records):
            if self._fill(tp):
                deadline = time.monotonic() + _WAIT_SECONDS
            elif time.monotonic() > deadline:
                end_offsets(self._consumer, [tp])  # LogUnavailable if the broker is away
                raise RecordsGoneError(_gone(partition, first))
        if max_records is None and buffer[0].offset != first:
            raise RecordsGoneError(_gone(partition, first))
        taken: list[Any] = []
        while buffer and buffer[0].offset < end and len(taken) != max_records:
            taken.append(buffer.popleft())
        self._note_taken(tp, taken)
        return taken

    def _note_taken(self, tp: TopicPartition, taken: list[Any]) -> None:
        self._bytes[tp] -= sum(map(size_of, taken))

    def _skip_to(self, tp: TopicPartition, first: int) -> bool:
        """Drop records before an offset; whether there are any after it."""
        buffer = self._buffers[tp]
        while buffer and buffer[0].offset < first:
            self._bytes[tp] -= size_of(buffer.popleft())
        return bool(buffer)

    def _add(self, tp: TopicPartition, first: int) -> None:
        """Begin to read a partition that was added while the pipeline ran."""
        offsets = {other: position_in(self._consumer, other) for other in self._positions}
        self._positions[tp] = first
        self._buffers[tp] = deque()
        self._consumer.assign(list(self._positions))
        for other, position in {**offsets, tp: first}.items():
            self._consumer.seek(other, position)

    def _fill(self, wanted: TopicPartition) -> bool:
        """Poll once; other partitions with a full buffer are paused. Returns whether `wanted` got records."""
        share = _MAX_BUFFERED_BYTES // max(1, len(self._buffers))
        for tp, buffer in self._buffers.items():
            full = len(buffer) >= _MAX_BUFFERED or self._bytes[tp] >= share
            if tp != wanted and full:
                self._consumer.pause(tp)
            else:
                self._consumer.resume(tp)
        try:
            polled = _poll(self._consumer)
        except OffsetOutOfRangeError as error:
            (tp, offset), *_ = error.args[0].items()
            raise RecordsGoneError(_gone(tuple(tp), offset)) from error
        for tp, records in polled.items():
            self._buffers[tp].extend(records)
            self._bytes[tp] += sum(map(size_of, records))
        return wanted in polled

    def has_any(self, ends: Mapping[TopicPartition, int], seconds: float = 5.0) -> bool:
        """Whether a record comes before these ends; markers of transactions do not. One that was deleted
        before it was read counts: whoever is to read it has yet to find that out.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if any(_poll(self._consumer).values()):
                    return True
            except OffsetOutOfRangeError:
                return True
            if all(position_in(self._consumer, tp) >= end for tp, end in ends.items()):
                return False
        return False

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close(autocommit=False)


def _holds(buffer: deque[Any], end: int, max_records: int | None) -> bool:
    """Whether a buffer has all records before `end`, or as many as are wanted."""
    if max_records is not None and len(buffer) >= max_records:
        return True
    return bool(buffer[-1].offset >= end - 1)


def _gone(partition: Partition, first: int) -> str:
    offset = f" at offset {first}" if first >= 0 else ""
    return (
        f"events of {partition[0]}-{partition[1]}{offset} are gone from the log, but the newest "
        "usable snapshot is older than they are: raise the topic's retention, or snapshot more "
        "often (run.snapshot_interval_seconds)"
    )


def commit_number(metadata: str) -> int:
    """The number of the commit that wrote a committed offset's metadata."""
    try:
        return int(json.loads(metadata)["commit"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise RecoveryError(
            f"the group's committed offsets carry {metadata[:100]!r}, which no pipeline wrote: "
            "another program uses this group; give the pipeline another kafka.group_id"
        ) from error


def last_commit(
    where: Connection, group: str, topic: str, partition: int | None = None
) -> str | None:
    """What the last commit of a group, or of one partition, says, asked without joining it; None if
    there is none.
    """

    def attempt() -> str | None:
        consumer = connect(
            KafkaConsumer,
            where,
            group_id=group,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        try:
            texts = []
            for number in sorted(consumer.partitions_for_topic(topic) or ()):
                if partition not in (None, number):
                    continue
                found = committed_now(consumer, TopicPartition(topic, number))
                if found is not None and found.metadata:
                    texts.append(str(found.metadata))
            return max(texts, key=commit_number, default=None)
        finally:
            consumer.close(autocommit=False)

    what = f"the commits of group '{group}' cannot be read"
    try:
        return persist(where, what, attempt)
    except AuthorizationError as error:
        raise BrokerError(f"{what}: {error}") from error


class KafkaJournal:
    """The journal topic, and the metadata of the committed offsets."""

    def __init__(self, settings: KafkaSettings, assignment: Assignment) -> None:
        self.settings = settings
        self.committed_only = settings.exactly_once
        self._assignment = assignment

    def read(
        self, since: int, until: int | None, keep_alive: Callable[[], None] = lambda: None
    ) -> Generator[tuple[int, bytes], None, None]:
        """Records after offset `since`, up to and including `until`, or all there are now."""
        settings = self.settings
        if until is None:
            with closing(self.tail(since)) as tail:
                yield from tail.records(keep_alive)
            return
        client, topic = settings.client(), settings.topics.journal
        yield from read_journal(client, topic, since, until, settings.partition or 0)

    def tail(self, since: int) -> JournalTail:
        """The records after offset `since`, as they are written."""
        settings = self.settings
        return JournalTail(
            settings.client(), settings.topics.journal, since, settings.partition or 0
        )

    def last_commit(self) -> str | None:
        """The metadata of the group's last commit, whichever process made it."""
        found = []
        consumer, topic, partition = (
            self._assignment.consumer,
            self.settings.topics.events,
            self.settings.partition,
        )
        try:
            for number in sorted(consumer.partitions_for_topic(topic) or ()):
                if partition not in (None, number):
                    continue
                offset = committed_now(consumer, TopicPartition(topic, number))
                if offset is not None and offset.metadata:
                    found.append(str(offset.metadata))
        except KafkaError as error:
            raise BrokerError(f"the last commit cannot be asked for: {error}") from error
        return max(found, key=commit_number, default=None)
