"""The parts of `bench incremental`: what is run for a set, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from streamforest.bench.incremental import baselines as others
from streamforest.bench.incremental import cost_and_novelty, protocol, report
from streamforest.bench.incremental.splits import ClassSet
from streamforest.bench.output import Panel

_MANY_ORDERS = 10
_LATENCY_EVENTS = 8_000
_COST_TREES = 50


@dataclass(frozen=True)
class Asked:
    """What the user wants to know."""

    data: ClassSet
    settings: protocol.Settings
    sweep: str | None
    orders: int
    say: protocol.Say


@dataclass
class Result:
    """What was found: shown on a console, written as JSON, drawn."""

    show: Callable[[Console], None]
    content: Any
    panels: Sequence[Panel] = field(default_factory=list)


def strategies(asked: Asked) -> Result:
    """The papers' protocol, once or for each value of a sweep."""
    data, settings = asked.data, asked.settings
    n_orders = _MANY_ORDERS if asked.sweep == "orders" else asked.orders
    variants = [("", settings)]
    if asked.sweep is not None and asked.sweep != "orders":
        variants = protocol.swept(settings, asked.sweep, data.classes)
    found = [
        (label, protocol.run_set(data, variant, range(n_orders), asked.say))
        for label, variant in variants
    ]

    def tell(console: Console) -> None:
        for label, one in found:
            report.print_set(console, one, f", {label}" if label else "")

    return Result(
        tell,
        [{"label": label, **one.as_json()} for label, one in found],
        [panel for _, one in found for panel in report.panels(one)],
    )


def baselines(asked: Asked) -> Result:
    """All classes at once, beside other models."""
    found = others.run(asked.data, asked.settings.trees, asked.settings.splits, say=asked.say)
    return Result(
        lambda console: others.print_baselines(console, asked.data, found),
        [one.as_json() for one in found],
    )


def cost(asked: Asked) -> Result:
    """Time of an answer by the number of classes."""
    found = cost_and_novelty.cost(asked.data, _COST_TREES, asked.settings.mu, asked.say)
    e = cost_and_novelty.exponent(found) if len(found) > 1 else None

    def tell(console: Console) -> None:
        table = Table(
            title=f"{asked.data.name}: time of an answer, {_COST_TREES} trees", title_justify="left"
        )
        for head in ("classes", "µs/event", "centroids met", "matrix–vector product µs", "ratio"):
            table.add_column(head, justify="right")
        for one in found:
            table.add_row(
                str(one.classes),
                f"{one.us:,.0f}",
                f"{one.centroids:,.0f}",
                f"{one.product_us:,.0f}",
                f"{one.us / one.product_us:.2f}",
            )
        console.print(table)
        if e is not None:
            console.print(f"time grows as classes to the power of {e:.2f}")

    content = {"exponent": e, "points": [asdict(one) for one in found]}
    return Result(tell, content, [cost_and_novelty.cost_panel(found)])


def latency(asked: Asked) -> Result:
    """`predict_one` while trees are grown."""
    import numpy as np

    data = asked.data
    order = np.random.default_rng(0).permutation(len(data.y))[:_LATENCY_EVENTS]
    found = cost_and_novelty.latency(data.X[order], data.y[order], asked.settings.trees, asked.say)

    def tell(console: Console) -> None:
        table = Table(
            title=f"{data.name}: predict_one, {asked.settings.trees} trees, wall clock",
            title_justify="left",
        )
        for head in ("rebuilding", "p50 µs", "p99 µs", "longest µs", "p99 over off", "trees grown"):
            table.add_column(head, justify="left" if head == "rebuilding" else "right")
        for one in found:
            table.add_row(
                one.rebuilding,
                f"{one.p50_us:,.0f}",
                f"{one.p99_us:,.0f}",
                f"{one.longest_us:,.0f}",
                f"{one.p99_us / found[0].p99_us:.2f}",
                str(one.grown),
            )
        console.print(table)

    return Result(tell, [asdict(one) for one in found])


def novelty(asked: Asked) -> Result:
    """AUROC of classes never seen, half of them held out."""
    asked.say(f"{asked.data.name}: novelty")
    found = cost_and_novelty.novelty(asked.data, asked.settings.trees, asked.orders)
    text = ", ".join(f"{value:.3f}" for value in found)
    line = (
        f"{asked.data.name}: AUROC of novelty, half of the {asked.data.classes} classes never seen: "
        f"{fmean(found):.3f} ({text})"
    )
    return Result(lambda console: console.print(line, soft_wrap=True), found)


PARTS: dict[str, Callable[[Asked], Result]] = {
    "strategies": strategies,
    "baselines": baselines,
    "cost": cost,
    "latency": latency,
    "novelty": novelty,
}
