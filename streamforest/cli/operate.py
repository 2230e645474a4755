"""`streamforest promote` and `streamforest whatif`: for the operator of a running pipeline."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from streamforest.cli.arguments import ACCEPT_VERSION_CHANGE, PARTITION, PIPELINE, SET
from streamforest.cli.report import number, percent
from streamforest.errors import ConfigError
from streamforest.runtime.config.load import MAIN, load_pipeline
from streamforest.runtime.config.options import nearest
from streamforest.runtime.operate import inspect as inspection
from streamforest.runtime.operate.requests import OperatorRequests
from streamforest.runtime.operate.whatif import whatif as replay


@click.command()
@PIPELINE
@click.argument("shadow")
@SET
@PARTITION
@click.option("--wait", default=10.0, show_default=True, help="Seconds to wait until it is done.")
def promote(
    pipeline: Path, shadow: str, settings: tuple[str, ...], partition: int | None, wait: float
) -> None:
    """Make SHADOW publish from the next commit of PIPELINE on; `main` undoes it.

    The running process finds the request in its folder, carries it out at a commit and records it in the
    journal. If no process is running, the next one does.

    \b
    Examples:
      streamforest promote pipelines/kafka.toml online
      streamforest promote pipelines/kafka.toml main
    """
    loaded = load_pipeline(pipeline, os.environ, settings)
    names = [model.name for model in loaded.config.models]
    if shadow not in names:
        raise ConfigError(f"{shadow}: no such model in {pipeline}; {nearest(shadow, names)}")
    folder = inspection.folder_of(loaded, partition)
    requests = OperatorRequests(folder.home, folder.mode)
    requests.request_promotion(shadow)
    deadline = time.monotonic() + wait
    while requests.waiting and time.monotonic() < deadline:
        time.sleep(0.05)
    done = not requests.waiting
    what = f"[model] {MAIN}" if shadow == MAIN else shadow
    click.echo(
        f"{what} publishes now" if done else f"{what} will publish when the pipeline next commits"
    )


@click.command()
@PIPELINE
@click.argument("snapshot")
@click.option(
    "--set",
    "changes",
    multiple=True,
    required=True,
    metavar="KEY=VALUE",
    help="A changed parameter of [model], e.g. n_trees=50; or a setting of another table for both sides of "
    "the comparison, e.g. run.folder=elsewhere. May be repeated.",
)
@PARTITION
@ACCEPT_VERSION_CHANGE
def whatif(
    pipeline: Path,
    snapshot: str,
    changes: tuple[str, ...],
    partition: int | None,
    accept_version_change: bool,
) -> None:
    """Replay the journal of PIPELINE from SNAPSHOT on with other parameters, and compare.

    Nothing is published or changed, and the pipeline may keep running. The changed model starts untrained at
    the snapshot; for a fair comparison, so does a copy with the current parameters.

    \b
    Example:
      streamforest whatif pipelines/kafka.toml s-000000001000 --set n_trees=50
    """
    flags = [c if "." in c.partition("=")[0] else f"model.{c}" for c in changes]
    common = [flag for flag in flags if not flag.startswith("model.")]
    if common == flags:
        raise ConfigError(
            "--set: name at least one parameter of [model] to change, e.g. n_trees=50"
        )
    loaded = load_pipeline(pipeline, os.environ, common)
    changed = load_pipeline(pipeline, os.environ, flags)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("replaying", total=None)
        outcomes = replay(
            loaded,
            changed,
            snapshot,
            partition,
            accept_version_change,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    click.echo(f"{'since ' + inspection.full_name(snapshot):<36} labelled  accuracy   kappa")
    names = {
        "as it was": "current, from the snapshot",
        "untrained": "current, untrained there",
        "changed": f"{', '.join(changes)}, untrained there",
    }
    for outcome in outcomes:
        click.echo(
            f"  {names[outcome.variant]:<34} {outcome.labelled:>8,}  {percent(outcome.accuracy):>8}   "
            f"{number(outcome.kappa):>5}"
        )
