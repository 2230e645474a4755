"""`streamforest bench incremental` and `streamforest bench hirf`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streamforest.cli.bench import JSON_FILE, PLOT_FILE

PARTS = ("strategies", "baselines", "cost", "latency", "novelty")
SETS = "omniglot964, clinc150, caltech101, leaf99, isolet, letter, mnist14, digits"
_set_option = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME",
    help=f"Only this data set: {SETS}. May be repeated.",
)
_orders_option = click.option(
    "--orders", default=3, show_default=True, help="Number of class orders that are averaged."
)
_trees_option = click.option(
    "--trees", default=25, show_default=True, help="Trees of every forest."
)


@click.command()
@_set_option
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(PARTS),
    default=("strategies",),
    show_default=True,
    help="What to measure. May be repeated.",
)
@click.option("--strategy", "strategies", multiple=True, metavar="NAME", help="Only this strategy.")
@click.option(
    "--split",
    "splits",
    multiple=True,
    type=click.Choice(("ncm", "svm")),
    default=("ncm",),
    show_default=True,
)
@click.option(
    "--sweep",
    type=click.Choice(("centroids", "mu", "initial", "sampling", "chunk", "pi", "orders")),
    help="Vary this parameter, for the figures of Ristin 2016 (orders: ten class orders).",
)
@_trees_option
@click.option(
    "--mu", default=2, show_default=True, help="µ: minimum number of rows on each side of a split."
)
@click.option(
    "--initial",
    type=int,
    help="Classes at the start (default: 20, or a fifth of all if there are few).",
)
@click.option(
    "--chunk",
    type=int,
    help="New classes per batch (default: 10, or a twentieth of all if there are few).",
)
@click.option(
    "--side-search",
    default="greedy",
    show_default=True,
    help="How to assign classes to sides: greedy, or this many random assignments (the paper: 1024).",
)
@click.option(
    "--memory",
    default=1.0,
    show_default=True,
    help="Share of the rows that are kept; the retrained forest keeps all.",
)
@_orders_option
@JSON_FILE
@PLOT_FILE
def incremental(
    sets: tuple[str, ...],
    parts: tuple[str, ...],
    strategies: tuple[str, ...],
    splits: tuple[str, ...],
    sweep: str | None,
    trees: int,
    mu: int,
    initial: int | None,
    chunk: int | None,
    side_search: str,
    memory: float,
    orders: int,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Forests that learn new classes batch by batch, against a forest retrained on all of them.

    All data sets except digits need the folder that STREAMFOREST_DATA names; a missing one is skipped, and
    the output says why. Parts: strategies (the papers' protocol), baselines (all classes at once, with other
    models), cost (prediction time by number of classes), latency (predict_one while trees grow), novelty
    (AUROC of classes never seen).
    """
    from streamforest.bench.incremental import protocol

    if not side_search.isdigit() and side_search != "greedy":
        raise click.BadParameter("give greedy or a number", param_hint="--side-search")
    settings = protocol.Settings(
        strategies=strategies or protocol.BATCH_STRATEGIES,
        splits=splits,
        trees=trees,
        mu=mu,
        initial=initial,
        chunk=chunk,
        side_search=int(side_search) if side_search.isdigit() else side_search,
        memory=memory,
    )
    _run("incremental", sets, parts, settings, sweep, orders, json_file, plot_file)


@click.command()
@_set_option
@_trees_option
@_orders_option
@JSON_FILE
def hirf(sets: tuple[str, ...], trees: int, orders: int, json_file: Path | None) -> None:
    """The three experiments of hi-RF: initial classes, classes of a batch, out-of-bag boosting."""
    from streamforest.bench import output
    from streamforest.bench.incremental import hirf as experiments

    output.check_output("--json", json_file)
    console = output.table_console()
    found: list[dict[str, Any]] = []
    with output.Bar() as bar:
        for data in _available(sets or ("digits", "caltech101", "leaf99"), console):
            for result in experiments.run(data, trees, orders, lambda text: bar.begin(text, 1)):
                with bar.paused():
                    experiments.print_experiment(console, data, result)
                found.append(result.as_json() | {"set": data.name})
                if json_file is not None:
                    output.write_json(json_file, "hirf", {"experiments": found})
    console.print(output.versions_line(), style="dim", markup=False)


def _available(sets: tuple[str, ...], console: Any) -> list[Any]:
    from streamforest.bench.incremental import splits as class_sets
    from streamforest.errors import DatasetError

    skipped = {name: reason for name in sets if (reason := class_sets.unavailable(name))}
    for name, reason in skipped.items():
        console.print(f"{name}: skipped, {reason}", style="yellow", markup=False, soft_wrap=True)
    found = [class_sets.load(name) for name in sets if name not in skipped]
    if not found:
        raise DatasetError("no set could be read: " + "; ".join(skipped.values()))
    return found


def _run(
    name: str,
    sets: tuple[str, ...],
    parts: tuple[str, ...],
    settings: Any,
    sweep: str | None,
    orders: int,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    from streamforest.bench import output
    from streamforest.bench.incremental import experiments as work
    from streamforest.bench.incremental import splits as class_sets

    output.check_output("--json", json_file)
    output.check_output("--plot", plot_file)
    console = output.table_console()
    content: dict[str, Any] = {}
    panels: list[Any] = []
    with output.Bar() as bar:
        for data in _available(sets or class_sets.NAMES, console):
            shown = content.setdefault(data.name, {})
            for part in parts:
                bar.begin(f"{data.name}: {part}", 1)
                asked = work.Asked(data, settings, sweep, orders, lambda text: bar.begin(text, 1))
                result = work.PARTS[part](asked)
                with bar.paused():
                    result.show(console)
                shown[part] = result.content
                panels += result.panels
                if json_file is not None:
                    output.write_json(json_file, name, {"sets": content})
    console.print(output.versions_line(), style="dim", markup=False)
    if plot_file is not None and panels:
        output.plot(plot_file, panels)
