"""What kafka-python knows of its fetches and does not tell: how far a partition was read, and where it ends.

`consumer.highwater` counts records of transactions that are still open, which a `read_committed` consumer
does not get: a partition would be waited for although it has nothing to bring. The answer to a fetch also
holds the last stable offset, before which everything is decided. It is noted when the answer arrives, not
when its records are polled: a partition whose records wait in the client has unread ones.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from kafka import TopicPartition

_LEAST = 64 << 10


class Fetched(NamedTuple):
    """Where a partition ends: what can be read of it, and with what open transactions have written."""

    stable: int
    high: int
    since: float
    """Since when the last stable offset has been there."""


class StableOffsets:
    """The last stable offset of each partition, as of the newest answer to a fetch."""

    def __init__(self, consumer: Any) -> None:
        self._offsets: dict[TopicPartition, Fetched] = {}
        fetcher = consumer._fetcher
        handle = fetcher._handle_fetch_response

        def noted(node: Any, offsets: Any, sent: Any, response: Any) -> Any:
            for topic in response.responses:
                for part in topic.partitions:
                    stable = part.last_stable_offset
                    if part.error_code == 0:
                        end = part.high_watermark if stable is None or stable < 0 else stable
                        tp = TopicPartition(topic.topic, part.partition_index)
                        before = self._offsets.get(tp)
                        waits = before is not None and before.stable == end < before.high
                        since = before.since if before and waits else time.monotonic()
                        self._offsets[tp] = Fetched(end, part.high_watermark, since)
            return handle(node, offsets, sent, response)

        fetcher._handle_fetch_response = noted

    def get(self, partition: TopicPartition) -> int:
        """-1 if nothing was fetched of it yet."""
        fetched = self._offsets.get(partition)
        return -1 if fetched is None else fetched.stable

    def hanging(self, seconds: float) -> dict[TopicPartition, Fetched]:
        """Partitions whose last stable offset has not moved for so long, though records follow it."""
        before = time.monotonic() - seconds
        return {
            tp: fetched
            for tp, fetched in sorted(self._offsets.items())
            if fetched.stable < fetched.high and fetched.since < before
        }


def position_of(consumer: Any, partition: TopicPartition) -> int | None:
    """The offset of the next record to poll, without asking the broker, which `consumer.position` may do;
    None if there is none, or the partition is not assigned.
    """
    state = consumer._subscription.assignment.get(partition)
    position = None if state is None else state.position
    return None if position is None else int(position.offset)


def limit_fetches(consumer: Any, max_bytes: int, partitions: int) -> None:
    """Let an answer hold so many bytes of all partitions together, each its share: what is fetched of a
    paused partition stays in memory. A single batch that is larger is sent whole.
    """
    config = consumer._fetcher.config
    share = max(_LEAST, max_bytes // max(1, partitions))
    config["max_partition_fetch_bytes"] = min(config["max_partition_fetch_bytes"], share)
