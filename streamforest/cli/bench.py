"""`streamforest bench`: one subcommand a benchmark, each in a file of its own."""

from __future__ import annotations

import click

from streamforest.cli import LazyGroup

SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "forest": (
        "streamforest.cli.bench_forest:forest",
        "Our forests against River, CapyMOA and onelearn, on the same streams.",
    ),
    "parts": (
        "streamforest.cli.bench_parts:parts",
        "What each part of the stream forest is worth: accuracy with one part changed.",
    ),
    "endurance": (
        "streamforest.cli.bench_endurance:endurance",
        "Five million events: does memory stay in its bound, and speed up?",
    ),
    "denil": (
        "streamforest.cli.bench_denil:denil",
        "The figures of Denil et al. 2013: forest and trees, USPS, body parts, the fringe.",
    ),
    "incremental": (
        "streamforest.cli.bench_incremental:incremental",
        "Forests that take in new classes, by the papers' protocol; cost, latency, novelty.",
    ),
    "hirf": (
        "streamforest.cli.bench_incremental:hirf",
        "The experiments of hi-RF: initial classes, batches, out-of-bag boosting.",
    ),
    "pipeline": (
        "streamforest.cli.bench_pipeline:pipeline",
        "The pipeline on a real broker beside the sum of its parts; what a snapshot holds up.",
    ),
    "soak": (
        "streamforest.cli.bench_soak:soak",
        "Late labels at a steady rate, a rebalance every minute: memory and latency over time.",
    ),
}
"""Name -> ("module:attribute", one-line help)."""


@click.group(cls=LazyGroup, lazy=SUBCOMMANDS)
def bench() -> None:
    """Measure the forests and draw the papers' figures."""
