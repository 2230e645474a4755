"""The closing report of a run on stdout, and whether the run has failed its rows."""

from __future__ import annotations

from collections.abc import Mapping

from streamforest.io.codec.remedies import REMEDIES
from streamforest.observe.accounting import FAILED_SHARE, WARNING_SHARE, Refused, Summary
from streamforest.observe.measures import ModelMeasures
from streamforest.runtime.processing.loop import Run
from streamforest.text import shown

_MAX_COLUMNS = 8  # columns that are named because of their values
_BLOCKS = "▁▂▃▄▅▆▇█"


def report(run: Run, name: str, total: int | None = None) -> str:
    """What became of the rows, and how the models did: a few lines of plain text."""
    measures = run.measures[run.main]
    totals, summary = measures.totals, run.state.rows.summary()
    rows = [
        ("events", f"{count_of(summary.read, total)}, {totals.classes} classes"),
        ("rows", became(summary)),
        *_dead_letters(run.state.rows.refused),
        *_degraded(run),
        ("accuracy", _accuracy(measures) + _publishes(run)),
        *_categories(run),
        ("by class age", _ages(measures)),
        ("over time", sparkline(measures.recent.curve())),
        *_others(run),
        ("speed", f"{run.state.pace.rate:,.0f} events/s, predictions and snapshots included"),
        ("latency", _latency(measures)),
        ("snapshots", str(run.snapshots.path)),
    ]
    return "\n".join([name, *(f"  {label:<13} {text}" for label, text in rows if text)])


def became(summary: Summary) -> str:
    """What became of the events, in one line; what did not happen is left out.

    >>> became(Summary(read=10, learned=6, predicted_only=1, waiting=0, dead_letters=3))
    '6 learned, 1 predicted only, 3 dead letters (30.0 %)'
    """
    parts = [f"{summary.learned:,} learned"]
    if summary.predicted_only:
        parts.append(f"{summary.predicted_only:,} predicted only")
    if summary.waiting:
        parts.append(f"{summary.waiting:,} waiting for labels")
    if summary.dead_letters:
        parts.append(f"{letters(summary.dead_letters)} ({percent(summary.dead_letter_share)})")
    return ", ".join(parts)


def letters(count: int) -> str:
    """So many dead letters, in words."""
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def _dead_letters(refused: Mapping[str, Refused]) -> list[tuple[str, str]]:
    """For each reason: how many, the first one, and what to do about them."""
    lines: list[tuple[str, str]] = []
    for reason, dead in sorted(refused.items(), key=lambda item: -item[1].count):
        lines.append(("", f"{reason} {dead.count:,}, the first at {dead.place}: {dead.message}"))
        lines.append(("", f"  remedy: {REMEDIES.get(reason, 'see the message')}"))
    if lines:
        lines[0] = ("dead letters", lines[0][1])
    return lines


def _degraded(run: Run) -> list[tuple[str, str]]:
    """Columns whose values were not all taken as they are."""
    capacity = run.state.gate.capacity()
    found = [
        f"{column.misfits:,} values of {shown(column.name)} are no {column.type}, and count as missing, e.g. "
        f"{column.example}"
        for column in run.state.reader.describe()
        if column.misfits
    ]
    found += [
        f"{shown(name)} is different in nearly every row, and counts as missing"
        for name in capacity["dropped"]
    ]
    found += [
        f'{shown(name)} has too many categories: in {rows:,} rows it counts as "other"'
        for name, rows in capacity["other"].items()
    ]
    if capacity["left_out"]:
        found.append(
            f"{capacity['left_out']:,} values of features beyond max_features are left out"
        )
    more = len(found) - _MAX_COLUMNS
    lines = [("", text) for text in found[:_MAX_COLUMNS]]
    lines += [("", f"and {more:,} more")] if more > 0 else []
    return [("columns", lines[0][1]), *lines[1:]] if lines else []


def shortfall(
    summary: Summary, late: bool, letters_in: str, finished: bool = True
) -> tuple[str | None, bool]:
    """What is wrong with what became of the rows of a finished run, and whether it has failed.

    More than 1 % dead letters are worth a warning; more than half are a failure, and so is nothing learned
    at the end of the source (`finished`).
    """
    if not summary.read:
        return None, False
    share = summary.dead_letter_share
    if share > FAILED_SHARE or (finished and summary.dead_letters and not summary.learned):
        nothing = "" if summary.learned else ", and nothing was learned"
        return f"{_share(summary)} are dead letters{nothing}: {letters_in}", True
    if finished and not summary.learned:
        why = (
            "no label came for any of them; labels are matched by id"
            if late
            else "none of them has a label that is a class (features.label, limits.min_class_events); "
            "`streamforest check` shows what each column is taken for"
        )
        return f"nothing was learned of {summary.read:,} events: {why}", True
    if share > WARNING_SHARE:
        return f"{_share(summary)} are dead letters: {letters_in}", False
    return None, False


def _share(summary: Summary) -> str:
    share = percent(summary.dead_letter_share)
    return f"{summary.dead_letters:,} of {summary.read:,} events ({share})"


def count_of(events: int, total: int | None) -> str:
    """How many events of how many, where that is known."""
    return f"{events:,}" if total is None else f"{events:,} of {total:,}"


def _accuracy(measures: ModelMeasures) -> str:
    totals = measures.totals
    return f"{percent(totals.accuracy)}, kappa {number(totals.kappa)}"


def _categories(run: Run) -> list[tuple[str, str]]:
    """Accuracy of categories, and classes that came after one; nothing without coarse labels."""
    lines = [
        (
            "categories" if name == run.main else "shadow",
            ("" if name == run.main else f"{name}: categories ")
            + f"accuracy {percent(measures.coarse.accuracy)}, kappa {number(measures.coarse.kappa)}, "
            f"{measures.coarse.labelled:,} events, {measures.coarse.classes} categories",
        )
        for name, measures in run.measures.items()
        if measures.coarse.labelled
    ]
    counts = {} if run.state.late is None else run.state.late.counts
    refined, missed = counts.get("refined", 0), counts.get("refinement_missed", 0)
    if refined or missed:
        lines.append(
            ("refinements", f"{refined:,} classes after a coarse label, {missed:,} missed")
        )
    return lines


def _publishes(run: Run) -> str:
    """Which model it is, where there are several."""
    return f" ({run.main}, which publishes)" if len(run.measures) > 1 else ""


def _others(run: Run) -> list[tuple[str, str]]:
    """A row for each model that is only measured."""
    return [
        ("shadow", f"{name}: accuracy {_accuracy(measures)}")
        for name, measures in run.measures.items()
        if name != run.main
    ]


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


def size(count: int) -> str:
    """Bytes as people read them.

    >>> size(999), size(1_500), size(2_340_000), size(5_000_000_000)
    ('999 B', '1.5 kB', '2.3 MB', '5.0 GB')
    """
    for unit, bytes_of in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= bytes_of:
            return f"{count / bytes_of:.1f} {unit}"
    return f"{count} B"


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
