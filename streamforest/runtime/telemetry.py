"""What the loop tells about itself while it runs, whoever listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from streamforest.runtime.models import Model

if TYPE_CHECKING:
    from streamforest.runtime.loop import Run


class Telemetry(Protocol):
    """What the loop tells about itself while it runs."""

    def advanced(
        self, name: str, model: Model, truth: list[Any], guesses: list[Any], seconds: float
    ) -> None:
        """A model went through a batch."""

    def outcome(self, outcome: str, count: int) -> None:
        """So many events ended this way."""

    def dead(self, reason: str) -> None:
        """An event was refused."""

    def committed(self, run: Run, seconds: float, oldest_ms: int | None) -> None:
        """A commit took this long; its oldest record is of that time."""

    def snapshot(self, run: Run, stall: float) -> None:
        """A snapshot was begun and held the stream up for this long."""

    def ready(self, reason: str | None) -> None:
        """Whether the run is at work; if not, why."""


class Silent:
    """Telemetry for nobody."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None
