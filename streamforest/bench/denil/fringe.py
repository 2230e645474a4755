"""The fringe bound: what a smaller fringe costs in accuracy and saves in memory.

Section 3.6 of Denil et al. 2013 bounds the active leaves and states that the forest stays
consistent; the paper shows no figure of it. Here the same forest learns the same events with at
most 10, 100 and 1,000 active leaves a tree and without a bound: accuracy on held-out rows, bytes
of the fringe, bytes in all. Two streams: the five Gaussians with the settings of Fig. 2, and
letters (26 classes) or, where that recorded set is missing, the digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.bench.denil import mixture
from streamforest.bench.denil.common import (
    Curve,
    Figure,
    Options,
    Panel,
    Watcher,
    accuracy,
    learn,
    log_spaced,
    transposed,
)

BOUNDS: tuple[int | None, ...] = (10, 100, 1_000, None)
LETTER_SETTINGS: dict[str, Any] = {
    "lam": 4.0,
    "n_splits": 10,
    "tau": 0.01,
    "alpha0": 2.0,
    "alpha_growth": 1.05,
    "beta_factor": 100.0,
}
Y_AXES = (
    ("accuracy on held-out events", "share"),
    ("bytes of the fringe", "bytes"),
    ("bytes of fringe and trees", "bytes"),
)
MAX_NODES = 1 << 20
TITLE = "The fringe bound: accuracy and memory"


@dataclass(frozen=True)
class Rows:
    """Training rows in order and held-out rows of one stream, with the Bayes rule's share there."""

    X: NDArray[np.float64]
    y: NDArray[Any]
    test_X: NDArray[np.float64]
    test_y: NDArray[Any]
    bayes: float | None = None


@dataclass(frozen=True)
class Source:
    """A stream of the figure: its name, the forest's settings for it, and its rows by seed."""

    name: str
    settings: dict[str, Any]
    passes: int

    def rows(self, events: int, seed: int) -> Rows:
        """`events` training rows (fewer where the set is smaller) and the rows held out."""
        from streamforest.datasets import digits, gaussians, recorded

        if self.name == "gaussians":
            # the same held-out rows in every run: the spread is then the forest's, not the rows'
            stream, test = gaussians(events, seed=seed), gaussians(20_000, seed=1_000_000)
            return Rows(stream.X, stream.y, test.X, test.y, test.bayes_rate)
        stream = recorded("letter") if self.name == "letter" else digits(passes=1)
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(stream))
        held = order[: len(stream) // 5]
        passes = [rng.permutation(order[len(held) :]) for _ in range(self.passes)]
        train = np.concatenate(passes)[:events]
        return Rows(stream.X[train], stream.y[train], stream.X[held], stream.y[held])


def sources() -> tuple[list[Source], list[str]]:
    """The two streams, and a note if one replaces another."""
    from streamforest.datasets import unavailable

    first = Source("gaussians", mixture.SETTINGS, 1)
    if reason := unavailable("letter"):
        second = Source("digits", LETTER_SETTINGS, 10)
        return [first, second], [f"digits instead of letter: {reason}"]
    return [first, Source("letter", LETTER_SETTINGS, 4)], []


def bound_name(bound: int | None) -> str:
    """The name of a bound in tables and legends."""
    return "unbounded" if bound is None else f"at most {bound:,}"


def measure(
    source: Source,
    rows: Rows,
    points: list[int],
    bound: int | None,
    forest: dict[str, Any],
    watcher: Watcher,
) -> list[tuple[float, float, float]]:
    """(accuracy, fringe bytes, total bytes) at each number of events."""
    from streamforest import ConsistentForestClassifier

    model = ConsistentForestClassifier(
        **source.settings,
        **forest,
        max_fringe=bound,
        max_fringe_bytes=mixture.UNBOUNDED_BYTES,
        max_nodes=MAX_NODES,
    )
    values: list[tuple[float, float, float]] = []
    done = 0
    for n in points:
        learn(model, rows.X[done:n], rows.y[done:n])
        done = n
        size = model.summary()
        right = accuracy(model, rows.test_X, rows.test_y)
        values.append((right, float(size["fringe_bytes"]), float(size["total_bytes"])))
        watcher.update(n)
    return values


def cost_of_bounds(accuracies: Panel, fringes: Panel) -> str:
    """What each bound costs and keeps, against no bound, after the last event."""
    right = [curve.mean[-1] for curve in accuracies.curves]
    used = [curve.mean[-1] for curve in fringes.curves]
    costs = [
        f"{curve.name} gives {right[k] - right[-1]:+.3f} with {used[k] / used[-1]:.1%} of the bytes"
        for k, curve in enumerate(accuracies.curves[:-1])
    ]
    return f"{accuracies.title}, against an unbounded fringe: {'; '.join(costs)}."


def run(options: Options, watcher: Watcher) -> Figure:
    """Measure both streams under every bound."""
    runs = options.runs or (1 if options.quick else 3)
    trees = options.trees or (5 if options.quick else 20)
    events = options.events or (2_000 if options.quick else 60_000)
    streams, notes = sources()
    panels: list[Panel] = []
    for source in streams:
        by_bound: dict[str, list[list[list[float]]]] = {}
        data = [source.rows(events, options.seed + r) for r in range(runs)]
        points = log_spaced(100, len(data[0].y), 5 if options.quick else 10)
        for bound in BOUNDS:
            name = bound_name(bound)
            measured = []
            for r, rows in enumerate(data):
                watcher.begin(f"{source.name}, {name}, run {r + 1} of {runs}", points[-1])
                forest = {"n_trees": trees, "n_jobs": options.n_jobs, "seed": options.seed + r}
                measured.append(measure(source, rows, points, bound, forest, watcher))
            by_bound[name] = transposed(measured)
        x = [float(n) for n in points]
        for k, (y_label, unit) in enumerate(Y_AXES):
            curves = [Curve(name, x, values[k]) for name, values in by_bound.items()]
            panels.append(Panel(source.name, "training events", y_label, curves, unit=unit))
        if (rate := data[0].bayes) is not None:
            panels[-len(Y_AXES)].levels[f"{mixture.BAYES} on these rows"] = rate
    return Figure(
        key="fringe",
        title=TITLE,
        settings={
            "trees": trees,
            "runs": runs,
            "bounds": [bound_name(bound) for bound in BOUNDS],
            **{source.name: source.settings for source in streams},
        },
        panels=panels,
        facts={
            f"{panel.title}, {panel.y_label}": {
                curve.name: round(curve.mean[-1], 4) for curve in panel.curves
            }
            for panel in panels
        },
        findings=[cost_of_bounds(*panels[k : k + 2]) for k in (0, len(Y_AXES))] + notes,
    )
