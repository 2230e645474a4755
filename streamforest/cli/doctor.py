"""`streamforest doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from streamforest._version import __version__
from streamforest.cli.arguments import SET, check_servers
from streamforest.cli.page import DEFAULT_PORT
from streamforest.errors import BrokerError, ConfigError
from streamforest.forests.core import registry
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.auth.diagnosis import diagnose
from streamforest.io.kafka.clients import asking
from streamforest.io.kafka.topics import absent
from streamforest.kernels.core import cache
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.config.schema import Config
from streamforest.testing.broker import download
from streamforest.testing.broker import server as local
from streamforest.text import printable

Status = Literal["ok", "warning", "missing"]
_ENOUGH_DISK = 1 << 30
_LEAST_DISK = 100 << 20
_KERNELS = {
    "stream": ["stream.entry"],
    "ncm": ["ncm.entry"],
    "auto": ["auto.blending", "stream.entry", "ncm.entry"],
    "consistent": ["candidate.consistent"],
    "online": ["candidate.online"],
    "few": ["few.entry"],
}
"""The modules whose compiled functions a kind calls first."""


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was found, and the remedy where there is something to do."""

    check: str
    status: Status
    found: str
    remedy: str = ""


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path), required=False)
@SET
@click.option(
    "--bootstrap-servers",
    "servers",
    callback=check_servers,
    default=None,
    metavar="HOST:PORT",
    help="Also ask this broker (default: the pipeline file's).",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def doctor(
    pipeline: Path | None, settings: tuple[str, ...], servers: str | None, as_json: bool
) -> None:
    """Check this machine: Java, broker, ports, caches, disk, kernels; and PIPELINE, if it is given.

    Exit code 1 if something is missing that a run needs. A warning is for what only some commands need.
    Nothing is started or changed.

    \b
    Examples:
      streamforest doctor
      streamforest doctor pipelines/kafka.toml
      streamforest doctor --bootstrap-servers 127.0.0.1:9092 --json
    """
    found = list(_examine(pipeline, settings, servers))
    for one in found:
        if as_json:
            click.echo(json.dumps(asdict(one)))
            continue
        click.echo(f"{one.status:<8} {one.check:<9} {printable(one.found, 2_000)}")
        if one.remedy:
            click.echo(f"{'':<18} {printable(one.remedy, 2_000)}")
    missing = [one.check for one in found if one.status == "missing"]
    if not as_json:
        click.echo(
            f"missing: {', '.join(missing)}" if missing else "nothing that is needed is missing"
        )
    if missing:
        raise click.exceptions.Exit(1)


def _examine(
    pipeline: Path | None, settings: tuple[str, ...], servers: str | None
) -> Iterator[Finding]:
    python = f"Python {platform.python_version()} on {platform.platform()}"
    yield Finding("python", "ok", f"streamforest {__version__}, {python}")
    config = None
    if pipeline is not None:
        config, finding = _pipeline(pipeline, settings)
        yield finding
    yield from _caches()
    yield _kernels(config)
    yield from _java()
    connection = None if servers is None else Connection(servers)
    if config is not None and config.kafka is not None:
        connection = Connection(servers or config.kafka.bootstrap_servers, config.kafka.security)
    yield _local_broker() if connection is None else _broker(connection, config)
    yield _port(config)
    yield from _disk(config)


def _pipeline(path: Path, settings: tuple[str, ...]) -> tuple[Config | None, Finding]:
    try:
        config = load_pipeline(path, os.environ, settings).config
    except ConfigError as error:
        lines = str(error).splitlines()
        why = lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[1].strip()}"
        remedy = f"`streamforest check {path}` lists every mistake"
        return None, Finding("pipeline", "missing", why, remedy)
    return config, Finding("pipeline", "ok", f"{config.name}, from {path}")


# ---- files


def _caches() -> Iterator[Finding]:
    folder = cache.base_folder()
    why = _why_not_writable(folder)
    if why is None:
        yield Finding("cache", "ok", f"compiled kernels are kept in {folder}")
    else:
        yield Finding(
            "cache",
            "missing",
            f"{folder} cannot be written ({why}): kernels would be compiled at every start",
            "set NUMBA_CACHE_DIR to a folder that this user may write to",
        )


def _why_not_writable(folder: Path) -> str | None:
    """Why no file can be made in a folder, or in the nearest one above it that exists; None if one can."""
    try:
        with tempfile.TemporaryFile(dir=_existing(folder)):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    absolute = folder.absolute()
    return next((one for one in (absolute, *absolute.parents) if one.exists()), Path("/"))


def _kernels(config: Config | None) -> Finding:
    kinds = registry.kinds()
    if config is not None:
        kinds = [model.kind for model in config.models if model.factory is None] or kinds
    cold = [kind for kind in dict.fromkeys(kinds) if not _is_compiled(kind)]
    if not cold:
        return Finding("kernels", "ok", f"compiled: {', '.join(dict.fromkeys(kinds))}")
    return Finding(
        "kernels",
        "warning",
        f"not compiled yet: {', '.join(cold)}",
        "nothing to do: the first run compiles what it needs, which takes about a minute once",
    )


def _is_compiled(kind: str) -> bool:
    """Whether there are compiled functions of a kind, of this version."""
    return all(cache.is_compiled(module) for module in _KERNELS.get(kind, []))


def _disk(config: Config | None) -> Iterator[Finding]:
    places = {"runs": Path("runs") if config is None else config.run.folder}
    places["cache"] = cache.base_folder()
    for name, folder in places.items():
        there = _existing(folder)
        free = shutil.disk_usage(there).free
        space = f"{free / 1e9:.1f} GB free for {folder}"
        why = _why_not_writable(folder) if name == "runs" else None
        if why is not None:
            remedy = "give the folder to this user, or set run.folder"
            yield Finding("disk", "missing", f"{folder} cannot be written: {why}", remedy)
        elif free < _LEAST_DISK:
            remedy = "make room: snapshots and compiled kernels cannot be written"
            yield Finding("disk", "missing", space, remedy)
        elif free < _ENOUGH_DISK:
            remedy = "snapshots take run.keep_snapshots times the size of the model; make room"
            yield Finding("disk", "warning", space, remedy)
        else:
            yield Finding("disk", "ok", space)


# ---- Java and brokers


def _java() -> Iterator[Finding]:
    purpose = "needed only for `streamforest broker`, `run --broker` and the tests"
    try:
        yield Finding("java", "ok", download.java())
    except BrokerError as error:
        yield Finding("java", "warning", str(error), purpose)
        return
    missing = download.missing()
    if missing is not None:
        yield Finding("kafka", "warning", missing, purpose)
    else:
        yield Finding("kafka", "ok", f"Apache Kafka {download.KAFKA} can be started here")


def _local_broker() -> Finding:
    status = local.Broker(local.default_folder()).status()
    if status.running:
        return Finding("broker", "ok", f"{status.servers} (process {status.pid})")
    text = f"no broker of `streamforest broker start` is running in {status.folder}"
    if local.can_listen(local.DEFAULT_PORT):
        return Finding("broker", "ok", f"{text}; port {local.DEFAULT_PORT} is free for one")
    return Finding(
        "broker",
        "warning",
        f"{text}, and port {local.DEFAULT_PORT} is taken",
        "if that is a Kafka of yours, ask it with --bootstrap-servers; else start ours with --port",
    )


def _broker(connection: Connection, config: Config | None) -> Finding:
    trouble = diagnose(connection)
    if trouble is not None:
        return Finding("broker", "missing", trouble.text)  # which says what to do
    if config is None or config.kafka is None:
        return Finding("broker", "ok", f"{connection.servers} answers")
    try:
        with asking(connection) as client:
            lacking = absent(client, [*config.topics.inputs, config.topics.journal])
    except BrokerError as error:
        return Finding("broker", "missing", str(error))
    if lacking:
        return Finding(
            "broker",
            "missing",
            f"{connection.servers} answers, but has no topic {', '.join(lacking)}",
            "create them, or run with --create-topics",
        )
    return Finding("broker", "ok", f"{connection.servers} answers and has the topics")


def _port(config: Config | None) -> Finding:
    port = DEFAULT_PORT if config is None else config.metrics_port or DEFAULT_PORT
    host = "127.0.0.1" if config is None else config.metrics_host
    if local.can_listen(port, host):
        return Finding("port", "ok", f"{port} is free for metrics and the live page")
    if _is_a_consumer(port):
        return Finding("port", "ok", f"{port} is a streamforest consumer's, which runs already")
    served = config is not None and config.metrics_port != 0
    return Finding(
        "port",
        "missing" if served else "warning",
        f"{port} is taken, or {host} is no address of this machine",
        "free it, or take another one with --set metrics.port=…",
    )


def _is_a_consumer(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=2) as answer:
            return bool(answer.read(100).startswith(b"alive"))
    except (TimeoutError, OSError, urllib.error.URLError, ValueError):
        return False
