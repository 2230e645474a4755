"""Metrics of a process with a forest for each partition: one set each, with the label `partition`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.registry import Collector

from streamforest.observe.log_listeners import RowLog, TroubleLog
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.telemetry import Listener, Listeners


class WorkerMetrics(Collector):
    """The metrics of all partitions that are this process's now."""

    def __init__(
        self,
        pipeline: str,
        reasons: Sequence[str] = (),
        remedies: Mapping[str, str] | None = None,
    ) -> None:
        self._pipeline, self._reasons, self._remedies = pipeline, reasons, remedies or {}
        self._workers: dict[int, PipelineMetrics] = {}
        self._lock = Lock()
        self._why: str | None = "starting"
        self._owned = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        owned = Gauge(
            "streamforest_worker_partitions", "Partitions of this process.", registry=self.registry
        )
        owned.set_function(lambda: self._owned)

    def worker(self, number: int) -> Listener:
        """The listener of a partition's run."""
        metrics = PipelineMetrics(self._pipeline, self._reasons)
        with self._lock:
            self._workers[number] = metrics
        name = f"partition {number}"
        return Listeners(metrics, RowLog(self._remedies, name=name), TroubleLog(name=name))

    def metrics_of(self, number: int) -> PipelineMetrics:
        """The metrics of a partition that is this process's."""
        return self._workers[number]

    def forget(self, number: int) -> None:
        """The partition is another process's now."""
        with self._lock:
            self._workers.pop(number, None)

    def report(self, partitions: int, trouble: str | None) -> None:
        """So many partitions are ours."""
        self._owned, self._why = partitions, trouble

    def collect(self) -> Iterable[Metric]:
        """What a scrape sees: each family once, with the samples of all partitions."""
        with self._lock:
            workers = dict(self._workers)
        families: dict[str, Metric] = {}
        for number, metrics in sorted(workers.items()):
            for family in metrics.registry.collect():
                whole = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels: dict[str, Any] = {**sample.labels, "partition": str(number)}
                    whole.samples.append(sample._replace(labels=labels))
        yield from families.values()

    def describe(self) -> Iterable[Metric]:
        """Nothing is known beforehand."""
        return []

    # ---- health

    def why_not_ready(self) -> str | None:
        """None while this process is in the group and all its partitions are at work."""
        with self._lock:
            workers = dict(self._workers)
        reasons = [
            f"partition {number}: {why}"
            for number, metrics in sorted(workers.items())
            if (why := metrics.why_not_ready()) is not None
        ]
        return self._why or (reasons[0] if reasons else None)

    def status(self) -> str:
        """Owner of how many partitions; one that has none waits for a partition to become free."""
        if not self._owned:
            return "standby, no partition is free"
        return f"owner of {self._owned} partitions"

    def why_not_alive(self) -> str | None:
        """None unless a partition's main loop is stalled."""
        with self._lock:
            workers = list(self._workers.values())
        return next((why for m in workers if (why := m.why_not_alive()) is not None), None)
