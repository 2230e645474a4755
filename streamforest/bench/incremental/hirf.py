"""The experiments of hi-RF (Xie et al., section IV): how many classes at first, in a batch, and boosting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from streamforest.bench.incremental.protocol import Found, Say, Settings, run_set
from streamforest.bench.incremental.report import mean_spread
from streamforest.bench.incremental.splits import ClassSet

_INITIAL = (0.1, 0.3, 0.5, 0.7, 0.9)
_STEPS = (1, 5, 10)
_BOOST = (0.0, 0.01, 0.1)


@dataclass
class Experiment:
    """One parameter varied."""

    title: str
    found: list[tuple[str, Found]]

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {
            "experiment": self.title,
            "values": [{"value": label, **found.as_json()} for label, found in self.found],
        }


def run(data: ClassSet, trees: int, orders: int, say: Say) -> Iterator[Experiment]:
    """The three experiments on one set."""
    settings = Settings(strategies=("hirf",), trees=trees)
    few = max(2, min(10, data.classes // 2))

    def measured(**changed: Any) -> Found:
        return run_set(data, replace(settings, **changed), range(orders), say)

    yield Experiment(
        "initial classes",
        [
            (f"{100 * share:.0f} %", measured(initial=max(2, round(share * data.classes))))
            for share in _INITIAL
        ],
    )
    yield Experiment(
        f"classes of a batch, from {few}",
        [
            (str(step), measured(initial=few, chunk=step))
            for step in _STEPS
            if step < data.classes - few
        ],
    )
    yield Experiment(
        "out-of-bag boosting", [(f"α {alpha:g}", measured(oob_boost=alpha)) for alpha in _BOOST]
    )


def print_experiment(console: Console, data: ClassSet, experiment: Experiment) -> None:
    """One table an experiment."""
    table = Table(title=f"{data.name}: {experiment.title}", title_justify="left")
    heads = ("", "retrained", "hi-RF", "points below", "oldest", "newest", "training time")
    for head in heads:
        table.add_column(head, justify="right")
    for label, found in experiment.found:
        ours, base = found.of("hirf", "ncm"), found.of("retrained", "ncm")
        gaps = [100 * (b.last.accuracy - o.last.accuracy) for o, b in zip(ours, base)]
        table.add_row(
            label,
            mean_spread([course.last.accuracy for course in base]),
            mean_spread([course.last.accuracy for course in ours]),
            mean_spread(gaps, 2),
            mean_spread([course.last.oldest for course in ours]),
            mean_spread([course.last.newest for course in ours]),
            mean_spread([found.time_ratio(course) for course in ours], 2),
        )
    console.print(table)
