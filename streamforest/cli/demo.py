"""`streamforest demo`: a stream with new classes, its forest and its live page, with one command."""

from __future__ import annotations

import logging
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import click

from streamforest.cli.demo_view import DemoView
from streamforest.cli.page import LivePage, page_port
from streamforest.cli.report import report
from streamforest.errors import BrokerError, ConfigError
from streamforest.io.codec.dead_letters import REASONS
from streamforest.io.log import Stopped
from streamforest.io.tools.replay import ReplayOptions, replay
from streamforest.observe import logs
from streamforest.observe.history import History
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.private_files import replace
from streamforest.runtime.config.load import Pipeline, load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.operate.stopping import StopSignals
from streamforest.runtime.processing.loop import Run
from streamforest.testing.broker import download
from streamforest.testing.broker.server import Broker

log = logging.getLogger(__name__)

SourceKind = Literal["auto", "broker", "file"]
_BATCH = 20
_PIPELINE = """\
# Written by `streamforest demo`: handwritten digits, 8×8 pixels, three passes. Two digits at first, a new
# one every 400 events. Any key can be changed, here or with --set model.n_trees=50.

[pipeline]
name = "demo"

[source]
dataset = "digits"

[source.schedule]
order = "random"
first = 2
every = 400
seed = 7

[model]
kind = "auto"
seed = 1

[run]
folder = "{folder}"
batch_size = {batch}
snapshot_interval_events = 1000
"""


@click.command()
@click.option(
    "--source",
    type=click.Choice(["auto", "broker", "file"]),
    default="auto",
    show_default=True,
    help="Through a local Kafka broker, or from the file; auto: a broker where there is Java and Kafka.",
)
@click.option(
    "--rate",
    type=click.IntRange(1, 100_000),
    default=200,
    show_default=True,
    help="Events per second.",
)
@click.option("--keep", is_flag=True, help="Go on serving the live page after the end.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("streamforest-demo"),
    show_default=True,
    help="Where the pipeline file and the run are put.",
)
def demo(source: SourceKind, rate: int, keep: bool, folder: Path) -> None:
    """Watch a forest learn handwritten digits that appear one after the other.

    Takes about half a minute. The first start on a machine compiles before that, and counts what it compiles.

    \b
    Example:
      streamforest demo --keep
    """
    logs.set_up("error", "text")
    file = _write(folder)
    with StopSignals() as signals, ExitStack() as stack:

        def stopping() -> bool:
            return signals.requested is not None

        loaded = load_pipeline(file)
        with ThreadPoolExecutor(1) as pool:  # the broker starts while the kernels are compiled
            starting = _starting(pool, source)
            for model in loaded.models.values():
                model.forest.warm_up(
                    first_events=True
                )  # the rest is compiled beside the first events
            servers = _settled(stack, starting, source)
        settings = [f"metrics.port={page_port()}"]  # now: starting the broker takes long
        if servers is not None:
            # one partition: the order is that of the file, and so is the result
            settings.append("kafka.partitions=1")
        loaded = load_pipeline(file, {}, settings, servers)
        metrics = PipelineMetrics(loaded.config.name, REASONS)
        live = stack.enter_context(LivePage(loaded, file, metrics, asked=True))
        telemetry = live.watch(metrics, fresh=True)
        assert live.history is not None
        try:
            with opened(
                loaded,
                fresh=True,
                create_topics=True,
                stopping=stopping,
                telemetry=telemetry,
                early=True,
            ) as run:
                _stream(run, loaded, live.history, rate, stopping)
        except Stopped:
            click.echo(f"Stopped by {signals.requested} before the first event.", err=True)
            return
        live.finish()
        _close(run, loaded, live.history, file)
        if keep:
            live.keep(stopping)


def _write(folder: Path) -> Path:
    """The pipeline file; one that somebody has changed stays, and is an error."""
    file = folder / "demo.toml"
    text = _PIPELINE.format(folder=(folder / "run").as_posix(), batch=_BATCH)
    folder.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.read_text(encoding="utf-8") != text:
        raise ConfigError(
            f"{file}: was changed since the demo wrote it; run it with `streamforest run {file}`, or "
            "give the demo another --folder"
        )
    if not file.exists():
        replace(file, text.encode(), 0o644)
    return file


# ---- broker or file


def _starting(pool: ThreadPoolExecutor, source: SourceKind) -> Future[Broker] | None:
    """A broker that is being started; None where it is not wanted, or cannot be had."""
    if source == "file":
        return None
    missing = download.missing()
    if missing is None:
        return pool.submit(_start)
    if source == "broker":
        raise BrokerError(f"--source broker: {missing}")
    click.echo(f"Without a broker, straight from the file: {missing}.", err=True)
    return None


def _start() -> Broker:
    broker = Broker()
    broker.start()
    return broker


def _settled(stack: ExitStack, starting: Future[Broker] | None, source: SourceKind) -> str | None:
    """The address of the broker that was started; None: from the file."""
    if starting is None:
        return None
    try:
        broker = starting.result()
    except BrokerError as error:
        if source == "broker":
            raise
        click.echo(f"Without a broker, straight from the file: {error}.", err=True)
        return None
    stack.callback(broker.stop)
    click.echo(
        f"Through a Kafka broker of its own, {broker.servers}; --source file does without.",
        err=True,
    )
    return broker.servers


# ---- the stream


def _stream(
    run: Run, loaded: Pipeline, history: History, rate: int, stopping: Callable[[], bool]
) -> None:
    """All events at the given rate, with the terminal view beside them."""
    source = loaded.source
    assert source is not None
    view = DemoView(history, source.total)
    with view, _fed(loaded, rate, stopping) as failed:
        begun = time.monotonic()

        def watch(run: Run) -> None:
            view.update()
            if loaded.config.kafka is None:  # a file is read as fast as it can be
                _sleep_until(begun + run.events / rate, stopping)

        run.consume(
            max_events=source.total - run.events,
            stop=lambda: stopping() or bool(failed),
            watch=watch,
        )
    if failed:
        raise failed[0]


@contextmanager
def _fed(
    loaded: Pipeline, rate: int, stopping: Callable[[], bool]
) -> Iterator[list[BaseException]]:
    """Replay the source to the broker meanwhile; what goes wrong is in the list."""
    failed: list[BaseException] = []
    config, source = loaded.config, loaded.source
    if config.kafka is None or source is None:
        yield failed
        return
    connection, ended = config.kafka.connection, threading.Event()
    options = ReplayOptions(config.topics.events, partitions=1, rate=rate)

    def feed() -> None:
        try:
            replay(connection, source, options, stop=lambda: ended.is_set() or stopping())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=feed, name="demo-replay", daemon=True)
    thread.start()
    try:
        yield failed
    finally:
        ended.set()
        thread.join(10)


def _sleep_until(at: float, stopping: Callable[[], bool]) -> None:
    while (left := at - time.monotonic()) > 0 and not stopping():
        time.sleep(min(left, 0.1))


# ---- the end


def _close(run: Run, loaded: Pipeline, history: History, file: Path) -> None:
    """The report, and what to do next."""
    source = loaded.source
    assert source is not None
    click.echo(report(run, "demo", source.total))
    click.echo(f"  {'new classes':<13} {_learned(history)}")
    newest = f"{run.snapshots.path}/s-{run.events:012d}.safetensors"
    click.echo(
        "\nGo on with:\n"
        f"  streamforest run {file} --fresh --keep\n"
        "      the same stream at full speed, with a page that stays\n"
        f"  streamforest run {file} --fresh --set model.n_trees=50\n"
        "      another forest; its report can be held against this one\n"
        f"  python -c \"import streamforest; print(streamforest.load('{newest}').summary())\"\n"
        "      the forest in Python"
    )


def _learned(history: History) -> str:
    """How many events it took until new classes were recognised."""
    classes = history.kept.classes.followed
    reached = [one.reached for one in classes if one.reached is not None]
    if not reached:
        return "none was recognised in 80 % of its last 20 events"
    text = (
        f"{len(reached)} of {len(classes)} reached 80 % recall, after {min(reached)} to "
        f"{max(reached)} events of the class (median {statistics.median(reached):.0f})"
    )
    return text
