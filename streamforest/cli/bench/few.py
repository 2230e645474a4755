"""`streamforest bench few`: the experiments of Rodner and Denzler 2011."""

from __future__ import annotations

from pathlib import Path

import click

from streamforest.cli.bench import JSON_FILE, PLOT_FILE

EXPERIMENTS = ("1", "all", "2", "3", "forests")


@click.command()
@click.option(
    "--experiment",
    "experiments",
    type=click.Choice(EXPERIMENTS),
    multiple=True,
    help="Only this experiment. May be repeated.",
)
@click.option("--runs", type=click.IntRange(min=1), help="Number of runs, each with its own seed.")
@click.option(
    "--trees",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Trees grown to purity; experiment 2 has ten times as many.",
)
@click.option("--quick", is_flag=True, help="A few seconds per experiment, to see that it works.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@JSON_FILE
@PLOT_FILE
def few(
    experiments: tuple[str, ...],
    runs: int | None,
    trees: int,
    quick: bool,
    seed: int,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """A class of few rows (Rodner and Denzler 2011): plain, balanced, MAP, MAP with the extra level.

    \b
    1        the letter e from a, b, c, d; scikit-learn's ExtraTrees beside ours
    all      each Latin letter from its five nearest
    2        a class against background, with one support class (caltech101)
    3        similar and dissimilar support classes
    forests  our forests with their defaults

    \b
    Examples:
      streamforest bench few
      streamforest bench few --experiment 1 --trees 50
    """
    from streamforest.bench import few as benchmark
    from streamforest.bench import output
    from streamforest.bench.denil import report

    output.check_output("--json", json_file)
    output.check_output("--plot", plot_file)
    options = benchmark.Options(runs=runs, trees=trees, quick=quick, seed=seed)
    console = output.table_console()
    measured = []
    with output.Bar() as bar:
        for figure in benchmark.measure(experiments or EXPERIMENTS, options, bar):
            measured.append(figure)
            with bar.paused():
                report.print_figure(console, figure)
    if json_file is not None:
        content = {"experiments": [figure.as_json() for figure in measured]}
        output.write_json(json_file, "few", content)
    panels = [report.drawn(panel) for figure in measured for panel in figure.panels]
    if plot_file is not None and panels:
        output.plot(plot_file, panels)
        console.print(f"drawn: {plot_file}", markup=False, soft_wrap=True)
    console.print(output.versions_line(), style="dim", markup=False)
