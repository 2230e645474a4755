"""`streamforest bench parts`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--stream", "streams", multiple=True, metavar="NAME", help="Only this stream.")
@click.option(
    "--held-out", is_flag=True, help="All streams: those that no setting of ours was chosen on."
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME=VALUE,…",
    help="Parameters to change, instead of the usual list; several times for several variants.",
)
@click.option("--trees", default=20, show_default=True, help="Trees of the forest.")
@click.option("--seeds", default=3, show_default=True, help="How many seeds accuracy averages.")
@click.option(
    "--short-seeds",
    default=10,
    show_default=True,
    help="The same on streams of fewer than 2,000 events.",
)
@click.option("--events", type=int, help="Only the first so many events of each stream.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write all figures here."
)
def parts(
    streams: tuple[str, ...],
    held_out: bool,
    variants: tuple[str, ...],
    trees: int,
    seeds: int,
    short_seeds: int,
    events: int | None,
    json_file: Path | None,
) -> None:
    """What each part of the stream forest is worth: accuracy with one part changed.

    Without --variant: no challengers, no plain opinions, no neighbours, distances without relevance,
    and twice the trees. Streams that drift and streams that do not are averaged apart.
    """
    from streamforest.bench import parts as benchmark
    from streamforest.bench import report

    chosen = dict(benchmark.parse_variant(text) for text in variants)
    settings = benchmark.Settings(
        streams=streams,
        held_out=held_out,
        variants=chosen or dict(benchmark.DEFAULTS),
        trees=trees,
        seeds=seeds,
        short_seeds=short_seeds,
        events=events,
    )
    report.check_output("--json", json_file)
    with report.Bar() as bar:
        found = benchmark.run(settings, bar.begin, bar.update)
    benchmark.print_result(report.table_console(), found)
    if json_file is not None:
        report.write_json(json_file, "parts", found.as_json())
