"""What the loop tells about itself while it runs, whoever listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streamforest.runtime.checkpoint.store import Snapshot
from streamforest.runtime.labels.store import LabelStore
from streamforest.runtime.processing.models import Model

if TYPE_CHECKING:
    from streamforest.runtime.processing.loop import Run


class Telemetry(Protocol):
    """What the loop tells about itself while it runs."""

    def follow(self, trouble: Callable[[], str | None]) -> None:
        """Where to ask, at any time and from any thread, what is wrong with the log."""

    def samples(self) -> bool:
        """Whether this batch should be predicted on its own as well."""

    def sampled(self, name: str, predict: float, learn: float | None, rows: int) -> None:
        """What one event of a sampled batch took."""

    def advanced(
        self, name: str, model: Model, truth: list[Any], guesses: list[Any], seconds: float
    ) -> None:
        """A model went through a batch."""

    def novelty(self, name: str, values: NDArray[np.float64]) -> None:
        """How new the events of a batch were to a model."""

    def outcome(self, outcome: str, count: int) -> None:
        """So many events ended this way."""

    def late(self, store: LabelStore, labels: int, delays: list[float]) -> None:
        """So many labels were read; those that met their event came this much later (seconds)."""

    def recovered(self, store: LabelStore) -> None:
        """The run has recovered; this is its label store."""

    def dead(self, reason: str) -> None:
        """An event was refused."""

    def turned(self, run: Run) -> None:
        """The loop came round once more."""

    def beat(self) -> None:
        """A sign of life while the loop waits."""

    def committed(self, run: Run, seconds: float, timestamps: list[int]) -> None:
        """A commit took this long; these are the times of its records."""

    def stalled(self, seconds: float) -> None:
        """A snapshot was begun and held the stream up for this long."""

    def snapshot(self, run: Run, written: Snapshot) -> None:
        """A snapshot became durable."""

    def snapshot_failed(self, reason: str) -> None:
        """A snapshot could not be written (`write`), or was refused by its own check (`check`)."""

    def role(self, role: str, partitions: int, events: int = 0, behind: int = 0) -> None:
        """Owner of so many partitions; or standby, at this event and so many behind the owner."""

    def ready(self, reason: str | None) -> None:
        """Whether the run is at work; if not, why."""


class Silent:
    """Telemetry for nobody."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: None
