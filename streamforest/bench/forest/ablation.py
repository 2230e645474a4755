"""Ablation: the accuracy of a forest with one part changed or removed.

Accuracy only, by batches, on the streams of `bench forest`: the mean over the seeds for the forest as it
is, and for each variant the difference in points. Streams that stay as they are and streams that drift
are averaged apart, since some parts are for the one and some for the other. Where classes come one after
the other, the first events of every class are shown too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from streamforest import datasets
from streamforest.bench.forest import models
from streamforest.bench.forest.comparison import SHORT
from streamforest.bench.output import versions_line
from streamforest.datasets import Stream
from streamforest.errors import ConfigError
from streamforest.forests.core import registry
from streamforest.text import nearest

YOUNG = 10
"""Events of a class up to which it is young. Its first one is left out: no forest can be right there."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "without challengers": {"drift": False},
    "without baselines": {"max_plain_bytes": 0},
    "without neighbours": {"neighbours": 0},
    "without relevance": {"relevance": 0.0},
    "40 trees": {"n_trees": 40},
}
"""The variants of the stream forest that are run by default."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run."""

    model: str = "stream"
    streams: tuple[str, ...] = ()
    held_out: bool = False
    variants: dict[str, dict[str, Any]] = field(default_factory=lambda: dict(DEFAULTS))
    trees: int = 20
    seeds: int = 3
    short_seeds: int = 10
    events: int | None = None

    def __post_init__(self) -> None:
        if self.model not in registry.kinds():
            raise ConfigError(f"--model {self.model}: {nearest(self.model, registry.kinds())}")
        for name in ("trees", "seeds", "short_seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"--{name.replace('_', '-')} {getattr(self, name)}: use 1 or more"
                )
        for name in self.streams:
            datasets.get_spec(name)
        for params in ({}, *self.variants.values()):
            _forest(self.model, self.trees, 0, params)  # refuses what the forest does not know


@dataclass
class Found:
    """Mean accuracy by stream, for each variant and for the unchanged forest (the name "")."""

    settings: Settings
    accuracy: dict[str, dict[str, float]] = field(default_factory=dict)
    young: dict[str, dict[str, float]] = field(default_factory=dict)
    """The same over events 2 to 10 of every class, where classes come one after the other."""
    by_seed: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def difference(self, variant: str, streams: Sequence[str]) -> float:
        """Mean gain of a variant over the unchanged forest, in points."""
        return fmean(_points(self.accuracy[name], variant) for name in streams)

    def group(self, drifting: bool) -> list[str]:
        """The streams with drift, or those without."""
        return [name for name in self.accuracy if datasets.get_spec(name).drifting == drifting]

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {
            "settings": asdict(self.settings),
            "accuracy": self.accuracy,
            "young": self.young,
            "by_seed": self.by_seed,
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


def _points(by_variant: dict[str, float], variant: str) -> float:
    return 100 * (by_variant[variant] - by_variant[""])


def _forest(kind: str, trees: int, seed: int, params: dict[str, Any]) -> Any:
    try:
        cls: Any = registry.get(kind).load()  # the base class has no constructor of its own
        return cls(**{"n_trees": trees, "seed": seed} | params)
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
        found.accuracy[name], found.by_seed[name] = {}, {}
        scheduled = datasets.get_spec(name).scheduled
        for variant, params in {"": {}, **settings.variants}.items():
            begin(f"{name}: {variant or 'as it is'}", seeds)
            scores, early = [], []
            for seed in range(seeds):
                correct = answered(_forest(settings.model, settings.trees, seed, params), stream)
                scores.append(float(correct.mean()))
                early.append(float(correct[young_events(stream.y)].mean()))
                update(seed + 1)
            found.accuracy[name][variant] = fmean(scores)
            found.by_seed[name][variant] = scores
            if scheduled:
                found.young.setdefault(name, {})[variant] = fmean(early)
    return found


def answered(forest: Any, stream: Stream) -> NDArray[np.bool_]:
    """For each event: was it predicted correctly? Prequentially, in batches."""
    contestant = models.by_batches(forest, stream.features)
    labels = stream.y.tolist()
    correct: list[bool] = []
    for start in range(0, len(stream), contestant.size):
        batch = slice(start, start + contestant.size)
        guesses = contestant.advance(stream.X[batch], labels[batch])
        correct += [guess == y for guess, y in zip(guesses, labels[batch])]
    return np.array(correct)


def young_events(y: NDArray[Any]) -> NDArray[np.int64]:
    """Places of the events 2 to `YOUNG` of every class.

    >>> young_events(np.array(["a", "b", "a", "a"])).tolist()
    [2, 3]
    """
    places = [np.flatnonzero(y == label)[1:YOUNG] for label in np.unique(y)]
    return np.sort(np.concatenate(places))


def print_result(console: Console, found: Found) -> None:
    """A column for each variant, in points."""
    settings = found.settings
    name = registry.get(settings.model).class_name
    table = _table(found, f"{name}, {settings.trees} trees: points by which a change is better")
    _add_rows(table, found, found.accuracy)
    for title, drifting in (("mean, stationary", False), ("mean, drifting", True)):
        streams = found.group(drifting)
        if streams:
            cells = [f"{found.difference(v, streams):+.2f}" for v in settings.variants]
            table.add_row(f"{title} ({len(streams)})", "", *cells, style="bold")
    console.print(table)
    if found.young:
        early = _table(found, f"The same, events 2 to {YOUNG} of every class")
        _add_rows(early, found, found.young)
        console.print(early)
    for name, reason in found.skipped.items():
        console.print(f"{name}: skipped, {reason}", style="yellow", markup=False, soft_wrap=True)
    console.print(
        f"Mean over {settings.seeds} seeds, on short streams {settings.short_seeds}. {versions_line()}",
        style="dim",
        markup=False,
    )


def _table(found: Found, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("stream")
    for head in ("as it is", *found.settings.variants):
        table.add_column(head, justify="right")
    return table


def _add_rows(table: Table, found: Found, measured: dict[str, dict[str, float]]) -> None:
    for name, by_variant in measured.items():
        cells = [f"{_points(by_variant, variant):+.2f}" for variant in found.settings.variants]
        table.add_row(name, f"{by_variant['']:.4f}", *cells)
