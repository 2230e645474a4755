"""`streamforest bench soak`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="How long.")
@click.option("--rate", default=300.0, show_default=True, help="Events a second.")
@click.option("--delay", default=5.0, show_default=True, help="Seconds that labels are late.")
@click.option("--every", default=60.0, show_default=True, help="Seconds between two rebalances.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write all figures here."
)
def soak(minutes: float, rate: float, delay: float, every: float, json_file: Path | None) -> None:
    """A steady rate with late labels and a rebalance every minute: memory and latency over time."""
    from streamforest.bench import report
    from streamforest.bench import soak as benchmark

    settings = benchmark.Settings(minutes, rate, delay, every)
    report.check_output("--json", json_file)
    tenths = benchmark.run(settings, lambda text: click.echo(text, err=True))
    click.echo(benchmark.report(tenths))
    if json_file is not None:
        report.write_json(json_file, "soak", benchmark.content(settings, tenths))
