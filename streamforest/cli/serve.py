"""`streamforest serve`: answer over HTTP from a model that follows a pipeline, or from a snapshot."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import click

from streamforest.cli.arguments import PARTITION, SET
from streamforest.errors import ConfigError, DependencyError
from streamforest.observe import logs

log = logging.getLogger(__name__)


@click.command()
@click.argument("target", metavar="PIPELINE|SNAPSHOT", type=click.Path(path_type=Path))
@SET
@PARTITION
@click.option(
    "--model", "name", default=None, help="Of a snapshot: a shadow, not the model that published."
)
@click.option("--host", default=None, help="The address to listen on (serve.host).")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=None, help="The port (serve.port); 0: any."
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default=None,
    help="Format of the log on stderr (default: text on a terminal, json elsewhere).",
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default="info",
    show_default=True,
    help="Least important records that are logged.",
)
def serve(
    target: Path,
    settings: tuple[str, ...],
    partition: int | None,
    name: str | None,
    host: str | None,
    port: int | None,
    log_format: logs.Format | None,
    log_level: str,
) -> None:
    """Answer POST /predict, from a PIPELINE file's model as of its last commit, or from a SNAPSHOT.

    With a pipeline file this process is a replica: it follows the journal, owns nothing and learns exactly
    what the owner commits. Any number of them give the same answer for the same commit. SNAPSHOT is a file or
    a run folder, whose newest snapshot then answers; it needs no broker. The server listens on 127.0.0.1
    unless serve.host says otherwise.

    \b
    Examples:
      streamforest serve pipelines/kafka.toml --set serve.max_behind_seconds=10
      streamforest serve runs/digits --port 9110
    """
    try:
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise DependencyError("serve needs uvicorn: pip install 'streamforest[serve]'") from error
    logs.set_up(log_level, log_format)
    flags = list(settings)
    flags += [] if host is None else [f'serve.host="{host}"']
    flags += [] if port is None else [f"serve.port={port}"]
    if target.suffix == ".toml":
        _replica(target, flags, partition, name)
    else:
        _fixed(target, flags, partition, name)


def _replica(target: Path, flags: list[str], partition: int | None, name: str | None) -> None:
    from streamforest.runtime.config.load import load_pipeline
    from streamforest.serve.labels import LabelPublisher
    from streamforest.serve.replica import replica_of
    from streamforest.serve.server import bound_socket, check_tls

    if name is not None:
        raise click.UsageError(
            "--model: for a snapshot only; a replica answers as the pipeline does"
        )
    loaded = load_pipeline(target, os.environ, flags)
    config = loaded.config
    if config.kafka is None:
        raise ConfigError(
            f"{target}: has no [kafka] to follow; serve its snapshots instead: streamforest serve "
            f"{config.run.folder}"
        )
    each = config.kafka.model_scope == "partition"
    if each and partition is None:
        raise ConfigError("--partition: missing; this pipeline has a forest for each partition")
    if partition is not None and not each:
        raise ConfigError(
            f"--partition {partition}: this pipeline has one forest for all partitions "
            "(kafka.model_scope)"
        )
    check_tls(config.serve)
    with bound_socket(config.serve) as bound:
        model = replica_of(loaded, partition)
        about: dict[str, Any] = {"pipeline": config.name}
        if partition is not None:
            about["partition"] = partition
        labels = LabelPublisher(loaded, partition) if config.serve.accept_labels else None
        try:
            _serve(model, config.serve, about, labels, bound)
        finally:
            if labels is not None:
                labels.close()


def _fixed(target: Path, flags: list[str], partition: int | None, name: str | None) -> None:
    from streamforest.runtime.config.serving import serve_from
    from streamforest.runtime.operate.model import open_snapshot
    from streamforest.serve.fixed import FixedModel
    from streamforest.serve.server import bound_socket, check_tls

    if partition is not None:
        raise click.UsageError("--partition: for a pipeline file only")
    table = serve_from(os.environ, flags)
    if table.accept_labels:
        raise ConfigError("serve.accept_labels: needs a pipeline file, whose topic takes them")
    check_tls(table)
    with bound_socket(table) as bound:
        opened = open_snapshot(target)
        about = {"snapshot": Path(opened.path).name, "commits": False}
        _serve(FixedModel(opened, name), table, about, None, bound)


def _serve(model: Any, table: Any, about: dict[str, Any], labels: Any, bound: Any) -> None:
    from streamforest.serve.app import App
    from streamforest.serve.server import serve as serving

    app = App(model, table, about, labels)
    serving(app, bound, lambda address: log.info("listening on %s", address))
    log.info("stopped")
