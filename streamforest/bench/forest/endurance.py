"""A very long stream: does the forest keep its memory bound and its speed?

The stream is made as it goes, a batch at a time, from a seed: overlapping Gaussian blobs, several to a
class, so that trees always find something to split. With `drift_every` all blobs move to new places
every so many events.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from streamforest.bench import machine
from streamforest.bench.forest import models
from streamforest.bench.output import Line, Panel, versions_line
from streamforest.errors import ConfigError

TENTHS = 10
_BATCH = 1_000


@dataclass(frozen=True)
class Settings:
    """The settings of a run."""

    model: str = "consistent"
    events: int = 5_000_000
    trees: int = 10
    features: int = 20
    classes: int = 10
    blobs: int = 5
    drift_every: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("events", "trees", "features", "classes", "blobs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} {getattr(self, name)}: use a number of at least 1")
        if self.events < TENTHS * _BATCH:
            raise ConfigError(f"--events {self.events}: use at least {TENTHS * _BATCH}")
        if models.get_spec(self.model).forest is None:
            raise ConfigError(f"--model {self.model}: use one of our forests")


@dataclass(frozen=True)
class Tenth:
    """What was measured over one tenth of the stream."""

    events: int
    events_per_second: float
    accuracy: float
    process_bytes: int
    model_bytes: int
    fringe_bytes: int
    nodes: int


class EndlessBlobs:
    """The stream, a batch at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rng = np.random.default_rng(settings.seed)
        self.made = 0
        self.drifts = 0
        self._place()

    def _place(self) -> None:
        s = self.settings
        self.centres = self.rng.normal(size=(s.classes, s.blobs, s.features))

    def batch(self, n: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The next `n` events."""
        s = self.settings
        if s.drift_every and self.made // s.drift_every != self.drifts:
            self.drifts += 1
            self._place()
        self.made += n
        y = self.rng.integers(0, s.classes, n)
        blob = self.rng.integers(0, s.blobs, n)
        return self.centres[y, blob] + self.rng.normal(size=(n, s.features)), y


def run(settings: Settings, on_progress: Callable[[int], None]) -> list[Tenth]:
    """Predict and learn the whole stream, and measure each tenth of it (CPU time of the forest)."""
    class_name = models.get_spec(settings.model).forest or ""
    forest = models.our_forest(class_name, settings.trees, settings.seed)
    stream = EndlessBlobs(settings)
    per_tenth = settings.events // TENTHS
    tenths = []
    done = 0
    with machine.pinned(machine.choose_core()):
        for _ in range(TENTHS):
            spent, right, seen = 0.0, 0, 0
            while seen < per_tenth:
                X, y = stream.batch(min(_BATCH, per_tenth - seen))
                start = time.process_time()
                P = forest.advance(X, y)
                spent += time.process_time() - start
                right += int((np.asarray(forest.classes_)[P.argmax(axis=1)] == y).sum())
                seen += len(y)
                done += len(y)
                on_progress(done)
            size = forest.summary()
            tenths.append(
                Tenth(
                    done,
                    seen / spent,
                    right / seen,
                    machine.anonymous_bytes() or 0,
                    size["total_bytes"],
                    size.get("fringe_bytes", 0),
                    size["nodes"],
                )
            )
    return tenths


def print_result(console: Console, settings: Settings, tenths: list[Tenth]) -> None:
    """The curve as a table, and its two key figures."""
    table = Table(
        title=f"{settings.model}, {settings.trees} trees, {settings.features} features, "
        f"{settings.classes} classes"
        + (f", drift every {settings.drift_every:,}" if settings.drift_every else ""),
        title_justify="left",
    )
    for head in ("events", "events/s", "accuracy", "process MB", "model MB", "fringe MB", "nodes"):
        table.add_column(head, justify="right")
    for t in tenths:
        table.add_row(
            f"{t.events:,}",
            f"{t.events_per_second:,.0f}",
            f"{t.accuracy:.4f}",
            f"{t.process_bytes / 1e6:.0f}",
            f"{t.model_bytes / 1e6:.0f}",
            f"{t.fringe_bytes / 1e6:.0f}",
            f"{t.nodes:,}",
        )
    console.print(table)
    speed = tenths[-1].events_per_second / tenths[1].events_per_second
    memory = tenths[-1].process_bytes / max(1, tenths[TENTHS // 2 - 1].process_bytes)
    console.print(f"Speed of the last tenth: {speed:.2f} of the second.")
    console.print(f"Memory after the last tenth: {memory:.2f} of that after the fifth.")
    console.print(versions_line())


def content(settings: Settings, tenths: list[Tenth]) -> dict[str, Any]:
    """All figures, for JSON."""
    return {"settings": asdict(settings), "tenths": [asdict(t) for t in tenths]}


def panels(tenths: list[Tenth]) -> list[Panel]:
    """The curves, for a plot."""
    x = np.array([t.events for t in tenths], np.float64)
    curves = {
        "events/s": [t.events_per_second for t in tenths],
        "process MB": [t.process_bytes / 1e6 for t in tenths],
        "accuracy": [t.accuracy for t in tenths],
    }
    return [
        Panel(title=name, lines=[Line(name, x, np.array(values))], x_label="events", y_label=name)
        for name, values in curves.items()
    ]
