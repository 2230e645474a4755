"""`streamforest dlq`: list dead letters, show their events, and send them back."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import cast

import click

from streamforest.cli import LazyGroup
from streamforest.cli.arguments import PIPELINE, SET
from streamforest.errors import ConfigError
from streamforest.io.codec.dead_letters import Letter
from streamforest.io.codec.events import Format
from streamforest.io.codec.remedies import REMEDIES
from streamforest.io.tools.dlq import letters, send_back
from streamforest.io.tools.dlq_files import as_text, letters_in
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.config.schema import Config
from streamforest.text import nearest, printable, shown

_MAX_LISTED = 80  # characters of an event in a list
_MAX_SHOWN = 20_000  # characters of an event that is shown


@click.group(cls=LazyGroup)
def dlq() -> None:
    """Events that were refused: list them, show them, send them back after a fix."""


def _letters(config: Config, reason: str | None = None) -> Iterator[Letter]:
    """The dead letters of a pipeline, from its topic or its run folder, oldest first."""
    if config.kafka is None:
        found = letters_in(config.run.folder)
    else:
        found = letters(config.kafka.connection, config.topics.dead_letters)
    return (letter for letter in found if reason is None or letter.reason == reason)


def _hint(reason: str | None) -> None:
    """Say what a reason may be, if no letter has the one that was asked for."""
    if reason is not None and reason not in REMEDIES:
        near = nearest(reason, list(REMEDIES))
        click.echo(f"no dead letter has the reason {shown(reason)}; {near}", err=True)


def _place(letter: Letter, config: Config) -> str:
    topic = printable(letter.topic, 249)
    if config.kafka is None:
        return f"{topic}, row {letter.offset + 1}"
    return f"{topic}-{shown(letter.partition, 20)}@{shown(letter.offset, 20)}"


def _size(letter: Letter) -> int:
    return letter.truncated or len(letter.value or b"")


@dlq.command("list")
@PIPELINE
@SET
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_letters(pipeline: Path, settings: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List the dead letters of PIPELINE: where each came from, why it was refused, how its event begins.

    They are read from the dead-letter topic or, if the pipeline has no [kafka], from the run folder.

    \b
    Examples:
      streamforest dlq list pipelines/kafka.toml
      streamforest dlq list pipelines/kafka.toml --json --limit 10
    """
    config = load_pipeline(pipeline, os.environ, settings).config
    format = cast(Format, config.events_format)
    reasons: Counter[str] = Counter()
    for letter in islice(_letters(config), limit):
        reasons[printable(letter.reason, 40)] += 1  # it may be as long as a message
        text = as_text(letter, format)
        if as_json:
            fields = {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset}
            fields |= {"reason": letter.reason, "message": letter.message, "bytes": _size(letter)}
            click.echo(json.dumps({**fields, "event": text[:_MAX_SHOWN]}))
        else:
            why = f"{printable(letter.reason, 40)}  {_size(letter)} B  {printable(letter.message, 200)}"
            click.echo(f"{_place(letter, config)}  {why}  {printable(text, _MAX_LISTED)}")
    if not as_json:
        counts = [f"{reason} {n}" for reason, n in reasons.most_common(50)]
        click.echo(", ".join(counts) or "none")


@dlq.command("show")
@PIPELINE
@SET
@click.option("--reason", default=None, help="Only letters with this reason.")
@click.option("--skip", type=click.IntRange(0), default=0, help="Leave out the first N.")
@click.option("--limit", type=click.IntRange(1), default=1, show_default=True)
def show_letters(
    pipeline: Path, settings: tuple[str, ...], reason: str | None, skip: int, limit: int
) -> None:
    """Show whole dead letters of PIPELINE: place, reason, message, remedy, and the event as text.

    \b
    Example:
      streamforest dlq show pipelines/kafka.toml --reason invalid
    """
    config = load_pipeline(pipeline, os.environ, settings).config
    format = cast(Format, config.events_format)
    count = 0
    for letter in islice(_letters(config, reason), skip, skip + limit):
        count += 1
        whole = "" if letter.truncated is None else f", the beginning of {letter.truncated:,} bytes"
        rows = [
            ("at", _place(letter, config)),
            ("reason", printable(letter.reason, 40)),
            ("message", printable(letter.message)),
            ("remedy", REMEDIES.get(letter.reason, "see the message")),
            ("key", "" if letter.key is None else shown(letter.key, 200)),
            ("event", printable(as_text(letter, format), _MAX_SHOWN) + whole),
        ]
        for label, text in rows:
            if text:
                click.echo(f"{label:<8} {text}")
        click.echo()
    if not count:
        click.echo("none")
        _hint(reason)


@dlq.command("replay")
@PIPELINE
@SET
@click.option(
    "--reason",
    default=None,
    help="Only letters with this reason; the others stay for a later replay.",
)
def replay_letters(pipeline: Path, settings: tuple[str, ...], reason: str | None) -> None:
    """Send the dead letters of PIPELINE back to their topic, each once.

    The consumer group and the transactional id are the name of the dead-letter topic followed by .replay.

    \b
    Example:
      streamforest dlq replay pipelines/kafka.toml --reason invalid
    """
    config = load_pipeline(pipeline, os.environ, settings).config
    if config.kafka is None:
        raise ConfigError(
            f"{pipeline}: has no [kafka], and a file's rows cannot be sent back; correct the file or the "
            "settings, then start over with `streamforest run --fresh`"
        )
    sent, left = send_back(config.kafka.connection, config.topics, reason)
    click.echo(f"{sent} sent back, {left} left out")
    if not sent:
        _hint(reason)
