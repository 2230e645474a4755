"""`streamforest bench ray`: one forest in threads, and in actors of Ray."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from streamforest.bench.output import check_output, write_json
from streamforest.cli.bench import JSON_FILE
from streamforest.errors import ConfigError


@click.command("ray")
@click.option(
    "--trees",
    type=click.IntRange(8, 10_000),
    multiple=True,
    default=(16, 64, 256, 1024),
    show_default=True,
    help="Trees of the forest. May be repeated.",
)
@click.option(
    "--actors",
    type=click.IntRange(1, 1_000),
    multiple=True,
    default=(2,),
    show_default=True,
    help="Actors. May be repeated.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Epochs of 64 events in a round.",
)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@JSON_FILE
def ray(
    trees: tuple[int, ...],
    actors: tuple[int, ...],
    epochs: int,
    rounds: int,
    json_file: Path | None,
) -> None:
    """One forest in threads and in actors of Ray: speed over the number of trees.

    Actors are on the cluster of RAY_ADDRESS; without it on this machine, where threads are faster.

    \b
    Example:
      streamforest bench ray --trees 64 --trees 256 --actors 2 --actors 4
    """
    from streamforest.bench.sharding import costs, measure, report
    from streamforest.forests.sharded import ray_actors

    check_output("--json", json_file)
    if not ray_actors.is_installed():
        raise ConfigError(f"bench ray {ray_actors.NEEDS}")
    if max(actors) > -(-min(trees) // 8):
        raise ConfigError(f"--actors {max(actors)}: {min(trees)} trees are too few: 8 to an actor")
    found = measure(
        sorted(set(trees)),
        sorted(set(actors)),
        epochs,
        rounds,
        lambda text: click.echo(text, err=True),
    )
    click.echo(report(found))
    if json_file is not None:
        cost = costs(found)
        content = {"forests": [asdict(one) for one in found], "costs": cost and asdict(cost)}
        write_json(json_file, "ray", content)
