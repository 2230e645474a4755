"""Reads again what the log still has of events that were read before: some may be gone.

Recovery must have every record that the journal lists, or it would rebuild another state. Who adopts a
snapshot because some are gone wants those that are left.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kafka import TopicPartition

from streamforest.errors import RecordsGoneError
from streamforest.io.kafka.reader import KafkaReader, end_offsets, position_in, reading
from streamforest.io.log import Partition

_IDLE_SECONDS = 10.0  # without a record, from a broker that answers, after which there are none


class RemainingReader(KafkaReader):
    """Records of several partitions, as far as the log has them."""

    def __init__(self, client: Mapping[str, Any], positions: Mapping[Partition, int]) -> None:
        """`positions` are of partitions that exist: no others are read."""
        super().__init__(client, positions)
        self._known = list(self._positions)
        self._beginnings: dict[TopicPartition, int] = {}
        try:
            self._end_offsets = end_offsets(self._consumer, self._known)
            self._skip_deleted()
        except BaseException:
            self.close()
            raise

    def clamped(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """Positions moved to where the log begins or ends now, if they lie outside."""
        return {
            tuple(tp): min(
                max(positions[tuple(tp)], self._beginnings[tp]),
                max(self._end_offsets[tp], self._beginnings[tp]),
            )
            for tp in self._known
            if tuple(tp) in positions
        }

    def take(
        self, partition: Partition, first: int, end: int, max_records: int | None = None
    ) -> list[Any]:
        """The records from `first` to before `end` that are left."""
        tp = TopicPartition(*partition)
        if tp not in self._buffers:
            return []
        buffer = self._buffers[tp]
        until = min(end, self._end_offsets[tp])
        deadline = time.monotonic() + _IDLE_SECONDS
        while position_in(self._consumer, tp) < until and time.monotonic() < deadline:
            try:
                if self._fill(tp):
                    deadline = time.monotonic() + _IDLE_SECONDS
            except RecordsGoneError:
                self._skip_deleted()
        end_offsets(self._consumer, [tp])  # LogUnavailable if the broker is away
        self._skip_to(tp, first)
        taken: list[Any] = []
        while buffer and buffer[0].offset < end and len(taken) != max_records:
            taken.append(buffer.popleft())
        self._note_taken(tp, taken)
        return taken

    def _skip_deleted(self) -> None:
        """Read on where partitions begin now, if that is later."""
        with reading():
            self._beginnings = self._consumer.beginning_offsets(self._known)
        for tp, beginning in self._beginnings.items():
            if position_in(self._consumer, tp) < beginning:
                self._consumer.seek(tp, beginning)
