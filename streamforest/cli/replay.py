"""`streamforest replay`: send a recorded data set or file to a topic."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from streamforest.cli.arguments import check_servers
from streamforest.datasets import get_spec, unavailable
from streamforest.errors import ConfigError
from streamforest.io.codec.events import Format
from streamforest.io.features.rules import FeatureRules
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.topics import DEFAULT_PARTITIONS
from streamforest.io.sources.dataset import ClassSchedule, RecordedSource, Source
from streamforest.io.sources.opening import LINES, SUFFIXES, TABLES, open_file
from streamforest.io.sources.scheduled import ScheduledFile
from streamforest.io.sources.tables import MissingColumnError
from streamforest.io.tools.replay import ReplayOptions
from streamforest.io.tools.replay import replay as send
from streamforest.runtime.config.kafka_auth import connection_from
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.config.sources import is_lines, recorded_in
from streamforest.runtime.operate.stopping import StopSignals
from streamforest.text import printable

DEFAULT_SERVERS = "127.0.0.1:9092"


def _list_sets(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    """Print every data set that can be sent by name, and exit."""
    if not wanted or ctx.resilient_parsing:
        return
    names = RecordedSource.names()
    width = max(map(len, names))
    for name in names:
        missing = " (needs a file that is not on this machine)" if unavailable(name) else ""
        click.echo(f"{name:<{width}}  {get_spec(name).about}{missing}")
    ctx.exit()


@click.command()
@click.argument("source")
@click.option(
    "--bootstrap-servers",
    "servers",
    callback=check_servers,
    default=None,
    metavar="HOST:PORT",
    help=f"The broker (default: the pipeline file's, else {DEFAULT_SERVERS}).",
)
@click.option("--topic", default=None, help="The topic (default: NAME.events).")
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    default=None,
    help="Partitions of a topic that does not exist yet (default: the pipeline file's, else "
    f"{DEFAULT_PARTITIONS}).",
)
@click.option(
    "--max-events",
    "events",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    help="Send only the first N events.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    help="Events per second (default: as fast as possible).",
)
@click.option(
    "--loops",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many times to send it.",
)
@click.option(
    "--bad",
    type=click.FloatRange(0, 0.9),
    default=0.0,
    show_default=True,
    help="Share of events that are made invalid.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=None, help="For --bad and --order (default: 0)."
)
@click.option(
    "--order",
    default=None,
    help="Let classes appear over time, in this order: random, recorded, or a,b,c.",
)
@click.option(
    "--first",
    type=click.IntRange(1),
    default=None,
    help="With --order: number of classes at the start (default: the pipeline file's, else "
    f"{ClassSchedule.first}).",
)
@click.option(
    "--every",
    type=click.IntRange(1),
    default=None,
    help="With --order: events from one new class to the next (default: the pipeline file's, else "
    f"{ClassSchedule.every}).",
)
@click.option(
    "--label-column",
    "label",
    default=None,
    help="Label column of a .csv, .tsv or .parquet file (default: y).",
)
@click.option("--id-column", "identity", default=None, help="Id column of such a file.")
@click.option(
    "--label-delay",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Send each label N events after its event.",
)
@click.option(
    "--labels-topic",
    default=None,
    help="Topic of late labels (default: the pipeline file's, else TOPIC.labels).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "msgpack"]),
    default=None,
    help="Format of the messages (default: the pipeline file's events.format, else json).",
)
@click.option("--vectors", is_flag=True, help="Send features as an array, without names.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="As in run; without a pipeline file only for [kafka], e.g. kafka.security_protocol=SSL.",
)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_sets,
    help="List the recorded data sets and exit.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def replay(
    source: str,
    servers: str | None,
    topic: str | None,
    partitions: int | None,
    events: int | None,
    rate: float | None,
    loops: int,
    bad: float,
    seed: int | None,
    order: str | None,
    first: int | None,
    every: int | None,
    label: str | None,
    identity: str | None,
    label_delay: int,
    labels_topic: str | None,
    form: Format | None,
    vectors: bool,
    settings: tuple[str, ...],
    quiet: bool,
) -> None:
    """Send SOURCE to a topic: the name of a data set, a file, or the [source] of a pipeline file.

    A pipeline file also sets the broker, the topic and the format. The same options give the same messages.

    \b
    Examples:
      streamforest replay pipelines/kafka.toml --rate 200
      streamforest replay digits --topic digits.events --order random --every 400
    """
    _refuse_idle(source)
    opened: Source
    connection = None
    rules = FeatureRules(label=label or FeatureRules.label, id=identity or FeatureRules.id)
    if source.endswith(".toml"):
        flags = (*_source_flags(events, order, first, every, seed), *settings)
        pipeline = load_pipeline(Path(source), os.environ, flags)
        config = pipeline.config
        if is_lines(config.source):
            _refuse_for_lines("the pipeline's source.file")
        opened, rules = pipeline.source or recorded_in(config), config.features
        form = form or cast(Format, config.events_format)
        topic = topic or config.topics.events
        if config.labels is not None:
            labels_topic = labels_topic or config.topics.labels or topic
        connection = Connection(servers or DEFAULT_SERVERS)
        if config.kafka is not None:
            connection = config.kafka.connection
            connection = replace(connection, servers=servers or connection.servers)
            partitions = partitions or config.kafka.partitions
    else:
        schedule = None
        if order is not None:
            given = {"first": first, "every": every, "seed": seed}
            known = {key: value for key, value in given.items() if value is not None}
            schedule = ClassSchedule(_order(order), **known)
        if source.endswith(SUFFIXES):
            try:
                opened = open_file(Path(source), events, rules)
            except MissingColumnError as error:  # no pipeline file, whose setting it names
                option = f"--{error.key}-column"
                raise ConfigError(f"{option} {error.name!r}: {error.problem}") from None
            if schedule is not None:
                opened = ScheduledFile(opened, schedule, rules)
        else:
            opened = RecordedSource.open(source, events, schedule)
    options = ReplayOptions(
        topic=topic or f"{opened.topic}.events",
        partitions=partitions or DEFAULT_PARTITIONS,
        rate=rate,
        loops=loops,
        bad=bad,
        seed=seed or 0,
        format=form or "json",
        label_delay=label_delay,
        labels_topic=labels_topic,
        vectors=vectors,
        label=rules.label,
        id=rules.id,
    )
    if connection is None:
        connection = connection_from(os.environ, settings, servers, DEFAULT_SERVERS)
    _send(connection, opened, options, quiet)


def _given() -> set[str]:
    """The options that were given on the command line."""
    ctx = click.get_current_context()
    return {
        name
        for name in ctx.params
        if ctx.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)
    }


def _refuse_idle(source: str) -> None:
    """UsageError for an option without effect: whoever gave it expects one."""
    given, pipeline = _given(), source.endswith(".toml")
    for name in ("first", "every", "seed"):
        if name not in given or "order" in given or (name == "seed" and "bad" in given):
            continue
        remedy = f", or --set source.schedule.{name}=…" if pipeline else ""
        alone = "--order or --bad" if name == "seed" else "--order"
        raise click.UsageError(f"--{name}: has no effect without {alone}; add it{remedy}")
    if not source.endswith(TABLES):
        for name, option, key in (
            ("label", "--label-column", "label"),
            ("identity", "--id-column", "id"),
        ):
            if name in given:
                remedy = f"use --set features.{key}=…" if pipeline else "remove it"
                raise click.UsageError(f"{option}: for {', '.join(TABLES)} files only; {remedy}")
    if source.endswith(LINES):
        _refuse_for_lines(source)
    if "labels_topic" in given and "label_delay" not in given:
        raise click.UsageError("--labels-topic: has no effect without --label-delay; add it")


def _refuse_for_lines(file: str) -> None:
    for name, option in (
        ("label_delay", "--label-delay"),
        ("vectors", "--vectors"),
        ("form", "--format"),
    ):
        if name in _given():
            raise click.UsageError(
                f"{option}: has no effect for {file}: its lines are messages and are sent unchanged; "
                "remove it, or give a table or a data set"
            )


def _source_flags(
    events: int | None, order: str | None, first: int | None, every: int | None, seed: int | None
) -> list[str]:
    """The options that were given, as settings of the file's [source]; the file decides the others."""
    flags = [] if events is None else [f"source.max_events={events}"]
    if order is not None:
        given = {"order": _order(order), "first": first, "every": every, "seed": seed}
        changed = {key: value for key, value in given.items() if value is not None}
        flags += [f"source.schedule.{key}={json.dumps(value)}" for key, value in changed.items()]
    return flags


def _order(text: str) -> str | list[str | int]:
    if text in ("random", "recorded"):
        return text
    return [_label(part) for part in text.split(",")]


def _label(text: str) -> str | int:
    try:
        return int(text)
    except ValueError:
        return text


def _send(connection: Connection, source: Source, options: ReplayOptions, quiet: bool) -> None:
    console = Console(stderr=True)
    begun = time.monotonic()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    hidden = quiet or not console.is_terminal
    with (
        StopSignals() as signals,
        Progress(*columns, console=console, transient=True, disable=hidden) as bar,
    ):
        task = bar.add_task(
            printable(options.topic, 100), total=source.total * options.loops, pace=""
        )

        def show(sent: int) -> None:
            pace = sent / max(1e-9, time.monotonic() - begun)
            bar.update(task, completed=sent, pace=f"{pace:,.0f} events/s")

        sent = send(connection, source, options, show, lambda: signals.requested is not None)
    seconds = time.monotonic() - begun
    click.echo(f"{sent:,} messages to {printable(options.topic)} in {seconds:.1f} s")
