"""`streamforest bench endurance`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--model", default="consistent", show_default=True, help="Which of our forests.")
@click.option("--events", default=5_000_000, show_default=True, help="Length of the stream.")
@click.option("--trees", default=10, show_default=True, help="Trees of the forest.")
@click.option("--features", default=20, show_default=True, help="Features of an event.")
@click.option("--classes", default=10, show_default=True, help="Classes of the stream.")
@click.option("--drift-every", default=0, show_default=True, help="Events between drifts; 0: none.")
@click.option("--seed", default=0, show_default=True, help="Seed of stream and forest.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write all figures here."
)
@click.option("--plot", "plot_file", type=click.Path(path_type=Path), help="Draw the curves here.")
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
    """A long stream through one forest: speed, accuracy and memory of each tenth of it."""
    from streamforest.bench import endurance as benchmark
    from streamforest.bench import report

    settings = benchmark.Settings(
        model=model,
        events=events,
        trees=trees,
        features=features,
        classes=classes,
        drift_every=drift_every,
        seed=seed,
    )
    report.check_output("--json", json_file)
    report.check_output("--plot", plot_file)
    with report.Bar() as bar:
        bar.begin(f"{model}, {trees} trees", events)
        tenths = benchmark.run(settings, bar.update)
    benchmark.print_result(report.table_console(), settings, tenths)
    if json_file is not None:
        report.write_json(json_file, "endurance", benchmark.content(settings, tenths))
    if plot_file is not None:
        report.plot(plot_file, benchmark.panels(tenths), columns=3)
