"""`streamforest check` and `streamforest schema`: what a pipeline file says, what an event is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from streamforest.cli.arguments import PIPELINE, SET
from streamforest.cli.report import letters
from streamforest.cli.sample import sample_lines
from streamforest.errors import ConfigError
from streamforest.io.codec.events import json_schema
from streamforest.io.kafka.auth.connection import Security
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.config.schema import Config, RunTable, SourceTable
from streamforest.runtime.config.sources import open_source
from streamforest.runtime.operate.sample import of_source, of_topics
from streamforest.text import printable


@click.command()
@PIPELINE
@SET
@click.option(
    "--sample", "sampled", is_flag=True, help="On Kafka: also read the first 1,000 records."
)
def check(pipeline: Path, settings: tuple[str, ...], sampled: bool) -> None:
    """Check PIPELINE and report every mistake at once, without starting anything.

    The first 1,000 records of a recorded source, or with --sample of the topics, are read as a run would
    read them: what each column is taken for, and what would be refused.

    \b
    Examples:
      streamforest check pipelines/digits.toml
      streamforest check pipelines/kafka.toml --sample
    """
    loaded = load_pipeline(pipeline, os.environ, settings)
    config = loaded.config
    models = ", ".join(f"{m.name} ({m.factory or m.kind})" for m in config.models)
    rows = [("pipeline", config.name), ("models", models), ("folder", str(config.run.folder))]
    if config.kafka is not None:
        rows += [
            ("events", f"{config.topics.events} at {config.kafka.bootstrap_servers}"),
            ("to", _topics(config)),
            ("scope", _scope(config.kafka.model_scope)),
            ("security", _security(config.kafka.security)),
            ("delivery", _delivery(config.kafka.delivery)),
            *_labels(config),
            ("time", "the records' own timestamps (CreateTime unless the topic says otherwise)"),
        ]
    elif loaded.source is not None:
        rows.append(("events", f"{loaded.source.total:,} of {loaded.source.topic}"))
    if loaded.decoder is not None:
        rows.append(("decoder", loaded.decoder.name))
    rows += [
        ("commits", _commits(config.run)),
        ("snapshots", _snapshots(config.run)),
        ("metrics", _metrics(config)),
    ]
    if config.kafka is not None and config.source is not None:
        rows.append(("source", _replayed(config.source, config)))
    for label, text in rows:
        click.echo(f"{label:<9} {printable(text, 4_000)}")  # names of files and modules are in it
    asked = "" if config.kafka is None or sampled else "; the broker was not asked"
    sample = None
    if config.kafka is not None and sampled:
        sample = of_topics(loaded)
    elif config.kafka is None and loaded.source is not None:
        sample = of_source(loaded)
    for line in [] if sample is None else sample_lines(sample):
        click.echo(printable(line, 4_000))
    if sample is not None and sample.summary.dead_letters:
        count = letters(sample.summary.dead_letters)
        if sample.summary.dead_letters == sample.summary.read:
            text = f"Error: {pipeline}: every event of the sample would be refused ({count}); see above"
            click.echo(printable(text, 4_000), err=True)
            raise click.exceptions.Exit(1)
        asked += f"; {count} among the first {sample.summary.read:,} events"
    click.echo(f"no mistakes found{asked}")


def _topics(config: Config) -> str:
    topics = config.topics
    return (
        f"{topics.predictions} (predictions), {topics.dead_letters} (dead letters), "
        f"{topics.journal} (journal)"
    )


def _commits(run: RunTable) -> str:
    if run.commit_interval_ms is None:
        return f"every {run.commit_interval_events:,} events"
    return (
        f"every {run.commit_interval_ms:,} ms or {run.commit_interval_events:,} events, "
        "whichever comes first"
    )


def _snapshots(run: RunTable) -> str:
    when = (
        [] if run.snapshot_interval_events is None else [f"{run.snapshot_interval_events:,} events"]
    )
    when += (
        [] if run.snapshot_interval_seconds is None else [f"{run.snapshot_interval_seconds:,} s"]
    )
    return f"every {' and every '.join(when)}; the last {run.keep_snapshots:,} are kept"


def _metrics(config: Config) -> str:
    if not config.metrics_port:
        return "none; set metrics.port to serve them"
    host = f"[{config.metrics_host}]" if ":" in config.metrics_host else config.metrics_host
    text = f"http://{host}:{config.metrics_port}/metrics"
    if config.metrics_allowed:
        text += f", also by the names {', '.join(config.metrics_allowed)}"
    return text


def _replayed(table: SourceTable, config: Config) -> str:
    """What `replay` would send. A consumer does not need it, so a problem here is no mistake."""
    try:
        source = open_source(table, config.features, config.bounds)
    except ConfigError as error:
        return f"unavailable, but only replay needs it: {printable(str(error))}"
    return f"{source.total:,} of {source.topic}, for replay"


def _labels(config: Config) -> list[tuple[str, str]]:
    """Where late labels come from, and how long events wait for them."""
    labels = config.labels
    if labels is None:
        return []
    where = "among the events" if config.topics.labels is None else f"on {config.topics.labels}"
    return [
        (
            "labels",
            f"by id, {where}; an event waits {labels.expire_after_seconds:,} s of stream time, at most "
            f"{labels.max_events:,} events and {labels.max_bytes:,} bytes",
        )
    ]


def _security(security: Security) -> str:
    """Who connects and how; where the password is, never what it is."""
    text = {
        "PLAINTEXT": "none: no encryption, no login",
        "SSL": "TLS",
        "SASL_SSL": "TLS",
        "SASL_PLAINTEXT": "none: the login and all data are unencrypted",
    }[security.protocol]
    if security.sasl:
        text += f", logs in as {security.login} by {security.mechanism}"
    if security.tls:
        text += f", trusts {security.ca_file or 'the certificate authorities of this machine'}"
    return text + (f", client certificate {security.cert_file}" if security.cert_file else "")


def _scope(scope: str) -> str:
    if scope == "topic":
        return "topic: one forest for all partitions, in one process; other processes are standbys"
    return "partition: a forest for each partition, spread over the processes; each learns every class itself"


def _delivery(kind: str) -> str:
    if kind == "exactly-once":
        return "exactly-once: predictions, dead letters, journal and offsets in one transaction"
    return (
        "at-least-once: after a crash some predictions may be published twice; the model itself "
        "stays exact"
    )


@click.command()
def schema() -> None:
    """Print the JSON Schema of an event.

    \b
    Example:
      streamforest schema > event.schema.json
    """
    click.echo(json.dumps(json_schema(), indent=2))
