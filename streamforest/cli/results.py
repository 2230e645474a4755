"""`streamforest report`: one HTML page of a finished run, from its predictions."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path

import click

from streamforest.cli.arguments import SET, check_servers
from streamforest.cli.report import number, percent
from streamforest.io.codec.events import Prediction
from streamforest.io.kafka.auth.connection import Connection
from streamforest.private_files import FILE_MODE, replace
from streamforest.results.numbers import measure
from streamforest.results.page import page
from streamforest.results.pictures import pictures
from streamforest.results.reading import as_frame, of_pipeline, predictions
from streamforest.runtime.config.load import load_pipeline
from streamforest.text import printable


@click.command()
@click.argument("target", metavar="RUN|TOPIC")
@SET
@click.option(
    "--bootstrap-servers",
    default=None,
    metavar="HOST:PORT",
    callback=check_servers,
    help="The broker that has TOPIC. For a broker with TLS or a login give the pipeline file instead.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="The page (default: report.html in the run folder, else NAME.html here).",
)
@click.option(
    "--png",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FOLDER",
    help="Also write accuracy.png, confusion.png and calibration.png there (needs matplotlib).",
)
@click.option("--title", default=None, help="The title of the page.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Read so many predictions at most.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the numbers as JSON; the page is written only with --out.",
)
def report(
    target: str,
    settings: tuple[str, ...],
    bootstrap_servers: str | None,
    out: Path | None,
    png: Path | None,
    title: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Make one HTML page of a run from its predictions: accuracy over time, births of classes, confusion,
    calibration.

    RUN is a run folder, a pipeline file or a file of predictions; TOPIC the topic they were published to.
    The page needs nothing else and loads nothing. A run may go on meanwhile: what is committed counts.

    \b
    Examples:
      streamforest report runs/digits
      streamforest report pipelines/kafka.toml --out digits.html
      streamforest report orders.predictions --bootstrap-servers 127.0.0.1:9092
    """
    path = Path(target)
    if path.suffix == ".toml" and bootstrap_servers is None:
        pipeline = load_pipeline(path, os.environ, settings)
        config = pipeline.config
        found = of_pipeline(pipeline)
        name = config.name
        usual = config.run.folder / "report.html" if config.kafka is None else Path(f"{name}.html")
    else:
        if settings:
            raise click.UsageError("--set: for a pipeline file only")
        where = None if bootstrap_servers is None else Connection(bootstrap_servers)
        found = predictions(target, where)
        on_disk = bootstrap_servers is None
        name = path.resolve().name if on_disk else target
        usual = path / "report.html" if on_disk and path.is_dir() else Path(f"{path.stem}.html")
        if on_disk and path.is_file():
            usual = path.with_suffix(".html")
        elif not on_disk:
            usual = Path(f"{target.replace(os.sep, '_')}.html")
    first = [_light(one) for one in islice(found, limit)]
    numbers = measure(as_frame(first))
    if next(found, None) is not None:
        numbers["remarks"] = [f"Only the first {limit:,} predictions were read (--limit)."]
    drawn = [] if png is None else pictures(numbers, png)  # first: it may lack what it needs
    if as_json:
        click.echo(json.dumps(numbers))
    if out is not None or not as_json:
        made = out or usual
        source = f"{len(first):,} predictions of {target}"
        mode = FILE_MODE if out is None and made.name == "report.html" else None
        replace(made, page(numbers, title or name, source), mode)  # in a run folder: as private
        if not as_json:
            click.echo(
                f"{printable(name)}: accuracy {percent(numbers['accuracy'])}, kappa "
                f"{number(numbers['kappa'])}, {numbers['classes']:,} classes, "
                f"{numbers['events']:,} predictions"
            )
            click.echo(f"page: {made}")
    for picture in drawn if not as_json else []:
        click.echo(f"picture: {picture}")


def _light(one: Prediction) -> Prediction:
    """Without what no report shows: a million of them must fit into memory."""
    one.top, one.id = [], None
    return one
