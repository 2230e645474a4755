"""`streamforest model`: look into a trained model, ask it about events, let it explain an answer."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from streamforest.cli import LazyGroup
from streamforest.cli.arguments import PARTITION, SET
from streamforest.cli.report import number, percent, size
from streamforest.errors import ConfigError
from streamforest.io.codec.events import Prediction, encode_prediction
from streamforest.io.features.rules import FeatureRules
from streamforest.observe.accounting import FAILED_SHARE
from streamforest.private_files import create
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.operate.model import (
    OpenModel,
    Refused,
    event_of,
    open_pipeline,
    open_snapshot,
)
from streamforest.text import printable, printable_lines, shown

_MAX_REFUSED = 5  # refused rows that are named
_MAX_FEATURES = 6

TARGET = click.argument("target", metavar="SNAPSHOT|PIPELINE", type=click.Path(path_type=Path))
FILE = click.argument("file", required=False, type=click.Path(path_type=Path))
SNAPSHOT = click.option(
    "--snapshot", default=None, metavar="NAME", help="Of a pipeline: this one, not the newest."
)
MODEL = click.option(
    "--model", "name", default=None, help="A shadow by its name; default: the model that publishes."
)
LABEL = click.option(
    "--label",
    default=None,
    metavar="FIELD",
    help="The field that holds the label, for a model that streamforest.save wrote (default: y). A run's "
    "snapshot knows it.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")


@click.group(cls=LazyGroup)
def model() -> None:
    """Look into a trained model, ask it about events, let it explain an answer.

    The model is that of a snapshot (a file, or a run folder for its newest one) or of a pipeline file.
    Nothing is learned or changed, and the pipeline may keep running.
    """


def _open(
    target: Path,
    settings: tuple[str, ...],
    snapshot: str | None,
    partition: int | None,
    label: str | None = None,
) -> OpenModel:
    if target.suffix == ".toml":
        if label is not None:
            raise click.UsageError("--label: the pipeline file says it (features.label)")
        loaded = load_pipeline(target, os.environ, settings)
        return open_pipeline(loaded, snapshot, partition)
    for given, option in (
        (settings, "--set"),
        (snapshot, "--snapshot"),
        (partition, "--partition"),
    ):
        if given not in (None, ()):
            raise click.UsageError(f"{option}: for a pipeline file only")
    opened = open_snapshot(target, None if label is None else FeatureRules(label=label))
    if label is not None and opened.source is not None:
        raise click.UsageError(
            f"--label: the run's snapshot says it already ({shown(opened.rules.label)})"
        )
    return opened


@model.command()
@TARGET
@SET
@SNAPSHOT
@PARTITION
@click.option(
    "--classes",
    type=click.IntRange(0),
    default=30,
    show_default=True,
    help="List so many classes, the newest first.",
)
@JSON
def inspect(
    target: Path,
    settings: tuple[str, ...],
    snapshot: str | None,
    partition: int | None,
    classes: int,
    as_json: bool,
) -> None:
    """Show what a model has become: classes, trees, memory, experts, and what it was fed from.

    \b
    Examples:
      streamforest model inspect pipelines/digits.toml
      streamforest model inspect runs/digits --json
    """
    about = _open(target, settings, snapshot, partition).describe()
    if as_json:
        click.echo(json.dumps(about, default=str))
        return
    for line in _described(about, classes):
        click.echo(line)


def _described(about: dict[str, Any], most: int) -> list[str]:
    written = "" if about["written"] is None else f", written {printable(about['written'], 40)}"
    lines = [f"{printable(about['snapshot'])}: {size(about['bytes'])}{written}"]
    if about["source"] is not None:
        rows, fed = about["rows"], about["source"]
        named = ", ".join(
            f"{key} {shown(value)}"
            for key, value in fed.items()
            if isinstance(value, str | int) and key != "checksum"
        )
        lines.append(_fact("fed from", named))
        lines.append(_fact("events", f"{about['events']:,} read, {rows['learned']:,} learned"))
        lines += _columns(about["columns"])
    for name, one in about["models"].items():
        lines += ["", *_model_lines(name, one, most)]
    return lines


def _fact(label: str, text: str) -> str:
    return f"  {label:<11} {text}"


def _columns(columns: list[dict[str, Any]]) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for column in columns:
        kinds.setdefault(column["type"], []).append(str(column["name"]))
    parts = []
    for kind, names in kinds.items():
        few = ", ".join(shown(name, 40) for name in names[:3])
        parts.append(f"{len(names):,} {kind} ({few}{', …' if len(names) > 3 else ''})")
    odd = sum(column["misfits"] for column in columns)
    misfits = f"; {odd:,} values did not fit" if odd else ""
    return [_fact("columns", "; ".join(parts) + misfits)] if parts else []


def _model_lines(name: str, one: dict[str, Any], most: int) -> list[str]:
    summary = one["summary"]
    says = "publishes" if one["publishes"] else "shadow"
    lines = [f"{printable(name)} ({one['kind']}, {says})"]
    if one["accuracy"] is not None:
        judged = f"{percent(one['accuracy'])} of {one['labelled']:,}, kappa {number(one['kappa'])}"
        lines.append(_fact("accuracy", judged))
    lines.append(_fact("learned", f"{one['learned']:,} events, {len(one['classes']):,} classes"))
    trees = [f"{summary['trees']:,}", f"{summary['nodes']:,} nodes"]
    trees += [f"depth {summary['depth']}"] if "depth" in summary else []
    trees.append(size(summary["total_bytes"]))
    lines.append(_fact("trees", ", ".join(trees)))
    for part, of_it in summary.get("families", {}).items():
        text = f"{of_it['trees']:,} trees, {of_it['nodes']:,} nodes, depth {of_it['depth']}"
        lines.append(_fact(f"  {part}", f"{text}, {_shares(of_it)}"))
    lines.append(_fact("experts", _shares(summary)))
    top = [f"{printable(key, 40)} {percent(share)}" for key, share in one["importances"] if share]
    if top:
        lines.append(_fact("features", ", ".join(top[:_MAX_FEATURES])))
    return [*lines, *_class_lines(one["classes"], most)]


def _shares(summary: dict[str, Any]) -> str:
    shares = summary.get("shares") or summary.get("expert_weights") or {"trees": 1.0}
    return ", ".join(
        f"{name} {percent(share)}" for name, share in shares.items() if share >= 0.0005
    )


def _class_lines(classes: list[dict[str, Any]], most: int) -> list[str]:
    if not classes or not most:
        return []
    listed = list(reversed(classes))[:most]
    if "events" not in classes[0]:
        names = ", ".join(shown(one["label"], 40) for one in listed)
        more = len(classes) - len(listed)
        return [_fact("classes", names + (f", and {more:,} more" if more else ""))]
    rows = [("class, newest first", "first at", "events", "recall", "precision")]
    rows += [
        (
            shown(one["label"], 40),
            "–" if one["first"] is None else f"{one['first']:,}",
            f"{one['events']:,}",
            percent(one["recall"]),
            percent(one["precision"]),
        )
        for one in listed
    ]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [
        "  "
        + "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        )
        for row in rows
    ]
    more = len(classes) - len(listed)
    return lines + ([f"  and {more:,} older ones (--classes {len(classes)})"] if more else [])


@model.command()
@TARGET
@FILE
@SET
@SNAPSHOT
@PARTITION
@MODEL
@LABEL
@click.option("--row", type=click.IntRange(1), default=None, help="Which row of FILE (default: 1).")
@click.option(
    "--event",
    "event_text",
    default=None,
    metavar="JSON",
    help="The event itself, instead of a file.",
)
@click.option("--tree", type=click.IntRange(0), default=None, help="The tree to look into.")
@JSON
def explain(
    target: Path,
    file: Path | None,
    settings: tuple[str, ...],
    snapshot: str | None,
    partition: int | None,
    name: str | None,
    label: str | None,
    row: int | None,
    event_text: str | None,
    tree: int | None,
    as_json: bool,
) -> None:
    """Say why a model answers as it does to one event: what each expert says, the path in a tree, the
    neighbours or class means that decided.

    The event is a row of FILE, of the pipeline's own source, or given as JSON.

    \b
    Examples:
      streamforest model explain pipelines/digits.toml --row 100
      streamforest model explain runs/orders orders.csv --row 7 --json
      streamforest model explain runs/orders --event '{"amount": 3.5, "colour": "red"}'
    """
    if event_text is not None and (file is not None or row is not None):
        raise click.UsageError("--event: give an event or a row of a file, not both")
    opened = _open(target, settings, snapshot, partition, label)
    record = _row(opened, file, row or 1) if event_text is None else event_of(event_text)
    found, features, truth = opened.explain(record, name, tree)
    if as_json:
        told = {"label": truth, **found.jsonable()}
        told["features"] = {str(key): value for key, value in features.items()}
        click.echo(json.dumps(told, default=str))
        return
    if truth is not None:
        click.echo(f"label {shown(truth)}")
    click.echo(printable_lines(found.text()))


def _row(opened: OpenModel, file: Path | None, row: int) -> Any:
    source = opened.rows_of(file)
    record = next(islice(source.rows(row - 1), 1), None)
    if record is None:
        raise ConfigError(f"--row {row}: {printable(source.topic)} has {source.total:,} rows")
    return record


@model.command()
@TARGET
@click.argument("file", type=click.Path(path_type=Path))
@SET
@SNAPSHOT
@PARTITION
@MODEL
@LABEL
@click.option("--top", type=click.IntRange(1, 1_000), default=3, show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="Write JSON lines to this file, for streamforest.results.read or `streamforest report`.",
)
@JSON
def predict(
    target: Path,
    file: Path,
    settings: tuple[str, ...],
    snapshot: str | None,
    partition: int | None,
    name: str | None,
    label: str | None,
    top: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Predict the events of FILE (.jsonl, .csv, .tsv, .parquet) and learn nothing.

    Records are read as the run has read them. Where FILE has labels, the accuracy is told.

    \b
    Examples:
      streamforest model predict runs/orders new.csv
      streamforest model predict pipelines/digits.toml new.jsonl --json
      streamforest model predict runs/orders new.parquet --out predictions.jsonl
    """
    opened = _open(target, settings, snapshot, partition, label)
    counts = _Counts()
    found = opened.predict(file, name, top)
    if out is None:
        for one in found:
            counts.add(one)
            if isinstance(one, Prediction):
                click.echo(json.dumps(msgspec.to_builtins(one)) if as_json else _line(one))
    else:
        with _created(out) as written:
            for one in found:
                counts.add(one)
                if isinstance(one, Prediction):
                    written.write(encode_prediction(one) + b"\n")
    click.echo(counts.text(), err=not (out is not None and not as_json))
    if counts.refused > FAILED_SHARE * (counts.refused + counts.predicted):
        raise ConfigError(f"{file}: most rows are not valid; see the lines above")


def _created(path: Path) -> IO[bytes]:
    """A new file; nothing that exists is written over."""
    try:
        return create(path, None)
    except FileExistsError:
        raise ConfigError(f"--out {path}: exists already; remove it or name another") from None


def _line(one: Prediction) -> str:
    truth = "" if one.truth is None else f"  label {shown(one.truth)}"
    hit = "" if one.truth is None else "" if one.truth == one.label else "  wrong"
    identity = "" if one.id is None else f"  id {shown(one.id)}"
    return (
        f"row {one.offset + 1}  {shown(one.label)} {percent(one.probability)}{truth}{hit}{identity}"
    )


class _Counts:
    """What became of the rows."""

    def __init__(self) -> None:
        self.predicted = self.labelled = self.correct = self.refused = 0

    def add(self, one: Prediction | Refused) -> None:
        """Count a row; the first refused ones are told on stderr."""
        if isinstance(one, Refused):
            self.refused += 1
            if self.refused <= _MAX_REFUSED:
                click.echo(
                    f"row {one.row + 1} ({one.reason}): {printable(one.message, 300)}", err=True
                )
            return
        self.predicted += 1
        if one.truth is not None:
            self.labelled += 1
            self.correct += one.truth == one.label

    def text(self) -> str:
        """In one line."""
        parts = [f"{self.predicted:,} predicted"]
        if self.labelled:
            share = percent(self.correct / self.labelled)
            parts.append(f"{self.correct:,} of {self.labelled:,} labels correct ({share})")
        if self.refused:
            rows = "1 row is" if self.refused == 1 else f"{self.refused:,} rows are"
            parts.append(f"{rows} not valid")
        return ", ".join(parts)
