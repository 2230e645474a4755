"""Metrics of a process with a forest for each partition: one set each, told apart by the label `unit`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.registry import Collector

from streamforest.observe.prometheus import PipelineMetrics


class FleetMetrics(Collector):
    """The metrics of all partitions that are this process's now."""

    def __init__(self, pipeline: str, reasons: Sequence[str] = ()) -> None:
        self._pipeline, self._reasons = pipeline, reasons
        self._units: dict[int, PipelineMetrics] = {}
        self._lock = Lock()
        self._why: str | None = "starting"
        self._owned = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        owned = Gauge(
            "streamforest_fleet_partitions", "Partitions of this process.", registry=self.registry
        )
        owned.set_function(lambda: self._owned)

    def unit(self, number: int) -> PipelineMetrics:
        """Where a partition's run tells about itself."""
        metrics = PipelineMetrics(self._pipeline, self._reasons)
        with self._lock:
            self._units[number] = metrics
        return metrics

    def forget(self, number: int) -> None:
        """The partition is another process's now."""
        with self._lock:
            self._units.pop(number, None)

    def stand(self, partitions: int, trouble: str | None) -> None:
        """So many partitions are ours."""
        self._owned, self._why = partitions, trouble

    def collect(self) -> Iterable[Metric]:
        """What a scrape sees: each family once, with the samples of all partitions."""
        with self._lock:
            units = dict(self._units)
        families: dict[str, Metric] = {}
        for number, metrics in sorted(units.items()):
            for family in metrics.registry.collect():
                whole = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels: dict[str, Any] = {**sample.labels, "unit": str(number)}
                    whole.samples.append(sample._replace(labels=labels))
        yield from families.values()

    def describe(self) -> Iterable[Metric]:
        """Nothing is known beforehand."""
        return []

    # ---- health

    def why_not_ready(self) -> str | None:
        """None while this process is in the group and all its partitions are at work."""
        with self._lock:
            units = dict(self._units)
        reasons = [
            f"partition {number}: {why}"
            for number, metrics in sorted(units.items())
            if (why := metrics.why_not_ready()) is not None
        ]
        return self._why or (reasons[0] if reasons else None)

    def stands(self) -> str:
        """Owner of how many partitions; one that has none waits for a partition to become free."""
        if not self._owned:
            return "standby, no partition is free"
        return f"owner of {self._owned} partitions"

    def why_not_alive(self) -> str | None:
        """None unless a partition's loop has not come round for very long."""
        with self._lock:
            units = list(self._units.values())
        return next((why for m in units if (why := m.why_not_alive()) is not None), None)
