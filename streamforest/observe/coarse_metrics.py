"""Metrics of categories: how often the likeliest one was right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from streamforest.observe.evaluation import LabelWindow


class CoarseMetrics:
    """Created when an event with a category is judged: other pipelines have none of these metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"streamforest_coarse_{name}", text, ["model"], registry=registry)

        self._labelled = counter("labelled_events", "Events whose category is known.")
        self._correct = counter("correct_predictions", "Categories that were predicted correctly.")
        self._accuracy = Gauge(
            "streamforest_coarse_accuracy_ratio",
            "Accuracy of categories, of the last 1000 whose category is known.",
            ["model"],
            registry=registry,
        )
        self._windows: dict[str, LabelWindow] = {}

    def add(self, model: str, truth: Sequence[Any], predicted: Sequence[Any]) -> None:
        """A model went through events whose category is known."""
        window = self._windows.setdefault(model, LabelWindow())
        window.add(truth, predicted)
        self._labelled.labels(model).inc(len(truth))
        self._correct.labels(model).inc(sum(a == b for a, b in zip(truth, predicted)))
        self._accuracy.labels(model).set(window.accuracy or 0.0)
