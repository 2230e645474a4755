"""`streamforest bench pipeline` and `bench soak`: the pipeline on a real broker."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import click

from streamforest.bench.pipeline.snapshot_stall import describe, measure_stall
from streamforest.bench.pipeline.throughput import measure, report
from streamforest.cli.arguments import check_servers
from streamforest.cli.bench import JSON_FILE
from streamforest.io.kafka.auth.connection import Connection
from streamforest.runtime.config.kafka_auth import connection_from
from streamforest.testing.broker.server import Broker


@click.command("pipeline")
@click.option(
    "--bootstrap-servers",
    "servers",
    callback=check_servers,
    default=None,
    metavar="HOST:PORT",
    help="The broker (default: one started for this run); STREAMFOREST_KAFKA__… variables say how to log in.",
)
@click.option("--events", type=click.IntRange(1_000), default=20_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option(
    "--partitions",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    help="Partitions of the topic; the events alternate between them.",
)
@click.option(
    "--clock",
    type=click.Choice(["wall", "cpu"]),
    default="wall",
    show_default=True,
    help="Which clock the goals are judged by; use cpu on a busy machine. Both are printed.",
)
@click.option("--no-stall", is_flag=True, help="Skip the snapshot of a 100 MB model.")
def pipeline(
    servers: str | None, events: int, rounds: int, partitions: int, clock: str, no_stall: bool
) -> None:
    """Throughput of the pipeline against the sum of its parts, and stalls by snapshots.

    \b
    Example:
      streamforest bench pipeline --clock cpu
    """
    with ExitStack() as stack:
        if servers is None:
            where = Connection(stack.enter_context(Broker()).servers)
        else:
            where = connection_from(os.environ, (), servers, servers)
        results = measure(
            where, events, rounds, partitions, lambda text: click.echo(text, err=True)
        )
    click.echo(report(results, clock, partitions))
    if not no_stall:
        click.echo(describe(measure_stall()))


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="How long to run.")
@click.option("--rate", default=300.0, show_default=True, help="Events per second.")
@click.option("--delay", default=5.0, show_default=True, help="Seconds from an event to its label.")
@click.option("--every", default=60.0, show_default=True, help="Seconds between two rebalances.")
@JSON_FILE
def soak(minutes: float, rate: float, delay: float, every: float, json_file: Path | None) -> None:
    """Memory and latency over time: steady rate, late labels, a rebalance every minute.

    \b
    Example:
      streamforest bench soak --minutes 5
    """
    from streamforest.bench import output
    from streamforest.bench.pipeline import soak as benchmark

    settings = benchmark.Settings(minutes, rate, delay, every)
    output.check_output("--json", json_file)
    tenths = benchmark.run(settings, lambda text: click.echo(text, err=True))
    click.echo(benchmark.report(tenths))
    if json_file is not None:
        output.write_json(json_file, "soak", benchmark.content(settings, tenths))
