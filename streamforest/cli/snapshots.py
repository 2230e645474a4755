"""`streamforest snapshots`: list the snapshots of a run, pin one, continue from one."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import click

from streamforest.cli import LazyGroup
from streamforest.cli.arguments import ACCEPT_VERSION_CHANGE, PARTITION, PIPELINE, SET
from streamforest.cli.report import size
from streamforest.errors import BrokerError
from streamforest.runtime.config.load import Pipeline, load_pipeline
from streamforest.runtime.operate import adopt as adopting
from streamforest.runtime.operate import inspect as inspection
from streamforest.runtime.operate.adopt import Origin
from streamforest.runtime.operate.inspect import Listed
from streamforest.text import printable


@click.group(cls=LazyGroup)
def snapshots() -> None:
    """List the snapshots of a run, pin one, continue from one."""


def _loaded(pipeline: Path, settings: tuple[str, ...]) -> Pipeline:
    return load_pipeline(pipeline, os.environ, settings)


@snapshots.command("list")
@PIPELINE
@SET
@PARTITION
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_snapshots(
    pipeline: Path, settings: tuple[str, ...], partition: int | None, as_json: bool
) -> None:
    """Show the snapshots of PIPELINE, oldest first, and which one the last commit names.

    Recovery begins at the named one. The broker knows which it is (this needs Read on the group); if the
    broker cannot be reached, none is marked.

    \b
    Example:
      streamforest snapshots list pipelines/digits.toml
    """
    loaded = _loaded(pipeline, settings)
    folder = inspection.folder_of(loaded, partition)
    last, known = None, True
    try:
        last = inspection.last_commit_of(loaded, partition)
    except BrokerError as error:
        known = False
        click.echo(
            f"Cannot tell which one the last commit names: {printable(str(error))}", err=True
        )
    found = inspection.listed(folder, last, known)
    if as_json:
        for one in found:
            click.echo(json.dumps(asdict(one)))
        return
    for line in _table(found):
        click.echo(line)
    if last is not None:
        click.echo(f"last commit: {last.commit:,}, after event {last.events:,}")


def _table(found: list[Listed]) -> list[str]:
    if not found:
        return ["no snapshots"]
    rows = [
        (one.name, f"{one.events:,}", size(one.bytes), one.written, _marks(one)) for one in found
    ]
    rows.insert(0, ("name", "events", "size", "written", ""))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.rjust(width) if i in (1, 2) else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def _marks(one: Listed) -> str:
    marks = [word for word, is_so in (("named", one.named), ("pinned", one.pinned)) if is_so]
    return ", ".join(marks)


@snapshots.command()
@PIPELINE
@click.argument("name")
@SET
@PARTITION
def pin(pipeline: Path, name: str, settings: tuple[str, ...], partition: int | None) -> None:
    """Keep the snapshot NAME of PIPELINE for ever. Its number of events also works as NAME.

    \b
    Example:
      streamforest snapshots pin pipelines/digits.toml 1000
    """
    folder = inspection.folder_of(_loaded(pipeline, settings), partition)
    inspection.pin(folder, name)
    click.echo("pinned")


@snapshots.command()
@PIPELINE
@click.argument("name")
@SET
@PARTITION
def unpin(pipeline: Path, name: str, settings: tuple[str, ...], partition: int | None) -> None:
    """Unpin the snapshot NAME: it is deleted when it is old enough, like the others.

    \b
    Example:
      streamforest snapshots unpin pipelines/digits.toml 1000
    """
    folder = inspection.folder_of(_loaded(pipeline, settings), partition)
    inspection.unpin(folder, name)
    click.echo("no longer pinned")


@snapshots.command()
@PIPELINE
@click.argument("name")
@click.option(
    "--from",
    "origin",
    type=click.Choice(adopting.ORIGINS),
    default="journal",
    show_default=True,
    help="Where to continue. journal: learn again what the journal lists after the snapshot. earliest: the "
    "same as far as the log still has it, and go on with the earliest unread records that are left. "
    "last-commit: forget what was learned since, continue at the last commit. log-end: the same, and skip "
    "unread records.",
)
@SET
@PARTITION
@ACCEPT_VERSION_CHANGE
def adopt(
    pipeline: Path,
    name: str,
    origin: Origin,
    settings: tuple[str, ...],
    partition: int | None,
    accept_version_change: bool,
) -> None:
    """Make PIPELINE continue from the snapshot NAME. It must not be running.

    Events that are learned again are not published again. The journal records the adoption. If the group's
    offsets have expired, `--from journal` continues exactly where the pipeline ended. If records are gone
    from the log, `--from earliest` continues with what is left. A start that is refused prints the command.

    \b
    Example:
      streamforest snapshots adopt pipelines/kafka.toml 1000 --from last-commit
    """
    loaded = _loaded(pipeline, settings)
    done = adopting.adopt(loaded, name, origin, partition, accept_version_change)
    result = f"adopted {done.name} as {done.snapshot}, commit {done.commit:,}"
    if origin in ("journal", "earliest"):
        result += f"; {done.relearned:,} events learned again"
    if origin == "earliest" and done.forgotten:
        result += f", {done.forgotten:,} are gone"
    if done.skipped:
        result += f"; {done.skipped:,} records will not be read"
    click.echo(result)
