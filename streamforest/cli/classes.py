"""`streamforest classes`: what an operator tells a pipeline of its classes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import click

from streamforest.cli import Failure, LazyGroup
from streamforest.cli.arguments import PARTITION, PIPELINE, SET
from streamforest.errors import ConfigError
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.operate import inspect as inspection
from streamforest.runtime.operate.requests import AnnouncementRequests


@click.group(cls=LazyGroup)
def classes() -> None:
    """Tell a pipeline of classes that are about to come."""


@classes.command()
@PIPELINE
@click.argument("label")
@click.option(
    "--support",
    multiple=True,
    required=True,
    metavar="CLASS",
    help="A class that it is like. May be repeated, up to 16 times.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="The classes are JSON values: 7 is a number, not a text.",
)
@SET
@PARTITION
@click.option("--wait", default=10.0, show_default=True, help="Seconds to wait until it is done.")
def announce(
    pipeline: Path,
    label: str,
    support: tuple[str, ...],
    as_json: bool,
    settings: tuple[str, ...],
    partition: int | None,
    wait: float,
) -> None:
    """Announce class LABEL to PIPELINE: it is like the support classes, and uses them from its first row.

    The running process finds the request in its folder, carries it out at a commit and records it in the
    journal. If no process is running, the next one does.

    \b
    Example:
      streamforest classes announce pipelines/kafka.toml okapi --support giraffe --support zebra
    """
    loaded = load_pipeline(pipeline, os.environ, settings)
    if all(model.kind != "few" for model in loaded.config.models):
        raise ConfigError(
            f"{pipeline}: no model uses support classes; set model.kind = 'few' in a new run"
        )
    new, like = _value(label, as_json), [_value(one, as_json) for one in support]
    folder = inspection.folder_of(loaded, partition)
    requests = AnnouncementRequests(folder.home, folder.mode)
    requests.request(new, like)
    deadline = time.monotonic() + wait
    while requests.waiting() is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    refusal = requests.refusal()
    if refusal is not None:
        requests.acknowledge()
        raise Failure(refusal)
    if requests.waiting() is None:
        click.echo(f"{label} is announced")
    else:
        click.echo(f"{label} will be announced when the pipeline next commits")


def _value(text: str, as_json: bool) -> Any:
    if not as_json:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, (str, int, float)):
        raise ConfigError(
            f"--json: {text!r} is not a JSON text, number or bool; a text needs quotes: '\"{text}\"'"
        )
    return value
