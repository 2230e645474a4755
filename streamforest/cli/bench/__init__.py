"""`streamforest bench`: a subcommand for each benchmark, and the options that they share."""

from __future__ import annotations

from pathlib import Path

import click

from streamforest.cli import LazyGroup

SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "forest": (
        "streamforest.cli.bench.forest:forest",
        "Our forests against River, CapyMOA and onelearn, on the same streams.",
    ),
    "ablation": (
        "streamforest.cli.bench.forest:ablation",
        "Accuracy of a forest with one part changed or removed.",
    ),
    "endurance": (
        "streamforest.cli.bench.forest:endurance",
        "Five million events: memory and speed over time.",
    ),
    "denil": (
        "streamforest.cli.bench.denil:denil",
        "The figures of Denil et al. 2013: forest and trees, USPS, body parts, the fringe.",
    ),
    "incremental": (
        "streamforest.cli.bench.incremental:incremental",
        "New classes batch by batch, by the papers' protocol; cost, latency, novelty.",
    ),
    "hirf": (
        "streamforest.cli.bench.incremental:hirf",
        "Figures II to V of hi-RF: one increment, batches, out-of-bag boosting.",
    ),
    "coarse": (
        "streamforest.cli.bench.coarse:coarse",
        "Coarse and fine labels: the tables of Ristin 2015, and all forests on a stream.",
    ),
    "few": (
        "streamforest.cli.bench.few:few",
        "The experiments of Rodner and Denzler 2011: a class of few rows, helped by classes like it.",
    ),
    "pipeline": (
        "streamforest.cli.bench.pipeline:pipeline",
        "Throughput on a real broker against the sum of its parts; stalls by snapshots.",
    ),
    "serve": (
        "streamforest.cli.bench.serving:serve",
        "Answers over HTTP: rate and latency, beside FastAPI with a River model.",
    ),
    "ray": (
        "streamforest.cli.bench.sharding:ray",
        "One forest in threads and in actors of Ray: speed over the number of trees.",
    ),
    "soak": (
        "streamforest.cli.bench.pipeline:soak",
        "Memory and latency over time: steady rate, late labels, a rebalance every minute.",
    ),
}
"""Name -> ("module:attribute", one-line help)."""

JSON_FILE = click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write all figures to this file."
)
PLOT_FILE = click.option(
    "--plot", "plot_file", type=click.Path(path_type=Path), help="Plot the curves to this file."
)


@click.group(cls=LazyGroup, lazy=SUBCOMMANDS)
def bench() -> None:
    """Measure forests and pipeline; reproduce the papers' figures."""
