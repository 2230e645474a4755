"""How far each partition has been read, and whether one is stalled: it has records and brings none."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Set
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError

from streamforest.io.kafka.membership import Assignment
from streamforest.io.log import Partition

log = logging.getLogger(__name__)


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

    def lag(self) -> dict[Partition, int]:
        """Records known to the broker at the last fetch and not yet polled."""
        found = {}
        consumer = self._assignment.consumer
        owned = consumer.assignment() if self._assignment.is_ours() else ()
        for tp in sorted(owned):
            end = consumer.highwater(tp)
            if end is not None:
                at = self._at.get(tp, (-1, 0.0))[0]
                found[(tp.topic, tp.partition)] = max(0, end - at) if at >= 0 else 0
        return found
