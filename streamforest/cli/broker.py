"""`streamforest broker`: a real single-node Apache Kafka on loopback."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from streamforest.cli import LazyGroup
from streamforest.testing.broker.server import DEFAULT_PORT, Broker, default_folder, has_port

_FOLDER = click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder for everything that the broker keeps (default: broker/ in the cache folder).",
)


_ENDS = {signal.SIGINT, signal.SIGTERM}


@click.group(cls=LazyGroup)
def broker() -> None:
    """Start, stop or inspect a real single-node Apache Kafka on 127.0.0.1."""


@broker.command()
@_FOLDER
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=None,
    help=f"0 picks a free port (default: the folder's last port, else {DEFAULT_PORT}).",
)
@click.option("--ephemeral", is_flag=True, help="Keep nothing, and run until interrupted.")
def start(folder: Path | None, port: int | None, ephemeral: bool) -> None:
    """Start a broker; the first start downloads Apache Kafka.

    \b
    Examples:
      streamforest broker start
      streamforest broker start --ephemeral --port 0
    """
    if ephemeral:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # while it starts
        with Broker(port=DEFAULT_PORT if port is None else port) as node:
            signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)  # after the start: it is inherited
            click.echo(node.servers)
            signal.sigwait(_ENDS)
        return
    where = folder or default_folder()
    if port is None and not has_port(where):
        port = DEFAULT_PORT
    node = Broker(where, port=port)
    node.start()
    click.echo(f"{node.servers} (process {node.status().pid}, {node.folder})")


@broker.command()
@_FOLDER
def stop(folder: Path | None) -> None:
    """Stop the broker; its topics are kept.

    \b
    Example:
      streamforest broker stop
    """
    node = Broker(folder or default_folder())
    click.echo("stopped" if node.stop() else "no broker was running")


@broker.command()
@_FOLDER
def status(folder: Path | None) -> None:
    """Show whether a broker is running; exit code 1 if not.

    \b
    Example:
      streamforest broker status
    """
    status = Broker(folder or default_folder()).status()
    if not status.running:
        click.echo(
            f"no broker is running in {status.folder}; start one with streamforest broker start"
        )
        raise click.exceptions.Exit(1)
    click.echo(f"{status.servers} (process {status.pid}, {status.folder})")
