"""A Prometheus histogram that takes many values at once.

prometheus_client's own takes one value a call, which for a duration of every single event costs more
than the event's prediction. This one counts a whole batch with two calls of NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any

import numpy as np
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry


class BatchHistogram(Collector):
    """Counts by bucket, one row of them for each value of one label.

    >>> h = BatchHistogram("wait_seconds", "Waiting.", (0.1, 1.0), CollectorRegistry())
    >>> h.add([0.05, 0.5, 0.7, 3.0]); h.add([0.1], weight=2)
    >>> [(s.labels.get("le"), s.value) for s in next(iter(h.collect())).samples]
    [('0.1', 3.0), ('1.0', 5.0), ('+Inf', 6.0), (None, 6.0), (None, 4.45)]
    """

    def __init__(
        self,
        name: str,
        text: str,
        buckets: Sequence[float],
        registry: CollectorRegistry,
        label: str | None = None,
    ) -> None:
        self._name, self._text, self._label = name, text, label
        self._edges = np.array(buckets, np.float64)
        self._names = [*(repr(float(edge)) for edge in buckets), "+Inf"]
        self._counts: dict[str, Any] = {}
        self._sums: dict[str, float] = {}
        self._lock = Lock()
        registry.register(self)

    def add(self, values: Sequence[float] | Any, label: str = "", weight: int = 1) -> None:
        """Count values, each `weight` times."""
        found = np.asarray(values, np.float64)
        places = np.bincount(np.searchsorted(self._edges, found), minlength=len(self._edges) + 1)
        with self._lock:
            if label not in self._counts:
                self._counts[label] = np.zeros(len(self._edges) + 1, np.int64)
                self._sums[label] = 0.0
            self._counts[label] += weight * places
            self._sums[label] += weight * float(found.sum())

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """What a scrape sees."""
        labels = [self._label] if self._label is not None else []
        family = HistogramMetricFamily(self._name, self._text, labels=labels)
        with self._lock:
            for label, counts in self._counts.items():
                buckets = [
                    (name, float(n)) for name, n in zip(self._names, np.cumsum(counts).tolist())
                ]
                family.add_metric([label] if labels else [], buckets, self._sums[label])
        yield family

    def describe(self) -> Iterable[HistogramMetricFamily]:
        """Its name, without its values."""
        yield HistogramMetricFamily(self._name, self._text)
