"""`streamforest bench pipeline`: the cost of exactly-once on a real broker."""

from __future__ import annotations

import time
from contextlib import ExitStack

import click

from streamforest.bench.pipeline import measure, measure_stall, report
from streamforest.stream.broker import Broker


@click.command("pipeline")
@click.option(
    "--servers", default=None, metavar="HOST:PORT", help="A broker (default: an own one)."
)
@click.option("--events", type=click.IntRange(1_000), default=20_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--clock",
    type=click.Choice(["wall", "cpu"]),
    default="wall",
    show_default=True,
    help="CPU time of this process instead, on a machine with other work: waiting then costs nothing.",
)
@click.option("--no-stall", is_flag=True, help="Leave out the snapshot of a 100 MB model.")
def pipeline(servers: str | None, events: int, rounds: int, clock: str, no_stall: bool) -> None:
    """Speed of the pipeline beside the sum of its parts, and what a snapshot holds up."""
    with ExitStack() as stack:
        if servers is None:
            servers = stack.enter_context(Broker()).servers
        results = measure(
            servers, events, rounds, time.perf_counter if clock == "wall" else time.process_time
        )
    click.echo(report(results, None if no_stall else measure_stall()))
