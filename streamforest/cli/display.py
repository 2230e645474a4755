"""What a person sees of a run: progress on stderr while it goes, a report on stdout at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from streamforest.observe.measures import ModelMeasures
from streamforest.runtime.processing.loop import Run

_LINE_EVERY = 2.0  # seconds between two lines where there is no terminal
_BLOCKS = "▁▂▃▄▅▆▇█"

Watcher = Callable[[Run], None]


@contextmanager
def progress(run: Run, name: str, total: int | None, quiet: bool = False) -> Iterator[Watcher]:
    """Something to call after each batch: a bar on a terminal, now and then a line elsewhere."""
    console = Console(stderr=True)
    if quiet:
        yield lambda run: None
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}", markup=False),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(name, total=total, completed=run.events, shown="")
            yield lambda run: bar.update(task, completed=run.events, shown=_standing(run))
    else:
        yield _lines(console, name, total)


def _lines(console: Console, name: str, total: int | None) -> Watcher:
    last = time.monotonic()

    def watch(run: Run) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_EVERY:
            last = time.monotonic()
            line = f"{name}: {_of(run.events, total)} events, {_standing(run)}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    return watch


def _of(events: int, total: int | None) -> str:
    return f"{events:,}" if total is None else f"{events:,} of {total:,}"


def _standing(run: Run) -> str:
    measures = run.measures[run.main]
    return (
        f"accuracy {percent(measures.totals.accuracy)} "
        f"(last {len(measures.recent)}: {percent(measures.recent.accuracy)}), "
        f"{measures.totals.classes} classes, {run.state.pace.rate:,.0f} events/s"
    )


def report(run: Run, name: str, total: int | None = None) -> str:
    """The closing report on the model that publishes, a few lines of plain text."""
    measures = run.measures[run.main]
    totals = measures.totals
    rows = [
        ("events", f"{_of(run.events, total)}, {totals.classes} classes"),
        ("accuracy", f"{percent(totals.accuracy)}, kappa {number(totals.kappa)}"),
        ("by class age", _ages(measures)),
        ("over time", sparkline(measures.recent.curve())),
        ("speed", f"{run.state.pace.rate:,.0f} events/s, predictions and snapshots included"),
        ("latency", _latency(measures)),
        ("snapshots", str(run.snapshots.path)),
    ]
    return "\n".join([name, *(f"  {label:<13} {text}" for label, text in rows if text)])


def _ages(measures: ModelMeasures) -> str:
    """Accuracy over a class's first events, its next ones and so on; empty ages are left out."""
    shown = [f"{b.name}: {percent(b.accuracy)}" for b in measures.totals.ages() if b.events]
    return "   ".join(shown)


def _latency(measures: ModelMeasures) -> str:
    if not measures.per_batch.total:
        return ""
    event, batch = (
        f"{duration(h.quantile(0.5))} / {duration(h.quantile(0.99))}"
        for h in (measures.per_event, measures.per_batch)
    )
    return f"p50 / p99 per batch {batch}, per event {event}"


def percent(share: float | None) -> str:
    """A share as people read it.

    >>> percent(0.9234), percent(None)
    ('92.3 %', '–')
    """
    return "–" if share is None else f"{share:.1%}".replace("%", " %")


def number(value: float | None) -> str:
    """Three decimals, or a dash where there is no number."""
    return "–" if value is None else f"{value:.3f}"


def duration(seconds: float) -> str:
    """A short time with its unit.

    >>> duration(0.0000123), duration(0.0042), duration(1.5)
    ('12 µs', '4.2 ms', '1.5 s')
    """
    unit, size = next(((u, s) for u, s in (("s", 1.0), ("ms", 1e-3)) if seconds >= s), ("µs", 1e-6))
    value = seconds / size
    return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"


def sparkline(values: list[float]) -> str:
    """A curve as a row of blocks from its lowest to its highest value, and what those are.

    >>> sparkline([0.5, 0.75, 1.0])
    '▁▅█ (50.0 % to 100.0 %)'
    """
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    blocks = "".join(_BLOCKS[round((value - low) * scale)] for value in values)
    return f"{blocks} ({percent(low)} to {percent(high)})"
