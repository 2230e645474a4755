"""`streamforest bench forest`, `bench ablation` and `bench endurance`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from streamforest.cli.bench import JSON_FILE, PLOT_FILE


@click.command()
@click.option("--stream", "streams", multiple=True, metavar="NAME", help="Only this stream.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="Only this model.")
@click.option(
    "--held-out", is_flag=True, help="Run the streams that were not used to choose our settings."
)
@click.option(
    "--scheduled", is_flag=True, help="Run the streams whose classes come one after the other."
)
@click.option("--trees", default=10, show_default=True, help="Trees of every forest.")
@click.option("--our-trees", type=int, help="Trees of our own forests (default: --trees).")
@click.option("--events", type=int, help="Use only the first N events of each stream.")
@click.option(
    "--budget",
    type=float,
    metavar="SECONDS",
    help="End a run of one model on one stream after this much CPU time, and mark it.",
)
@click.option("--repeats", default=3, show_default=True, help="Timed runs for each seed.")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option(
    "--seeds", default=1, show_default=True, help="Number of seeds that accuracy is averaged over."
)
@click.option(
    "--short-seeds",
    type=int,
    help="The same for streams of fewer than 2,000 events, where a single run says little.",
)
@click.option(
    "--equal-cpu",
    default="best",
    show_default=True,
    metavar="best|each|off",
    help="Rivals that our forests are compared with at equal CPU time.",
)
@click.option(
    "--max-trees",
    default=500,
    show_default=True,
    help="Maximum number of trees tried at equal CPU time.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Keep every run in this folder and reuse those already there, to resume after an interruption.",
)
@JSON_FILE
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(path_type=Path),
    help="Plot accuracy over events to this file.",
)
@click.option(
    "--plots",
    "plot_folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Plot accuracy over events to this folder, one file per stream.",
)
@click.option(
    "--profile",
    type=click.Choice(("quick", "table", "full")),
    help="Defaults: minutes (4 streams, 2,000 events), all tables, or every stream with 3 seeds.",
)
@click.option(
    "--breakdown",
    is_flag=True,
    help="Show where our forest spends the time of one event, and exit.",
)
@click.option("--list", "listing", is_flag=True, help="List the streams and the models, and exit.")
@click.pass_context
def forest(
    context: click.Context,
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
    profile: str | None,
    breakdown: bool,
    listing: bool,
) -> None:
    """Our forests against River, CapyMOA and onelearn: same streams, same order, one core.

    Shows prequential accuracy, events/s, memory and latency at an equal number of trees, and
    accuracy at equal CPU time. --stream and --model may be repeated; without them, all are run. With
    --profile, what else is given counts instead of the profile's. Recorded
    streams need the folder that STREAMFOREST_DATA names; a missing one is skipped, and the output says why.

    \b
    Examples:
      streamforest bench forest --profile quick
      streamforest bench forest --stream digits --model stream --trees 20
    """
    from streamforest.bench import output
    from streamforest.bench.forest import best_rivals, plots, profiles, report
    from streamforest.bench.forest import comparison as benchmark
    from streamforest.bench.forest.results import ForestResult
    from streamforest.errors import StreamForestError

    chosen: dict[str, Any] = {
        "streams": streams,
        "events": events,
        "budget": budget,
        "repeats": repeats,
        "seeds": seeds,
        "short_seeds": short_seeds,
        "equal_cpu": equal_cpu,
    }
    if profile is not None:
        given = {name for name in chosen if _is_given(context, name)}
        if held_out or scheduled:
            given.add("streams")
        told = profiles.defaults(profile)
        chosen |= {name: value for name, value in told.items() if name not in given}
    seeds, short_seeds = chosen.pop("seeds"), chosen.pop("short_seeds")
    settings = benchmark.Settings(
        **chosen,
        models=models,
        held_out=held_out,
        scheduled=scheduled,
        trees=trees,
        our_trees=our_trees,
        seeds=tuple(range(seed, seed + seeds)),
        short_seeds=tuple(range(seed, seed + (seeds if short_seeds is None else short_seeds))),
        max_trees=max_trees,
        resume=resume,
    )
    output.check_output("--json", json_file)
    output.check_output("--plot", plot_file)
    output.check_plot_folder("--plots", plot_folder)
    console = output.table_console()
    if listing:
        report.print_listing(console)
        return
    if breakdown:
        _breakdown(streams, models, trees, events, seed, json_file)
        return
    with output.Bar() as bar:

        def show(so_far: ForestResult) -> None:
            with bar.paused():
                report.print_stream(console, so_far.streams[-1])
            if json_file is not None:
                duels = [duel.as_json() for duel in best_rivals.duels(so_far)]
                output.write_json(json_file, "forest", so_far.as_json() | {"duels": duels})

        result = benchmark.run(settings, bar, show)
    best_rivals.print_best_rivals(console, result)
    report.print_foot(console, result)
    if plot_file is not None:
        output.plot(plot_file, plots.panels(result))
    if plot_folder is not None:
        plots.plot_each(plot_folder, result)
    if result.failures:
        raise StreamForestError("\n".join(["models failed:", *result.failures]))


def _is_given(context: click.Context, name: str) -> bool:
    """Whether the user has given this option."""
    return context.get_parameter_source(name) is not ParameterSource.DEFAULT


def _breakdown(
    streams: tuple[str, ...],
    models: tuple[str, ...],
    trees: int,
    events: int | None,
    seed: int,
    json_file: Path | None,
) -> None:
    """Print where the time of one event goes."""
    from streamforest import datasets
    from streamforest.bench import machine, output
    from streamforest.bench.forest.profiling import profile

    console = output.table_console()
    found = []
    for stream_name in streams or ("rbf",):
        stream = datasets.load(stream_name, events)
        for model in models or ("consistent",):
            with machine.pinned(machine.choose_core()):
                found.append(profile(stream, model, trees, seed))
            console.print(found[-1].table())
    console.print(output.versions_line(), style="dim", markup=False)
    if json_file is not None:
        content = {"profiles": [one.as_json() for one in found]}
        output.write_json(json_file, "forest --breakdown", content)


@click.command()
@click.option("--model", default="stream", show_default=True, help="The kind of forest.")
@click.option("--stream", "streams", multiple=True, metavar="NAME", help="Only this stream.")
@click.option(
    "--held-out", is_flag=True, help="Run the streams that were not used to choose our settings."
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME=VALUE,…",
    help="Parameters to change, instead of the default variants. May be repeated.",
)
@click.option("--trees", default=20, show_default=True, help="Trees of the forest.")
@click.option(
    "--seeds", default=3, show_default=True, help="Number of seeds that accuracy is averaged over."
)
@click.option(
    "--short-seeds",
    default=10,
    show_default=True,
    help="The same for streams of fewer than 2,000 events.",
)
@click.option("--events", type=int, help="Use only the first N events of each stream.")
@JSON_FILE
def ablation(
    model: str,
    streams: tuple[str, ...],
    held_out: bool,
    variants: tuple[str, ...],
    trees: int,
    seeds: int,
    short_seeds: int,
    events: int | None,
    json_file: Path | None,
) -> None:
    """Accuracy of a forest with one part changed or removed.

    Without --variant, for the stream forest: no challengers, no baselines, no neighbours, distances without
    relevance, and twice the trees. Streams with and without drift are averaged separately. Where classes come
    one after the other, events 2 to 10 of every class are shown too.

    \b
    Examples:
      streamforest bench ablation
      streamforest bench ablation --model online --variant balanced=True --stream letter-classes
    """
    from streamforest.bench import output
    from streamforest.bench.forest import ablation as benchmark

    if model != "stream" and not variants:
        raise click.UsageError(f"--model {model}: give --variant too, such as balanced=True")
    chosen = dict(benchmark.parse_variant(text) for text in variants)
    settings = benchmark.Settings(
        model=model,
        streams=streams,
        held_out=held_out,
        variants=chosen or dict(benchmark.DEFAULTS),
        trees=trees,
        seeds=seeds,
        short_seeds=short_seeds,
        events=events,
    )
    output.check_output("--json", json_file)
    with output.Bar() as bar:
        found = benchmark.run(settings, bar.begin, bar.update)
    benchmark.print_result(output.table_console(), found)
    if json_file is not None:
        output.write_json(json_file, "ablation", found.as_json())


@click.command()
@click.option("--model", default="consistent", show_default=True, help="The kind of forest.")
@click.option("--events", default=5_000_000, show_default=True, help="Length of the stream.")
@click.option("--trees", default=10, show_default=True, help="Trees of the forest.")
@click.option("--features", default=20, show_default=True, help="Features of an event.")
@click.option("--classes", default=10, show_default=True, help="Classes of the stream.")
@click.option("--drift-every", default=0, show_default=True, help="Events between drifts; 0: none.")
@click.option("--seed", default=0, show_default=True, help="Seed of stream and forest.")
@JSON_FILE
@PLOT_FILE
def endurance(
    model: str,
    events: int,
    trees: int,
    features: int,
    classes: int,
    drift_every: int,
    seed: int,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Speed, accuracy and memory of a forest over a long stream, for each tenth of it.

    \b
    Example:
      streamforest bench endurance --model stream --events 500000
    """
    from streamforest.bench import output
    from streamforest.bench.forest import endurance as benchmark

    settings = benchmark.Settings(
        model=model,
        events=events,
        trees=trees,
        features=features,
        classes=classes,
        drift_every=drift_every,
        seed=seed,
    )
    output.check_output("--json", json_file)
    output.check_output("--plot", plot_file)
    with output.Bar() as bar:
        bar.begin(f"{model}, {trees} trees", events)
        tenths = benchmark.run(settings, bar.update)
    benchmark.print_result(output.table_console(), settings, tenths)
    if json_file is not None:
        output.write_json(json_file, "endurance", benchmark.content(settings, tenths))
    if plot_file is not None:
        output.plot(plot_file, benchmark.panels(tenths), columns=3)
