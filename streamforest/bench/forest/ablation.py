"""Ablation: the accuracy of the stream forest with one part changed or removed.

Accuracy only, by batches, on the streams of `bench forest`: the mean over the seeds for the forest as it
is, and for each variant the difference in points. Streams that stay as they are and streams that drift
are averaged apart, since some parts are for the one and some for the other.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from streamforest import StreamForestClassifier, datasets
from streamforest.bench.forest import models
from streamforest.bench.forest.comparison import SHORT
from streamforest.bench.output import versions_line
from streamforest.datasets import Stream
from streamforest.errors import ConfigError

DEFAULTS: dict[str, dict[str, Any]] = {
    "without challengers": {"drift": False},
    "without baselines": {"max_plain_bytes": 0},
    "without neighbours": {"neighbours": 0},
    "without relevance": {"relevance": 0.0},
    "40 trees": {"n_trees": 40},
}
"""The variants that are run by default."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run."""

    streams: tuple[str, ...] = ()
    held_out: bool = False
    variants: dict[str, dict[str, Any]] = field(default_factory=lambda: dict(DEFAULTS))
    trees: int = 20
    seeds: int = 3
    short_seeds: int = 10
    events: int | None = None

    def __post_init__(self) -> None:
        for name in ("trees", "seeds", "short_seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"--{name.replace('_', '-')} {getattr(self, name)}: use 1 or more"
                )
        for name in self.streams:
            datasets.get_spec(name)
        for params in self.variants.values():
            _forest(self.trees, 0, params)  # refuses what the forest does not know


@dataclass
class Found:
    """Mean accuracy by stream, for each variant and for the unchanged forest (the name "")."""

    settings: Settings
    accuracy: dict[str, dict[str, float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def difference(self, variant: str, streams: Sequence[str]) -> float:
        """Mean gain of a variant over the unchanged forest, in points."""
        gains = [self.accuracy[name][variant] - self.accuracy[name][""] for name in streams]
        return 100 * fmean(gains)

    def group(self, drifting: bool) -> list[str]:
        """The streams with drift, or those without."""
        return [name for name in self.accuracy if datasets.get_spec(name).drifting == drifting]

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {
            "settings": asdict(self.settings),
            "accuracy": self.accuracy,
            "skipped": self.skipped,
        }


def parse_variant(text: str) -> tuple[str, dict[str, Any]]:
    """A variant as the command line gives it.

    >>> parse_variant("drift=False,alarm=3.0")
    ('drift=False,alarm=3.0', {'drift': False, 'alarm': 3.0})
    """
    params = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            params[name.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            raise ConfigError(
                f"--variant {text!r}: {part!r} is not a parameter with a value, such as drift=False"
            ) from None
    return text, params


def _forest(trees: int, seed: int, params: dict[str, Any]) -> StreamForestClassifier:
    try:
        return StreamForestClassifier(**{"n_trees": trees, "seed": seed} | params)
    except TypeError as error:
        raise ConfigError(f"--variant {params}: {error}") from None


def run(
    settings: Settings, begin: Callable[[str, int], None], update: Callable[[int], None]
) -> Found:
    """Run all variants on all streams; `begin` and `update` receive the progress."""
    found = Found(settings)
    for name in settings.streams or datasets.names(settings.held_out):
        if reason := datasets.unavailable(name):
            found.skipped[name] = reason
            continue
        stream = datasets.load(name, settings.events)
        seeds = settings.short_seeds if len(stream) < SHORT else settings.seeds
        found.accuracy[name] = {}
        for variant, params in {"": {}, **settings.variants}.items():
            begin(f"{name}: {variant or 'as it is'}", seeds)
            scores = []
            for seed in range(seeds):
                scores.append(accuracy(_forest(settings.trees, seed, params), stream))
                update(seed + 1)
            found.accuracy[name][variant] = fmean(scores)
    return found


def accuracy(forest: StreamForestClassifier, stream: Stream) -> float:
    """Prequential accuracy, in batches."""
    contestant = models.by_batches(forest, stream.features)
    labels = stream.y.tolist()
    right = 0
    for start in range(0, len(stream), contestant.size):
        batch = slice(start, start + contestant.size)
        guesses = contestant.advance(stream.X[batch], labels[batch])
        right += int(np.sum([guess == y for guess, y in zip(guesses, labels[batch])]))
    return right / len(stream)


def print_result(console: Console, found: Found) -> None:
    """A column for each variant, in points."""
    variants = list(found.settings.variants)
    table = Table(
        title=f"StreamForestClassifier, {found.settings.trees} trees: points by which a change is better",
        title_justify="left",
    )
    table.add_column("stream")
    table.add_column("as it is", justify="right")
    for variant in variants:
        table.add_column(variant, justify="right")
    for name, by_variant in found.accuracy.items():
        cells = [f"{found.difference(variant, [name]):+.2f}" for variant in variants]
        table.add_row(name, f"{by_variant['']:.4f}", *cells)
    for title, drifting in (("mean, stationary", False), ("mean, drifting", True)):
        streams = found.group(drifting)
        if streams:
            cells = [f"{found.difference(variant, streams):+.2f}" for variant in variants]
            table.add_row(f"{title} ({len(streams)})", "", *cells, style="bold")
    console.print(table)
    for name, reason in found.skipped.items():
        console.print(f"{name}: skipped, {reason}", style="yellow", markup=False, soft_wrap=True)
    settings = found.settings
    console.print(
        f"Mean over {settings.seeds} seeds, on short streams {settings.short_seeds}. {versions_line()}",
        style="dim",
        markup=False,
    )
