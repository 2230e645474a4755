"""`streamforest bench pipeline`: the cost of exactly-once on a real broker."""

from __future__ import annotations

import os
from contextlib import ExitStack

import click

from streamforest.bench.pipeline import measure, report
from streamforest.bench.stall import measure_stall, told
from streamforest.cli.servers import checked_servers
from streamforest.io.kafka.auth.connection import Connection
from streamforest.runtime.config.kafka_auth import connection_from
from streamforest.testing.broker.server import Broker


@click.command("pipeline")
@click.option(
    "--bootstrap-servers",
    "servers",
    callback=checked_servers,
    default=None,
    metavar="HOST:PORT",
    help="A broker (default: an own one); STREAMFOREST_KAFKA__SECURITY and the like say how to log in.",
)
@click.option("--events", type=click.IntRange(1_000), default=20_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option(
    "--clock",
    type=click.Choice(["wall", "cpu"]),
    default="wall",
    show_default=True,
    help="Which clock the goals are judged by; CPU time of this process on a machine with other "
    "work. Both are printed.",
)
@click.option("--no-stall", is_flag=True, help="Leave out the snapshot of a 100 MB model.")
def pipeline(servers: str | None, events: int, rounds: int, clock: str, no_stall: bool) -> None:
    """Speed of the pipeline beside the sum of its parts, and what a snapshot holds up."""
    with ExitStack() as stack:
        if servers is None:
            where = Connection(stack.enter_context(Broker()).servers)
        else:
            where = connection_from(os.environ, (), servers, servers)
        results = measure(where, events, rounds, lambda text: click.echo(text, err=True))
    click.echo(report(results, clock))
    if not no_stall:
        click.echo(told(measure_stall()))
