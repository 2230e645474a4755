"""Metrics of learning: against repeating the last label, by class age, births, trees replaced.

A windowed gauge is for reading at a glance; beside it are counters, from which a query takes its own window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import eq
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from streamforest.observe.evaluation import Totals, kappa_temporal
from streamforest.observe.telemetry import Measured

_WINDOW = 1_000
_REPLACED = {"swaps": "challenger", "trees_grown": "regrown"}
"""A field of a forest's summary, and why trees were replaced that it counts."""


class LearningMetrics:
    """Part of a run's metrics; told by `PipelineMetrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"streamforest_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(f"streamforest_{name}", text, labels, registry=registry)

        self._no_change = counter(
            "no_change_correct_predictions",
            "Labelled events whose label was that of the labelled event before.",
        )
        self._no_change_accuracy = gauge(
            "no_change_accuracy_ratio",
            "Accuracy that repeating the last label had over the last 1000 labelled.",
        )
        self._kappa_temporal = gauge(
            "kappa_temporal_ratio",
            "Accuracy beyond that of repeating the last label, over the last 1000 labelled.",
            ["model"],
        )
        self._learned_at = gauge(
            "last_labelled_event_timestamp_seconds",
            "When a labelled event was last learned.",
        )
        self._births = counter("class_births", "Classes that were new.")
        self._rebalances = counter(
            "rebalances", "Times that partitions were assigned again while this process owned some."
        )
        self._age_events = counter(
            "class_age_events",
            "Labelled events by how many events of its class came before.",
            ["model", "age"],
        )
        self._age_correct = counter(
            "class_age_correct_predictions", "Correct predictions of those.", ["model", "age"]
        )
        self._age_recall = gauge(
            "class_age_recall_ratio", "Recall by class age over the whole stream.", ["model", "age"]
        )
        self._replaced = counter(
            "trees_replaced",
            "Trees replaced: by a challenger that did better, or regrown from newer rows.",
            ["model", "reason"],
        )
        self._challengers = counter("challengers", "Challengers grown.", ["model"])
        self._same: deque[bool] = deque(maxlen=_WINDOW)
        self._before: Any = None
        self._counted: dict[tuple[str, ...], int] = {}

    def labelled(self, truth: Sequence[Any]) -> None:
        """Labels of the first model's batch, in order."""
        if truth:
            same = list(map(eq, truth, [self._before, *truth[:-1]]))
            self._same.extend(same)
            self._no_change.inc(sum(same))
            self._before = truth[-1]
            self._learned_at.set_to_current_time()

    def born(self, classes: int) -> None:
        """Classes that are new."""
        self._births.inc(classes)

    def rebalanced(self) -> None:
        """The partitions were assigned again."""
        self._rebalances.inc()

    def committed(
        self, accuracies: Mapping[str, float | None], measures: Mapping[str, Measured]
    ) -> None:
        """After a commit, with the accuracy of each model over the last 1000 labelled."""
        no_change = sum(self._same) / len(self._same) if self._same else None
        if no_change is not None:
            self._no_change_accuracy.set(no_change)
        for name, accuracy in accuracies.items():
            kappa = kappa_temporal(accuracy, no_change)
            if kappa is not None:
                self._kappa_temporal.labels(name).set(kappa)
        for name, one in measures.items():
            self._ages(name, one.totals)

    def _ages(self, name: str, totals: Totals) -> None:
        for bucket in totals.ages():
            age = bucket.name.replace("–", "-")
            self._add(self._age_events, bucket.events, name, age)
            self._add(self._age_correct, bucket.correct, name, age)
            if bucket.accuracy is not None:
                self._age_recall.labels(name, age).set(bucket.accuracy)

    def replaced(self, summaries: Mapping[str, Mapping[str, Any]]) -> None:
        """Size and shape of each model."""
        for name, summary in summaries.items():
            for field, reason in _REPLACED.items():
                if field in summary:
                    self._add(self._replaced, summary[field], name, reason)
            if "challengers_grown" in summary:
                self._add(self._challengers, summary["challengers_grown"], name)

    def _add(self, counter: Counter, total: int, *labels: str) -> None:
        """Count up to a total that the model or its evaluation keeps; it may start over."""
        key = str(id(counter)), *labels
        before = self._counted.get(key, 0)
        counter.labels(*labels).inc(max(0, total - before))
        self._counted[key] = total
