"""The tables of `bench forest`. To add a column, add an entry to `COLUMNS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from streamforest import datasets
from streamforest.bench.forest import models
from streamforest.bench.forest.comparison import Settings
from streamforest.bench.forest.contestant import BATCH
from streamforest.bench.forest.measurement import Latency
from streamforest.bench.forest.results import ForestResult, Row, Runs, StreamResult
from streamforest.bench.machine import choose_core
from streamforest.bench.output import versions_line

NONE = "–"

EARLY = 1_000
"""Events at which a model is still young."""

Cell = Callable[[StreamResult, Row, Runs], str]


@dataclass(frozen=True)
class Column:
    """A column of the table: its heading, and its cell for a measured model."""

    title: str
    cell: Cell


def _accuracy(result: StreamResult, row: Row, runs: Runs) -> str:
    mark = "*" if runs.truncated else ""
    return f"{runs.accuracy():.4f}{mark}"


def _lead(result: StreamResult, row: Row, runs: Runs) -> str:
    reference = result.reference
    if reference is None or row is reference:
        return NONE
    return f"{100 * row.lead_over(reference):+.2f}"


def _ratio(reference: Row | None, row: Row) -> str:
    return NONE if reference is None else f"{row.slower_than(reference):,.3g}×"


def _memory(result: StreamResult, row: Row, runs: Runs) -> str:
    return NONE if runs.memory_bytes is None else f"{runs.memory_bytes / 1e6:,.1f}"


def _latency(found: Latency | None) -> str:
    return NONE if found is None else " / ".join(f"{value:,.0f}" for value in found)


def _recall(result: StreamResult, row: Row, runs: Runs) -> str:
    value = runs.events_to_recall(result.stream)
    return f"{value:.0f}" if value < float("inf") else "never"


COLUMNS: tuple[Column, ...] = (
    Column("trees", lambda result, row, runs: NONE if row.trees is None else str(row.trees)),
    Column("accuracy", _accuracy),
    Column("kappa", lambda result, row, runs: f"{runs.kappa:.3f}"),
    Column("kappa-t", lambda result, row, runs: f"{runs.kappa_temporal(result.stream):.3f}"),
    Column("first 1,000", lambda result, row, runs: f"{runs.accuracy(EARLY):.4f}"),
    Column("points above ours", _lead),
    Column("events/s", lambda result, row, runs: f"{runs.events_per_second:,.0f}"),
    Column("ours by dicts is", lambda result, row, runs: _ratio(result.reference, row)),
    Column("by batches", lambda result, row, runs: _ratio(result.reference_batches, row)),
    Column("MB", _memory),
    Column(
        "predict µs p50 / p99 / max",
        lambda result, row, runs: _latency(runs.latency("predict_us")),
    ),
    Column(
        "learn µs p50 / p99 / max", lambda result, row, runs: _latency(runs.latency("learn_us"))
    ),
)


NEW_CLASSES = Column("new class at 80 % after", _recall)
"""Columns for streams whose classes come one after the other."""


def columns_of(result: StreamResult) -> tuple[Column, ...]:
    """The columns of the table of one stream."""
    scheduled = datasets.get_spec(result.stream.name).scheduled
    return (*COLUMNS[:2], NEW_CLASSES, *COLUMNS[2:]) if scheduled else COLUMNS


def print_stream(console: Console, result: StreamResult) -> None:
    """The tables of one stream."""
    console.print(_equal_trees_table(result))
    for row in result.rows.values():
        if row.note:
            console.print(f"  {row.spec.about}: {row.note}", style="yellow", markup=False)
    if result.equal_cpu:
        console.print(_equal_cpu_table(result))
    for reason in result.equal_cpu_failed:
        console.print(f"  {reason}", style="yellow", markup=False)
    console.print()


def print_foot(console: Console, result: ForestResult) -> None:
    """What was skipped, how things were measured and with which versions."""
    for name, reason in result.skipped.items():
        console.print(f"{name}: skipped, {reason}", style="yellow", markup=False, soft_wrap=True)
    console.print(_how_measured(result), style="dim", markup=False)


def _title(result: StreamResult) -> str:
    stream = result.stream
    title = (
        f"{stream.name} ({stream.about}): {len(stream):,} events, "
        f"{len(stream.features)} features, {len(stream.classes)} classes"
    )
    rate = stream.bayes_rate
    return title if rate is None else f"{title}, Bayes rule {rate:.4f}"


def _equal_trees_table(result: StreamResult) -> Table:
    table = Table(title=_title(result), title_justify="left")
    table.add_column("model", no_wrap=True)
    columns = columns_of(result)
    for column in columns:
        table.add_column(column.title, justify="right")
    for row in result.rows.values():
        if row.runs is None or row.failed:
            cells = ["absent" if row.absent else "failed"] + [""] * (len(columns) - 1)
        else:
            cells = [column.cell(result, row, row.runs) for column in columns]
        table.add_row(row.spec.about, *cells)
    return table


def _equal_cpu_table(result: StreamResult) -> Table:
    table = Table(title=f"{result.stream.name}, at equal CPU time", title_justify="left")
    for title in ("rival", "trees", "accuracy", "CPU µs/event", "ours", "trees", "accuracy"):
        table.add_column(title, justify="left" if title in ("rival", "ours") else "right")
    table.add_column("CPU µs/event", justify="right")
    table.add_column("events", justify="right")
    for match in result.equal_cpu:
        assert match.rival.runs is not None
        table.add_row(
            match.rival.spec.about,
            NONE if match.rival.trees is None else str(match.rival.trees),
            f"{match.rival.runs.accuracy(match.runs.events):.4f}",
            f"{match.rival.runs.cpu_us(match.runs.events):,.1f}",
            match.ours.spec.about,
            f"{match.trees} (most allowed)" if match.capped else str(match.trees),
            f"{match.runs.accuracy():.4f}",
            f"{match.runs.cpu_us():,.1f}",
            f"{match.runs.events:,}",
        )
    return table


def _how_measured(result: ForestResult) -> str:
    settings = result.settings
    core = choose_core()
    where = "not pinned to a core (this system cannot)" if core is None else f"on core {core}"
    truncated = any(
        row.runs.truncated
        for stream_result in result.streams
        for row in stream_result.rows.values()
        if row.runs is not None
    )
    lines = [
        f"A process for each model, {where}, Java's own threads included. "
        f"Runs interleaved: {settings.repeats} for each of {_seeds(settings)} seeds; "
        "speed and latency are medians, accuracy is the mean over seeds.",
        "Events/s by CPU time of predict and learn, after a warm-up. 'Ours … is n×': our forest "
        "takes 1/n of the row's CPU time; "
        f"batches are of {BATCH} rows. MB: memory the process gained by the run; "
        "for Java the live heap.",
        "Kappa: accuracy beyond chance; kappa-t: beyond answering with the label before (below 0: worse).",
    ]
    kept = sum(stream_result.kept for stream_result in result.streams)
    if kept:
        lines.append(
            f"{kept} runs were measured earlier, with the same versions: {settings.resume}"
        )
    if any(datasets.get_spec(one.stream.name).scheduled for one in result.streams):
        lines.append(
            "New class at 80 % after: its own events until 4 of its last 5 were right; the median over "
            "the classes, first run."
        )
    if truncated:
        lines.append(
            "* cut short by the budget: accuracy and events/s are over fewer events. Comparisons "
            "with ours are always over the same events."
        )
    return "\n".join([*lines, versions_line()])


def _seeds(settings: Settings) -> str:
    if settings.short_seeds and settings.short_seeds != settings.seeds:
        return f"{len(settings.seeds)} (short streams {len(settings.short_seeds)})"
    return str(len(settings.seeds))


def print_listing(console: Console) -> None:
    """The names that `--stream` and `--model` take."""
    for title, entries in (
        ("Streams", [(name, datasets.get_spec(name).about) for name in datasets.names()]),
        (
            "Streams that no setting was chosen on (--held-out)",
            [(name, datasets.get_spec(name).about) for name in datasets.names(held_out=True)],
        ),
        (
            "Streams whose classes come one after the other (--scheduled)",
            [(name, datasets.get_spec(name).about) for name in datasets.names(scheduled=True)],
        ),
        (
            "Whole recordings (--profile full)",
            [(name, datasets.get_spec(name).about) for name in datasets.names(long=True)],
        ),
        ("Models", [(name, models.get_spec(name).about) for name in models.names()]),
        (
            "Models that run only when named",
            [(name, models.get_spec(name).about) for name in models.names(extra=True)],
        ),
    ):
        table = Table(title=title, title_justify="left", show_header=False)
        for name, about in entries:
            table.add_row(name, about)
        console.print(table)
