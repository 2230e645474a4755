"""`streamforest replay`: a recorded set or file to a topic."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from streamforest.cli.servers import checked_servers
from streamforest.errors import ConfigError
from streamforest.runtime.config import load_pipeline
from streamforest.runtime.security import connection_from
from streamforest.runtime.stopping import StopSignals
from streamforest.stream.events import Format
from streamforest.stream.kafka_topics import DEFAULT_PARTITIONS
from streamforest.stream.recorded import ClassSchedule, RecordedSource, Source
from streamforest.stream.replay import ReplayOptions
from streamforest.stream.replay import replay as send
from streamforest.stream.scheduled import ScheduledFile
from streamforest.stream.security import Connection
from streamforest.stream.tables import SUFFIXES, open_file
from streamforest.text import printable


@click.command()
@click.argument("source")
@click.option(
    "--servers", callback=checked_servers, default=None, metavar="HOST:PORT", help="The broker."
)
@click.option("--topic", default=None, help="Where to (default: NAME.events).")
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    default=None,
    help="Of a topic that has to be made (default: what the pipeline file says, else 4).",
)
@click.option("--events", type=click.IntRange(1), default=None, help="Only the first N.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Events a second.")
@click.option("--loops", type=click.IntRange(1), default=1, help="How often.")
@click.option("--bad", type=click.FloatRange(0, 0.9), default=0.0, help="Share of bad events.")
@click.option("--seed", type=click.IntRange(0), default=0, help="For bad events and orders.")
@click.option("--order", default=None, help="Class schedule: random, recorded, or a,b,c.")
@click.option("--first", type=click.IntRange(1), default=2, help="Classes open at the start.")
@click.option("--every", type=click.IntRange(1), default=400, help="Events between new classes.")
@click.option("--label", default="y", show_default=True, help="A table's column with the label.")
@click.option("--id", "identity", default=None, help="A table's column with the id.")
@click.option("--label-delay", type=click.IntRange(0), default=0, help="Send labels N events late.")
@click.option("--labels-topic", default=None, help="Where late labels go.")
@click.option("--format", "form", type=click.Choice(["json", "msgpack"]), default="json")
@click.option("--vectors", is_flag=True, help="Features as an array instead of by name.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="As in run; without a pipeline file for [kafka] alone, e.g. kafka.security=tls.",
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
    seed: int,
    order: str | None,
    first: int,
    every: int,
    label: str,
    identity: str | None,
    label_delay: int,
    labels_topic: str | None,
    form: Format,
    vectors: bool,
    settings: tuple[str, ...],
    quiet: bool,
) -> None:
    """Send SOURCE to a topic: a recorded set by name, a file, or a pipeline file's [source].

    A pipeline file also tells the broker and the topic. The same options give the same messages.
    """
    opened: Source
    connection = None
    schedule = None if order is None else ClassSchedule(_order(order), first, every, seed)
    if source.endswith(".toml"):
        flags = (*_source_flags(events, schedule), *settings)
        pipeline = load_pipeline(Path(source), os.environ, flags)
        if pipeline.source is None:
            raise ConfigError(f"{source}: has no [source] to replay; add one")
        opened, config = pipeline.source, pipeline.config
        topic = topic or config.topics.events
        if config.labels is not None:
            labels_topic = labels_topic or config.topics.labels or topic
        if config.kafka is not None:
            connection = Connection(servers or config.kafka.servers, config.kafka.security)
            partitions = partitions or config.kafka.partitions
    elif source.endswith(SUFFIXES):
        opened = open_file(Path(source), events, label, identity)
        if schedule is not None:
            opened = ScheduledFile(opened, schedule)
    else:
        opened = RecordedSource.open(source, events, schedule)
    options = ReplayOptions(
        topic=topic or f"{opened.topic}.events",
        partitions=partitions or DEFAULT_PARTITIONS,
        rate=rate,
        loops=loops,
        bad=bad,
        seed=seed,
        form=form,
        label_delay=label_delay,
        labels_topic=labels_topic,
        vectors=vectors,
    )
    if connection is None:
        connection = connection_from(os.environ, settings, servers, "127.0.0.1:9092")
    _send(connection, opened, options, quiet)


def _source_flags(events: int | None, schedule: ClassSchedule | None) -> list[str]:
    """Options of the command as settings of the pipeline file's [source]."""
    flags = [] if events is None else [f"source.events={events}"]
    if schedule is not None:
        told = schedule.described()
        flags += [f"source.{key}={json.dumps(value)}" for key, value in told.items()]
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
