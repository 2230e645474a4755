"""`streamforest run`: a pipeline file from start, or from where it stands, to its end."""

from __future__ import annotations

import os
from pathlib import Path

import click

from streamforest.cli.display import progress, report
from streamforest.runtime.config import load_pipeline
from streamforest.runtime.folder import RunFolder
from streamforest.runtime.loop import Run
from streamforest.runtime.stopping import StopSignals


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path))
@click.option("--fresh", is_flag=True, help="Start over, replacing the run in the folder.")
@click.option(
    "--max-events",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N more events; the next run goes on from there.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="Override a setting, e.g. model.n_trees=20. May be repeated. The environment variable "
    "STREAMFOREST_MODEL__N_TREES does the same; a flag wins over it, and it wins over the file.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the closing report.")
def run(
    pipeline: Path, fresh: bool, max_events: int | None, settings: tuple[str, ...], quiet: bool
) -> None:
    """Stream the events of PIPELINE, a TOML file, through its forest.

    Each event is predicted, then learned. The run folder (runs/NAME by default) keeps a snapshot
    and the predictions; running the same file again goes on where the last run stopped, however it
    was stopped, with exactly the result of a run that never was.
    """
    opened = load_pipeline(pipeline, os.environ, settings)
    config = opened.config
    name = config.pipeline.name
    with (
        RunFolder(config.run.folder) as folder,
        Run(
            opened.source,
            opened.models,
            folder,
            batch=config.run.batch,
            snapshot_every=config.run.snapshot_every,
            fresh=fresh,
        ) as current,
    ):
        if current.finished:
            click.echo(report(current, name))
            click.echo(
                f"Finished before: nothing left to do. --fresh starts {name} over.", err=True
            )
            return
        if current.events and not quiet:
            click.echo(f"{name}: going on at event {current.events:,}", err=True)
        current.warm_up()
        with StopSignals() as signals, progress(current, name, quiet) as watch:
            ending = current.consume(
                max_events=max_events, stop=lambda: signals.requested is not None, watch=watch
            )
        click.echo(report(current, name))
        if ending != "finished":
            why = signals.requested if ending == "stopped" else f"--max-events {max_events}"
            click.echo(
                f"Stopped by {why} after event {current.events:,} of {current.source.total:,}; "
                "the same command goes on from there.",
                err=True,
            )
