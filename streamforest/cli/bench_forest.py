"""`streamforest bench forest`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--stream", "streams", multiple=True, metavar="NAME", help="Only this stream.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="Only this model.")
@click.option(
    "--held-out", is_flag=True, help="All streams: those that no setting of ours was chosen on."
)
@click.option(
    "--scheduled", is_flag=True, help="All streams: those whose classes come one after the other."
)
@click.option("--trees", default=10, show_default=True, help="Trees of every forest.")
@click.option("--our-trees", type=int, help="Trees of our own forests, if not as many.")
@click.option("--events", type=int, help="Only the first so many events of each stream.")
@click.option(
    "--budget",
    type=float,
    metavar="SECONDS",
    help="Cut a run of one model on one stream short after so much CPU time, and say so.",
)
@click.option("--repeats", default=3, show_default=True, help="Timed runs for each seed.")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("--seeds", default=1, show_default=True, help="How many seeds accuracy averages.")
@click.option(
    "--short-seeds",
    type=int,
    help="The same on streams of fewer than 2,000 events, where one run says little.",
)
@click.option(
    "--equal-cpu",
    default="best",
    show_default=True,
    metavar="best|each|off",
    help="Which rivals our forests are matched with at equal CPU time.",
)
@click.option(
    "--max-trees", default=500, show_default=True, help="Most trees tried at equal CPU time."
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Keep every run here, and take those that are here: go on after an interruption.",
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write all figures here."
)
@click.option(
    "--plot", "plot_file", type=click.Path(path_type=Path), help="Draw accuracy over events here."
)
@click.option(
    "--plots",
    "plot_folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Draw accuracy over events here, a file for each stream.",
)
@click.option(
    "--explain", is_flag=True, help="Instead: where the time of one event goes in our forest."
)
@click.option("--list", "listing", is_flag=True, help="Instead: list the streams and the models.")
def forest(
    streams: tuple[str, ...],
    models: tuple[str, ...],
    held_out: bool,
    scheduled: bool,
    trees: int,
    our_trees: int | None,
    events: int | None,
    budget: float | None,
    repeats: int,
    seed: int,
    seeds: int,
    short_seeds: int | None,
    equal_cpu: str,
    max_trees: int,
    resume: Path | None,
    json_file: Path | None,
    plot_file: Path | None,
    plot_folder: Path | None,
    explain: bool,
    listing: bool,
) -> None:
    """Our forests against River, CapyMOA and onelearn: same streams, same order, one core.

    Shows prequential accuracy, events/s, memory and latency at an equal number of trees, and
    accuracy at equal CPU time. --stream and --model can be given several times; without them all
    are run. Streams of recorded sets need the folder that STREAMFOREST_DATA names; missing ones
    are skipped with a word on why.
    """
    from streamforest.bench import forest as benchmark
    from streamforest.bench import forest_plots, forest_report, overview, report
    from streamforest.bench.results import ForestResult
    from streamforest.errors import StreamForestError

    settings = benchmark.Settings(
        streams=streams,
        models=models,
        held_out=held_out,
        scheduled=scheduled,
        trees=trees,
        our_trees=our_trees,
        events=events,
        budget=budget,
        repeats=repeats,
        seeds=tuple(range(seed, seed + seeds)),
        short_seeds=tuple(range(seed, seed + (seeds if short_seeds is None else short_seeds))),
        equal_cpu=equal_cpu,
        max_trees=max_trees,
        resume=resume,
    )
    report.check_output("--json", json_file)
    report.check_output("--plot", plot_file)
    report.check_plot_folder("--plots", plot_folder)
    console = report.table_console()
    if listing:
        forest_report.print_listing(console)
        return
    if explain:
        _explain(streams, models, trees, events, seed, json_file)
        return
    with report.Bar() as bar:

        def show(so_far: ForestResult) -> None:
            with bar.paused():
                forest_report.print_stream(console, so_far.streams[-1])
            if json_file is not None:
                duels = [duel.as_json() for duel in overview.duels(so_far)]
                report.write_json(json_file, "forest", so_far.as_json() | {"duels": duels})

        result = benchmark.run(settings, bar, show)
    overview.print_overview(console, result)
    forest_report.print_foot(console, result)
    if plot_file is not None:
        report.plot(plot_file, forest_plots.panels(result))
    if plot_folder is not None:
        forest_plots.plot_each(plot_folder, result)
    if result.failures:
        raise StreamForestError("\n".join(["models failed:", *result.failures]))


def _explain(
    streams: tuple[str, ...],
    models: tuple[str, ...],
    trees: int,
    events: int | None,
    seed: int,
    json_file: Path | None,
) -> None:
    """Print where the time of one event goes."""
    from streamforest import datasets
    from streamforest.bench import machine, report
    from streamforest.bench.explain import explain

    console = report.table_console()
    found = []
    for stream_name in streams or ("rbf",):
        stream = datasets.load(stream_name, events)
        for model in models or ("consistent",):
            with machine.pinned(machine.choose_core()):
                found.append(explain(stream, model, trees, seed))
            console.print(found[-1].table())
    console.print(report.versions_line(), style="dim", markup=False)
    if json_file is not None:
        content = {"explained": [one.as_json() for one in found]}
        report.write_json(json_file, "forest --explain", content)
