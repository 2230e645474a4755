"""Metrics of labels that come by themselves: what became of them, how late they were, who waits."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from streamforest.observe.histograms import BatchHistogram
from streamforest.observe.telemetry import LabelStatus

_OUTCOMES = (
    "matched",
    "early",
    "expired",
    "duplicate",
    "unmatched",
    "refused",
    "never",
    "refined",
    "refinement_missed",
)
_DELAYS = (0.1, 1, 10, 60, 300, 1_800, 3_600, 4 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)


class LateMetrics:
    """Created when a run has late labels: other pipelines have none of these metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._labels = Counter(
            "streamforest_labels",
            "Late labels by outcome; expired: events that got none in time; never: events that "
            "cannot wait for one, without an id or with another's; refined and refinement_missed: classes "
            "that came after a coarse label.",
            ["outcome"],
            registry=registry,
        )
        for outcome in _OUTCOMES:
            self._labels.labels(outcome)
        self._records = Counter(
            "streamforest_label_records", "Records that were labels, not events.", registry=registry
        )
        self._delay = BatchHistogram(
            "streamforest_label_delay_seconds",
            "From an event's record timestamp to its label's.",
            _DELAYS,
            registry,
        )
        self._delay.add([])

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"streamforest_{name}", text, registry=registry)

        self._share = gauge(
            "labelled_share_ratio", "Share of events that got their label, of those decided."
        )
        self._waiting = gauge("label_store_events", "Events that wait for their label.")
        self._early = gauge("label_store_labels", "Labels that wait for their event.")
        self._bytes = gauge("label_store_bytes", "Features of the events that wait.")
        self._counted = dict.fromkeys(_OUTCOMES, 0)

    def begin(self, status: LabelStatus) -> None:
        """Count from here on: what came before was another process's, or is counted already."""
        self._counted = dict(status.counts)
        self._set(status)

    def add(self, status: LabelStatus, delays: Sequence[float], records: int) -> None:
        """A batch with events or labels went through; `records` of it were labels."""
        self._records.inc(records)
        for outcome in _OUTCOMES:
            self._labels.labels(outcome).inc(status.counts[outcome] - self._counted[outcome])
        self._counted = dict(status.counts)
        if delays:
            self._delay.add(delays)
        self._set(status)

    def _set(self, status: LabelStatus) -> None:
        self._share.set(status.share or 0.0)
        self._waiting.set(status.waiting)
        self._early.set(status.early)
        self._bytes.set(status.bytes)
