"""`streamforest check` and `streamforest schema`: what a pipeline file says, what an event is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from streamforest.runtime.config import load_pipeline
from streamforest.runtime.tables import Config
from streamforest.stream.events import json_schema
from streamforest.stream.security import Security
from streamforest.text import printable


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path))
@click.option("--set", "settings", multiple=True, metavar="TABLE.KEY=VALUE", help="As in run.")
def check(pipeline: Path, settings: tuple[str, ...]) -> None:
    """Check PIPELINE as a whole, every mistake at once, without starting anything."""
    loaded = load_pipeline(pipeline, os.environ, settings)
    config = loaded.config
    models = ", ".join(f"{m.name} ({m.factory or m.kind})" for m in config.models)
    rows = [("pipeline", config.name), ("models", models), ("folder", str(config.run.folder))]
    if config.kafka is not None:
        rows += [
            ("events", f"{config.topics.events} at {config.kafka.servers}"),
            ("scope", _scope(config.kafka.scope)),
            ("security", _security(config.kafka.security)),
            ("delivery", _delivery(config.kafka.delivery)),
            *_labels(config),
            ("time", "the records' own timestamps (CreateTime unless the topic says otherwise)"),
        ]
    elif loaded.source is not None:
        rows.append(("events", f"{loaded.source.total:,} of {loaded.source.topic}"))
    if loaded.decoder is not None:
        rows.append(("decoder", loaded.decoder.name))
    for label, text in rows:
        click.echo(f"{label:<9} {text}")


def _labels(config: Config) -> list[tuple[str, str]]:
    """Where late labels come from and how long they are waited for."""
    labels = config.labels
    if labels is None:
        return []
    where = "among the events" if config.topics.labels is None else f"on {config.topics.labels}"
    return [
        (
            "labels",
            f"by id, {where}; an event waits {labels.wait_seconds:,} s of stream time, at most "
            f"{labels.max_events:,} events and {labels.max_bytes:,} bytes",
        )
    ]


def _security(security: Security) -> str:
    """Who connects and how; where the password is, never what it is."""
    told = {
        "plaintext": "none: neither encrypted nor logged in",
        "tls": "TLS",
        "sasl-tls": "TLS",
        "sasl-plaintext": "none: the login and all else go unencrypted",
    }[security.kind]
    if security.sasl:
        told += f", logs in as {printable(security.user or '', 100)} by {security.mechanism}"
    if security.tls:
        told += f", trusts {security.ca_file or 'the authorities of this machine'}"
    return told + (f", shows {security.cert_file}" if security.cert_file else "")


def _scope(scope: str) -> str:
    if scope == "topic":
        return "topic: one forest for all partitions, in one process; further ones stand by"
    return "partition: a forest for each, spread over the processes; a class is learned in each"


def _delivery(kind: str) -> str:
    if kind == "exactly-once":
        return "exactly-once: predictions, dead letters, journal and offsets in one transaction"
    return (
        "at-least-once: after a crash some predictions may be published twice; the model itself is "
        "still exact"
    )


@click.command()
def schema() -> None:
    """Print the JSON Schema of an event."""
    click.echo(json.dumps(json_schema(), indent=2))
