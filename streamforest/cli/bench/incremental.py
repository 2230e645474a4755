"""`streamforest bench incremental` and `streamforest bench hirf`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streamforest.cli.bench import JSON_FILE, PLOT_FILE

FIGURES = ("4", "5", "6", "7", "8", "10", "11", "12", "13", "14", "table1")
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
    help="Splits of the trees (default: ncm; with --paper both). May be repeated.",
)
@click.option(
    "--paper",
    "figures",
    multiple=True,
    type=click.Choice((*FIGURES, "all")),
    help="A figure or table of Ristin 2016 with the paper's settings (8: Figs 8 and 9; 12: Fig. 12 and "
    "Table 2). May be repeated.",
)
@click.option(
    "--sweep",
    type=click.Choice(("centroids", "mu", "initial", "sampling", "chunk", "pi", "orders")),
    help="Vary this parameter, for the figures of Ristin 2016 (orders: ten class orders).",
)
@click.option("--trees", type=int, help="Trees of every forest (default: 25; with --paper 50).")
@click.option(
    "--mu",
    type=int,
    help="µ: minimum number of rows on each side of a split (default: 2; with --paper 10).",
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
    metavar="greedy|N",
    help="How to assign classes to sides: greedy, or this many random assignments (default: greedy; with "
    "--paper 1024).",
)
@click.option(
    "--pi",
    default=0.05,
    show_default=True,
    help="π: share of the nodes that RTST and RUST retrain.",
)
@click.option(
    "--node-sampling",
    type=click.Choice(("quality", "size", "uniform")),
    default="quality",
    show_default=True,
    help="How RTST and RUST draw nodes.",
)
@click.option("--classes", type=int, help="Only so many classes (default: all of the set).")
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
    figures: tuple[str, ...],
    sweep: str | None,
    trees: int | None,
    mu: int | None,
    initial: int | None,
    chunk: int | None,
    side_search: str | None,
    pi: float,
    node_sampling: str,
    classes: int | None,
    memory: float,
    orders: int,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Forests that learn new classes batch by batch, against a forest retrained on all of them.

    All data sets except digits need the folder that STREAMFOREST_DATA names; a missing one is skipped, and
    the output says why. Parts: strategies (the papers' protocol), baselines (all classes at once, with other
    models), cost (prediction time by number of classes), latency (predict_one while trees grow), novelty
    (AUROC of classes never seen). With --paper: figures of Ristin 2016 instead, with the paper's settings.

    \b
    Examples:
      streamforest bench incremental --set letter
      streamforest bench incremental --set letter --part novelty
      streamforest bench incremental --set caltech101 --paper 8
    """
    from streamforest.bench.incremental import protocol

    own = (50, 10, "1024", ("ncm", "svm")) if figures else (25, 2, "greedy", ("ncm",))
    settings = protocol.Settings(
        strategies=strategies or protocol.BATCH_STRATEGIES,
        splits=splits or own[3],
        trees=own[0] if trees is None else trees,
        mu=own[1] if mu is None else mu,
        initial=initial,
        chunk=chunk,
        side_search=_side_search(side_search or own[2]),
        pi=pi,
        node_sampling=node_sampling,
        classes=classes,
        memory=memory,
    )
    if figures:
        _run_figures(sets, figures, settings, orders, json_file)
    else:
        _run("incremental", sets, parts, settings, sweep, orders, json_file, plot_file)


def _run_figures(
    sets: tuple[str, ...],
    figures: tuple[str, ...],
    settings: Any,
    orders: int,
    json_file: Path | None,
) -> None:
    from streamforest.bench import output
    from streamforest.bench.incremental import paper_figures

    output.check_output("--json", json_file)
    console = output.table_console()
    content: dict[str, Any] = {}
    keys = FIGURES if "all" in figures else tuple(dict.fromkeys(figures))
    with output.Bar() as bar:
        for data in _available(sets or ("caltech101",), console):
            for key in keys:
                asked = paper_figures.Asked(data, settings, orders, lambda text: bar.begin(text, 1))
                sheet = paper_figures.FIGURES[key](asked)
                with bar.paused():
                    sheet.show(console)
                content.setdefault(data.name, {})[key] = sheet.as_json()
                if json_file is not None:
                    output.write_json(json_file, "incremental", {"paper": content})
    console.print(output.versions_line(), style="dim", markup=False)


@click.command()
@_set_option
@click.option(
    "--figure",
    "figures",
    multiple=True,
    type=click.Choice(("II", "III", "IV", "V")),
    help="Only this figure. May be repeated.",
)
@click.option("--trees", default=50, show_default=True, help="Trees of every forest.")
@click.option(
    "--mu", default=0, show_default=True, help="µ: minimum number of rows on each side of a split."
)
@click.option(
    "--side-search",
    default="1024",
    show_default=True,
    help="How to assign classes to sides: this many random assignments, or greedy (ours).",
)
@_orders_option
@JSON_FILE
def hirf(
    sets: tuple[str, ...],
    figures: tuple[str, ...],
    trees: int,
    mu: int,
    side_search: str,
    orders: int,
    json_file: Path | None,
) -> None:
    """Figures II to V of hi-RF: one increment from n % of the classes; batches, boosted and not.

    The settings are the published ones; kept trees that grow and a corrected out-of-bag error are beside
    them.

    \b
    Example:
      streamforest bench hirf --set letter --figure II
    """
    from streamforest.bench import output
    from streamforest.bench.incremental import hirf as experiments
    from streamforest.bench.incremental.protocol import Settings

    output.check_output("--json", json_file)
    settings = Settings(
        strategies=("hirf",), trees=trees, mu=mu, side_search=_side_search(side_search)
    )
    console = output.table_console()
    found: list[dict[str, Any]] = []
    with output.Bar() as bar:
        for data in _available(sets or ("digits", "caltech101", "clinc150"), console):
            for result in experiments.run(
                data, settings, orders, lambda text: bar.begin(text, 1), figures
            ):
                with bar.paused():
                    experiments.print_experiment(console, data, result)
                found.append(result.as_json() | {"set": data.name})
                if json_file is not None:
                    output.write_json(json_file, "hirf", {"experiments": found})
    console.print(output.versions_line(), style="dim", markup=False)


def _side_search(text: str) -> int | str:
    if not text.isdigit() and text != "greedy":
        raise click.BadParameter("give greedy or a number", param_hint="--side-search")
    return int(text) if text.isdigit() else text


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
