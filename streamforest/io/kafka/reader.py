"""Reading once more what was read before: the journal, and the events it lists.

Plain consumers without a group: they own nothing and commit nothing.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, OffsetOutOfRangeError, TopicAuthorizationFailedError

from streamforest.errors import BrokerError, RecoveryError
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.clients import connect
from streamforest.io.kafka.compat.records import use_quick_records
from streamforest.io.kafka.compat.workarounds import committed_now, create_client, unpark
from streamforest.io.kafka.merge import size_of
from streamforest.io.log import LogUnavailable, Partition

_PATIENCE = 60.0
_BUFFERED = 20_000  # records held of one partition while another is waited for
_BUFFERED_BYTES = 64 << 20  # and their bytes


@contextmanager
def _reading() -> Iterator[None]:
    """The client's errors as ours: what nobody may read, and what cannot be read just now."""
    try:
        yield
    except TopicAuthorizationFailedError as error:
        raise BrokerError(f"not allowed to read again what was read before: {error}") from error
    except KafkaError as error:
        raise LogUnavailable(
            f"what was read before cannot be read again now ({type(error).__name__}: {error})"
        ) from error


def _consumer(client: Mapping[str, Any]) -> Any:
    with _reading():
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


def _ends(consumer: Any, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Where partitions end; LogUnavailable if the broker does not say."""
    with _reading():
        found: dict[TopicPartition, int] = consumer.end_offsets(partitions)
    return found


def _position(consumer: Any, partition: TopicPartition) -> int:
    """Where a partition is read next; LogUnavailable if the broker is needed to say it, and does not."""
    with _reading():
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
            with _reading():
                first = self._consumer.beginning_offsets([tp])[tp]
        except BrokerError:
            self.close()
            raise
        if first > since + 1 and since >= 0:
            self.close()
            raise RecoveryError(
                f"the journal {topic!r} begins at {first}, but the newest usable snapshot needs it "
                f"from {since + 1} on: give the topic retention.ms=-1"
            )
        self._consumer.seek(tp, max(since + 1, first))

    def poll(self, timeout_ms: int = 0) -> list[tuple[int, bytes]]:
        """What was committed since the last call, with its offset."""
        try:
            batch = _poll(self._consumer, timeout_ms).get(self._tp, [])
        except OffsetOutOfRangeError as error:
            raise RecoveryError(
                f"the journal {self._tp.topic!r} has no records where they were read before "
                f"({error}); it was cut or made anew"
            ) from error
        return [(record.offset, record.value) for record in batch]

    def end(self) -> int:
        """Where the journal ends now."""
        return _ends(self._consumer, [self._tp])[self._tp]

    def records(self, idle: Callable[[], None]) -> Iterator[tuple[int, bytes]]:
        """All there is by now, little by little; `idle` is called after each look."""
        end = self.end()
        while _position(self._consumer, self._tp) < end:
            yield from self.poll(500)
            idle()

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close(autocommit=False)


def read_journal(
    client: Mapping[str, Any], topic: str, since: int, until: int, partition: int = 0
) -> Generator[tuple[int, bytes], None, None]:
    """Committed records of the journal after offset `since`, up to and with `until`."""
    if until <= since:
        return
    tail = JournalTail(client, topic, since, partition)
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            batch = tail.poll(500)
            for place, value in batch:
                if place > until:
                    return
                yield place, value
                if place == until:
                    return
            if batch:
                deadline = time.monotonic() + _PATIENCE
            elif time.monotonic() > deadline:
                tail.end()  # a broker that is away is another matter
                raise RecoveryError(
                    f"the journal {topic!r} has no record at {until}, which a "
                    "commit names; it was cut or made anew"
                )
    finally:
        tail.close()


def _poll(consumer: Any, timeout_ms: int = 500) -> Any:
    unpark(consumer)
    try:
        with _reading():
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
    """Stretches of several partitions in the journal's order, each partition read forward once."""

    def __init__(self, client: Mapping[str, Any], positions: Mapping[Partition, int]) -> None:
        self._consumer = _consumer(client)
        self._held: dict[TopicPartition, deque[Any]] = {}
        self._bytes: Counter[TopicPartition] = Counter()
        self._positions = {TopicPartition(*partition): at for partition, at in positions.items()}
        self._consumer.assign(list(self._positions))
        for tp, at in self._positions.items():
            self._held[tp] = deque()
            self._consumer.seek(tp, at)

    def take(self, partition: Partition, first: int, end: int) -> list[Any]:
        """The records from `first` to before `end`."""
        tp = TopicPartition(*partition)
        if tp not in self._held:
            self._add(tp, first)
        held = self._held[tp]
        deadline = time.monotonic() + _PATIENCE
        while not held or held[-1].offset < end - 1:
            if self._fill(tp):
                deadline = time.monotonic() + _PATIENCE
            elif time.monotonic() > deadline:
                _ends(self._consumer, [tp])  # a broker that is away is another matter
                raise RecoveryError(_gone(partition, first))
        while held[0].offset < first:
            self._bytes[tp] -= size_of(held.popleft())
        if held[0].offset != first:
            raise RecoveryError(_gone(partition, first))
        taken = []
        while held and held[0].offset < end:
            taken.append(held.popleft())
        self._bytes[tp] -= sum(map(size_of, taken))
        return taken

    def _add(self, tp: TopicPartition, first: int) -> None:
        """A partition that the journal meets for the first time: it was added while running."""
        at = {other: _position(self._consumer, other) for other in self._positions}
        self._positions[tp] = first
        self._held[tp] = deque()
        self._consumer.assign(list(self._positions))
        for other, position in {**at, tp: first}.items():
            self._consumer.seek(other, position)

    def _fill(self, wanted: TopicPartition) -> bool:
        """Read on; partitions with plenty in hand wait."""
        for tp, held in self._held.items():
            plenty = len(held) >= _BUFFERED or self._bytes[tp] >= _BUFFERED_BYTES
            if tp != wanted and plenty:
                self._consumer.pause(tp)
            else:
                self._consumer.resume(tp)
        try:
            polled = _poll(self._consumer)
        except OffsetOutOfRangeError as error:
            (tp, at), *_ = error.args[0].items()
            raise RecoveryError(_gone(tuple(tp), at)) from error
        for tp, records in polled.items():
            self._held[tp].extend(records)
            self._bytes[tp] += sum(map(size_of, records))
        return wanted in polled

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close(autocommit=False)


def _gone(partition: Partition, first: int) -> str:
    where = f" at offset {first}" if first >= 0 else ""
    return (
        f"events of {partition[0]}-{partition[1]}{where} are gone from the log, but the newest "
        "usable snapshot is older than they are: raise the topic's retention, or snapshot more "
        "often (run.snapshot_interval_seconds)"
    )


def commit_number(metadata: str) -> int:
    """The number of the commit that wrote a committed offset's text."""
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
            tp = TopicPartition(topic, number)
            found = committed_now(consumer, tp)
            if found is not None and found.metadata:
                texts.append(str(found.metadata))
        return max(texts, key=commit_number, default=None)
    except KafkaError as error:
        raise BrokerError(f"the commits of group '{group}' cannot be read: {error}") from error
    finally:
        consumer.close(autocommit=False)
