"""What `check` says about the first records: what columns are taken for, and what would be refused."""

from __future__ import annotations

from collections.abc import Iterator

from streamforest.cli.report import became
from streamforest.io.codec.remedies import REMEDIES
from streamforest.io.features.columns import ColumnReport
from streamforest.runtime.operate.sample import Sample
from streamforest.text import printable, shown

_MAX_NAMES = 8  # columns of one type that are named
_MAX_NAME = 40  # characters of a name


def sample_lines(sample: Sample) -> Iterator[str]:
    """Lines for people, each with its label."""
    summary = sample.summary
    if not summary.read:
        yield f"{'sampled':<9} there is no record yet"
        return
    classes = f"{sample.classes:,} class{'' if sample.classes == 1 else 'es'}"
    yield f"{'sampled':<9} the first {summary.read:,} events: {became(summary)}, {classes}"
    label = "columns"
    for type_ in dict.fromkeys(column.type for column in sample.columns):
        columns = [column for column in sample.columns if column.type == type_]
        names = [_name(column, sample) for column in columns[:_MAX_NAMES]]
        more = len(columns) - len(names)
        names += [f"and {more:,} more"] if more else []
        yield f"{label:<9} {type_}: {', '.join(names)}"
        label = ""
    for column in sample.columns:
        if column.misfits:
            values = f"{column.misfits:,} values of {shown(column.name)} are no {column.type}"
            yield f"{'misfits':<9} {values}, and count as missing, e.g. {column.example}"
    for reason, refused in sample.refused.items():
        first = f"the first at {refused.place}: {refused.message}"
        yield f"{'refused':<9} {reason} {refused.count:,}, {first}"
        yield f"{'':<9} remedy: {REMEDIES.get(reason, 'see the message')}"
    for warning in sample.warnings:
        yield f"{'warning':<9} {warning}"


def _name(column: ColumnReport, sample: Sample) -> str:
    name = printable(column.name, _MAX_NAME)
    values = sample.categories.get(column.name)
    if values is not None:
        return f"{name} ({values:,} {'value' if values == 1 else 'values'})"
    return f"{name} ({column.features} features)" if column.features > 1 else name
