"""`streamforest dlq`: list dead letters, and send them back."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import click

from streamforest.cli.arguments import PIPELINE
from streamforest.errors import ConfigError
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.tools.dlq import letters, send_back
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.config.schema import Config
from streamforest.text import printable, shown


@click.group()
def dlq() -> None:
    """Events that were refused: list them, send them back after a fix."""


def _config(pipeline: Path) -> tuple[Connection, Config]:
    config = load_pipeline(pipeline, os.environ).config
    if config.kafka is None:
        raise ConfigError(
            f"{pipeline}: has no [kafka]; the dead letters of a file run are in "
            f"{config.run.folder / 'dead_letters.jsonl'}"
        )
    return config.kafka.connection, config


@dlq.command("list")
@PIPELINE
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_letters(pipeline: Path, limit: int, as_json: bool) -> None:
    """Show the dead letters of PIPELINE: where each came from and why it was refused."""
    connection, config = _config(pipeline)
    reasons: Counter[str] = Counter()
    for letter in letters(connection, config.topics.dead_letters, limit):
        reasons[printable(letter.reason, 40)] += 1  # it may be as long as a message
        size = letter.truncated or len(letter.value or b"")
        if as_json:
            told = {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset}
            told |= {"reason": letter.reason, "message": letter.message, "bytes": size}
            click.echo(json.dumps(told))
        else:
            where = f"{shown(letter.partition, 20)}@{shown(letter.offset, 20)}"
            place = f"{printable(letter.topic, 249)}-{where}"
            why = f"{printable(letter.reason, 40)}  {size} B  {printable(letter.message, 200)}"
            click.echo(f"{place}  {why}")
    if not as_json:
        counts = [f"{reason} {n}" for reason, n in reasons.most_common(50)]
        click.echo(", ".join(counts) or "none")


@dlq.command("replay")
@PIPELINE
@click.option(
    "--reason",
    default=None,
    help="Only letters with this reason; the others stay for a later replay.",
)
def replay_letters(pipeline: Path, reason: str | None) -> None:
    """Send the dead letters of PIPELINE back to their topic, each once.

    The consumer group and the transactional id are the name of the dead-letter topic followed by .replay.
    """
    connection, config = _config(pipeline)
    sent, left = send_back(connection, config.topics, reason)
    click.echo(f"{sent} sent back, {left} left out")
