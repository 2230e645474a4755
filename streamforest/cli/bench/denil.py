"""`streamforest bench denil`: the figures of Denil et al. 2013."""

from __future__ import annotations

from pathlib import Path

import click

FIGURES = ("2", "3", "5", "fringe")


@click.command()
@click.option(
    "--figure",
    "figures",
    type=click.Choice(FIGURES),
    multiple=True,
    help="Only this figure. May be repeated.",
)
@click.option("--runs", type=click.IntRange(min=1), help="Number of runs, each with its own seed.")
@click.option(
    "--events",
    type=click.IntRange(min=1),
    help="Maximum number of training events (rows in Fig. 3, pixels in Fig. 5).",
)
@click.option("--trees", type=click.IntRange(min=1), help="Trees of every forest.")
@click.option("--poses", type=click.IntRange(min=1), help="Fig. 5: training poses.")
@click.option(
    "--candidates",
    type=click.IntRange(1, 4000),
    help="Fig. 5: offset pairs that a leaf draws, λ (of a pool of 4,000).",
)
@click.option("--quick", is_flag=True, help="A few seconds per figure, to see that it works.")
@click.option("--full", is_flag=True, help="Fig. 5 at the paper's scale, which takes hours.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--n-jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Threads per forest."
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all values to this file.",
)
@click.option(
    "--plot",
    "plot_target",
    type=click.Path(path_type=Path),
    help="Plot each figure: to a file (.png, .svg, .pdf) or a folder.",
)
def denil(
    figures: tuple[str, ...],
    runs: int | None,
    events: int | None,
    trees: int | None,
    poses: int | None,
    candidates: int | None,
    quick: bool,
    full: bool,
    seed: int,
    n_jobs: int,
    json_file: Path | None,
    plot_target: Path | None,
) -> None:
    """The figures of Denil et al. 2013: tables, plots, mean and spread over runs.

    \b
    2       a forest against its own trees and the Bayes rule (five Gaussians)
    3       USPS: ours, Saffari's and an offline forest over the amount of data
    5       body parts from depth images, ours and Saffari's at the same bytes
    fringe  accuracy and memory under a bounded fringe

    \b
    Example:
      streamforest bench denil
    """
    if quick and full:
        raise click.UsageError("--quick and --full exclude each other; give only one")
    from streamforest.bench import denil as benchmark
    from streamforest.bench import output
    from streamforest.bench.denil import report
    from streamforest.bench.denil.common import Options

    output.check_output("--json", json_file)
    report.check_plot_target(plot_target)
    options = Options(
        runs=runs,
        events=events,
        quick=quick,
        full=full,
        trees=trees,
        poses=poses,
        candidates=candidates,
        seed=seed,
        n_jobs=n_jobs,
    )
    console = output.table_console()
    measured = []
    with output.Bar() as bar:
        for figure in benchmark.measure(figures or FIGURES, options, bar):
            measured.append(figure)
            with bar.paused():
                report.print_figure(console, figure)
    if json_file is not None:
        content = {"figures": [figure.as_json() for figure in measured]}
        output.write_json(json_file, "denil", content)
    if plot_target is not None:
        for path in report.save_plots(plot_target, measured):
            console.print(f"drawn: {path}", markup=False, soft_wrap=True)
    console.print(output.versions_line(), style="dim", markup=False)
