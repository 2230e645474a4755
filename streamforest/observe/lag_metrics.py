"""Metrics of what waits to be read, in records and in seconds, for the partitions that are ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Gauge

Partition = tuple[str, int]


class LagMetrics:
    """One series for each partition; those of a partition that leaves are removed."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"streamforest_{name}", text, ["topic", "partition"], registry=registry)

        self._records = gauge("consumer_lag_records", "Records not yet read.")
        self._seconds = gauge(
            "consumer_lag_seconds",
            "Age of the last record that was read, where more wait; else 0.",
        )
        self._newest: dict[Partition, int] = {}
        self._shown: set[Partition] = set()

    def read(self, newest: Mapping[Partition, int]) -> None:
        """The timestamp of the last record of some partitions, in milliseconds."""
        self._newest.update(newest)

    def look(self, ask: Callable[[], Mapping[Partition, int]]) -> None:
        """Show how far behind each partition is."""
        now, lags = time.time(), ask()
        for partition in self._shown - lags.keys():
            self._remove(partition)
        for partition, lag in lags.items():
            labels = partition[0], str(partition[1])
            self._records.labels(*labels).set(lag)
            newest = self._newest.get(partition, 0)
            if lag == 0:
                self._seconds.labels(*labels).set(0)
            elif newest > 0:  # records of a file bear no time
                self._seconds.labels(*labels).set(max(0.0, now - newest / 1000))
        self._shown = set(lags)

    def clear(self) -> None:
        """The partitions are another's: nobody here knows anything of them."""
        self._records.clear()
        self._seconds.clear()
        self._newest.clear()
        self._shown.clear()

    def _remove(self, partition: Partition) -> None:
        self._newest.pop(partition, None)
        for metric in (self._records, self._seconds):
            metric.remove(partition[0], str(partition[1]))
