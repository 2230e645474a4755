"""The experiments of hi-RF (Xie et al. 2017, section IV), with the published algorithm and its settings.

Fig. II: a forest of n % of the classes gets all others in *one* increment, n = 10 … 90. Figs III to V: from
10 classes on one by one to 20, five by five to 50, ten by ten to 100, with and without out-of-bag boosting.
The paper's trees are grown to purity; 50 of them. It gives no number of sides tried at a node: 1024, as in
the papers it builds on.

Shares of time are of retraining: in Fig. II once, of a forest trained right before on the same rows; in the
others at every batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from streamforest.bench.incremental.protocol import (
    RETRAINED,
    VARIANTS,
    Point,
    Say,
    Settings,
    point,
    run_set,
)
from streamforest.bench.incremental.report import mean_spread
from streamforest.bench.incremental.splits import ClassSet

SHARES = tuple(n / 100 for n in range(10, 100, 10))
_BATCHES = (("III", 1, 20), ("IV", 5, 50), ("V", 10, 100))
_FIRST = 10
PUBLISHED, GROWING = "hirf", "hirf-growing"
NAMES = {
    PUBLISHED: "published",
    GROWING: "kept trees grow (ours)",
    "hirf-unboosted": "not boosted",
    "hirf-weighted": "weighted out-of-bag error (ours)",
}


@dataclass
class Line:
    """A variant of hi-RF against retraining, in one order of the classes."""

    figure: str
    label: str
    variant: str
    order: int
    retrained: float
    accuracy: float
    oldest: float
    newest: float
    time_share: float
    test_us: float

    @property
    def below(self) -> float:
        """Points below the retrained forest."""
        return 100 * (self.retrained - self.accuracy)


@dataclass
class Experiment:
    """One figure on one set."""

    title: str
    lines: list[Line]

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {"experiment": self.title, "lines": [asdict(line) for line in self.lines]}


def run(
    data: ClassSet, settings: Settings, orders: int, say: Say, figures: Sequence[str] = ()
) -> Iterator[Experiment]:
    """The four figures on one set, or those that are named."""
    say(f"{data.name}: compiling")
    for name in ("igt", PUBLISHED, GROWING):
        settings.forest(name, "ncm", 2).warm_up()
    if not figures or "II" in figures:
        yield Experiment(
            "Fig. II: one increment, from n % of the classes",
            one_increment(data, settings, orders, say),
        )
    for figure, step, last in _BATCHES:
        last = min(last, data.classes)
        first = min(_FIRST, last // 2)
        title = f"Fig. {figure}: from {first} to {last} classes, {step} at a time"
        if step < last - first and (not figures or figure in figures):
            yield Experiment(
                title, in_batches(data, settings, orders, figure, first, step, last, say)
            )


def one_increment(data: ClassSet, settings: Settings, orders: int, say: Say) -> list[Line]:
    """Fig. II. Each share is timed against a forest that was trained right before it."""
    lines = []
    for order in range(orders):
        ordered = data.in_order(order)
        classes, everything = ordered.classes, len(ordered.y)
        for share in SHARES:
            begin = ordered.rows_below(max(2, round(share * classes)))
            base = settings.forest("igt", "ncm", everything)
            begun = time.process_time()
            base.fit_many(ordered.X, ordered.y)
            whole = time.process_time() - begun
            best = point(base, ordered, classes, whole)
            for variant in (PUBLISHED, GROWING):
                say(f"{data.name}, order {order}: from {100 * share:.0f} %, {NAMES[variant]}")
                forest = settings.forest(variant, "ncm", everything)
                forest.fit_many(ordered.X[:begin], ordered.y[:begin])
                begun = time.process_time()
                forest.extend_many(ordered.X[begin:], ordered.y[begin:])
                spent = time.process_time() - begun
                reached = point(forest, ordered, classes, spent)
                label = f"{100 * share:.0f} %"
                lines.append(_line("II", label, variant, order, best, reached, spent / whole))
    return lines


def in_batches(
    data: ClassSet,
    settings: Settings,
    orders: int,
    figure: str,
    first: int,
    step: int,
    last: int,
    say: Say,
) -> list[Line]:
    """Figs III to V: boosted and not, and our correction of the out-of-bag error beside them."""
    variants = tuple(VARIANTS)
    changed = replace(settings, strategies=variants, initial=first, chunk=step, classes=last)
    found = run_set(data, changed, range(orders), say)
    lines = []
    for variant in variants:
        for course, base in zip(found.of(variant, "ncm"), found.of(RETRAINED, "ncm")):
            share = found.time_ratio(course)
            lines.append(
                _line(
                    figure, f"{last} classes", variant, course.order, base.last, course.last, share
                )
            )
    return lines


def _line(
    figure: str, label: str, variant: str, order: int, base: Point, reached: Point, share: float
) -> Line:
    return Line(
        figure=figure,
        label=label,
        variant=variant,
        order=order,
        retrained=base.accuracy,
        accuracy=reached.accuracy,
        oldest=reached.oldest,
        newest=reached.newest,
        time_share=share,
        test_us=reached.test_us,
    )


def print_experiment(console: Console, data: ClassSet, experiment: Experiment) -> None:
    """One table an experiment; Fig. II has the mean over n in its last rows."""
    table = Table(title=f"{data.name}: {experiment.title}", title_justify="left")
    table.add_column("")
    table.add_column("hi-RF")
    heads = (
        "retrained",
        "accuracy",
        "points below",
        "oldest",
        "newest",
        "training time",
        "test µs",
    )
    for head in heads:
        table.add_column(head, justify="right")
    variants = list(dict.fromkeys(line.variant for line in experiment.lines))
    labels = list(dict.fromkeys(line.label for line in experiment.lines))
    for variant in variants:
        own = [line for line in experiment.lines if line.variant == variant]
        for label in labels:
            table.add_row(*_cells(label, variant, [line for line in own if line.label == label]))
        if len(labels) > 1:
            table.add_row(*_cells("mean", variant, own), style="bold", end_section=True)
    console.print(table)


def _cells(label: str, variant: str, lines: list[Line]) -> list[str]:
    return [
        label,
        NAMES[variant],
        mean_spread([line.retrained for line in lines]),
        mean_spread([line.accuracy for line in lines]),
        mean_spread([line.below for line in lines], 2),
        mean_spread([line.oldest for line in lines]),
        mean_spread([line.newest for line in lines]),
        mean_spread([line.time_share for line in lines], 2),
        f"{fmean(line.test_us for line in lines):,.0f}",
    ]
