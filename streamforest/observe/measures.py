"""The evaluation of a run: what is measured of each model."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from streamforest.observe.evaluation import Recent, Totals
from streamforest.observe.latency import LatencyHistogram
from streamforest.observe.telemetry import BatchAdvanced, TelemetryEvent


class ModelMeasures:
    """Totals (for the snapshot), and recent accuracy, latency and pace (for the sidecar).

    >>> m = ModelMeasures()
    >>> m.update(["a", "b"], [None, "a"], seconds=0.001)
    >>> m.totals.accuracy, m.recent.accuracy, round(m.per_batch.quantile(0.5), 3)
    (0.0, 0.0, 0.001)
    """

    __slots__ = ("coarse", "per_batch", "per_event", "recent", "totals")

    def __init__(self, totals: Totals | None = None, coarse: Totals | None = None) -> None:
        self.totals = totals or Totals()
        self.coarse = coarse or Totals()
        """The same of categories."""
        self.recent = Recent()
        self.per_batch = LatencyHistogram()
        self.per_event = LatencyHistogram()

    def update(
        self,
        truth: Sequence[Hashable],
        predicted: Sequence[Hashable],
        seconds: float,
        late: int = 0,
    ) -> None:
        """Count one batch that took the model `seconds`, predicting and learning.

        `late` of them are labels of events that were counted without one before.
        """
        self.totals.update(truth, predicted)
        self.totals.events -= late
        self.recent.update(truth, predicted)
        if truth:
            self.per_batch.add(seconds)
            self.per_event.add(seconds / len(truth), weight=len(truth))

    def passing_state(self) -> dict[str, Any]:
        """What may be lost: everything but the totals."""
        return {
            "recent": self.recent.state(),
            "per_batch": self.per_batch.state(),
            "per_event": self.per_event.state(),
        }

    def restore_passing(self, state: Any) -> None:
        """Take up what `passing_state()` gave; on anything malformed change nothing and raise."""
        recent = Recent.from_state(state["recent"])
        per_batch = LatencyHistogram.from_state(state["per_batch"])
        per_event = LatencyHistogram.from_state(state["per_event"])
        self.recent, self.per_batch, self.per_event = recent, per_batch, per_event


class Evaluation(dict[str, ModelMeasures]):
    """The measures of all models, by name. As a listener it counts every batch, replayed ones too."""

    def on_event(self, event: TelemetryEvent) -> None:
        """Count a batch that a model went through."""
        if isinstance(event, BatchAdvanced):
            measures = self[event.model]
            measures.update(event.truth, event.predicted, event.seconds, event.late)
            measures.coarse.update(event.coarse_truth, event.coarse_predicted)
