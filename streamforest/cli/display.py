"""Progress on a terminal while a run goes on; where there is none, the log says what happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from streamforest.cli.report import count_of, letters, percent
from streamforest.observe.logs import above
from streamforest.runtime.processing.loop import Run
from streamforest.text import printable

_MAX_NAME = 20  # characters of the pipeline's name beside the bar

Watcher = Callable[[Run], None]


@contextmanager
def progress(run: Run, name: str, total: int | None, quiet: bool = False) -> Iterator[Watcher]:
    """Something to call after each poll: a bar on a terminal, nothing elsewhere.

    The bar takes what the text leaves of the line, so that 80 columns are enough.
    """
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda run: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[shown]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task(
            printable(name, _MAX_NAME),
            total=total,
            completed=run.events,
            shown=standing(run, total),
        )

        def write(line: str) -> None:
            bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

        with above(write):
            yield lambda run: bar.update(task, completed=run.events, shown=standing(run, total))


def standing(run: Run, total: int | None) -> str:
    """Where a run is, in at most 70 characters: events, accuracy, dead letters, speed."""
    summary = run.state.rows.summary()
    if not summary.read and run.waiting_for is not None:
        return run.waiting_for
    parts = [count_of(summary.read, total).replace(" of ", "/")]
    recent = run.measures[run.main].recent.accuracy
    if recent is not None:
        parts.append(percent(recent))
    if summary.waiting:
        parts.append(f"{summary.waiting:,} wait")
    if summary.dead_letters:
        parts.append(letters(summary.dead_letters))
    return " · ".join([*parts, f"{run.state.pace.recent_rate:,.0f}/s"])
