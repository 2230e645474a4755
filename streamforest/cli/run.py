"""`streamforest run`: run a pipeline file from the start, or from where it stopped."""

from __future__ import annotations

import functools
import gc
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import click

from streamforest.cli import Failure
from streamforest.cli.arguments import ACCEPT_VERSION_CHANGE, PIPELINE, SET, check_servers
from streamforest.cli.display import progress
from streamforest.cli.page import LivePage, PartitionPages
from streamforest.cli.report import became, report, shortfall
from streamforest.errors import ConfigError
from streamforest.io.codec.dead_letters import REASONS
from streamforest.io.codec.events import Format
from streamforest.io.codec.remedies import REMEDIES
from streamforest.io.kafka.topics import end_offset_sum
from streamforest.io.log import Stopped
from streamforest.io.tools.keep import keep
from streamforest.io.tools.replay import ReplayOptions, replay
from streamforest.observe import logs
from streamforest.observe.accounting import Summary
from streamforest.observe.log_listeners import RowLog, TroubleLog
from streamforest.observe.partitions import WorkerMetrics
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.telemetry import Listeners
from streamforest.runtime.config.load import Pipeline, load_pipeline
from streamforest.runtime.config.schema import Config
from streamforest.runtime.factory import opened
from streamforest.runtime.operate.stopping import StopSignals
from streamforest.runtime.partition_workers import opened_workers
from streamforest.runtime.processing.loop import Ending, Run
from streamforest.testing.broker.server import Broker, default_folder
from streamforest.text import printable

log = logging.getLogger(__name__)

QUIET_VARIABLE = "STREAMFOREST_QUIET"


@click.command()
@PIPELINE
@click.option("--fresh", is_flag=True, help="Start over: delete the run in the folder.")
@click.option(
    "--max-events",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N more events; the next run continues from there.",
)
@SET
@click.option(
    "--broker",
    is_flag=False,
    flag_value="local",
    callback=check_servers,
    metavar="[HOST:PORT]",
    help="Send the recorded source through a Kafka broker: this one, else the running one, else a new one.",
)
@click.option("--drain", is_flag=True, help="On Kafka: stop at the current end of the topics.")
@click.option("--create-topics", is_flag=True, help="On Kafka: create missing topics.")
@ACCEPT_VERSION_CHANGE
@click.option("--page", is_flag=True, help="Serve the live page; on Kafka it always is.")
@click.option("--keep", is_flag=True, help="Serve the live page, and go on after the end.")
@click.option(
    "--allow-unlearned",
    is_flag=True,
    help="Exit with 0 even if more than half of the events are dead letters, or if nothing was learned "
    "(also run.allow_unlearned).",
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
    default=None,
    help="Least important records that are logged (default: info; warning with --quiet).",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress, and only warnings in the log.")
def run(
    pipeline: Path,
    fresh: bool,
    max_events: int | None,
    settings: tuple[str, ...],
    broker: str | None,
    drain: bool,
    create_topics: bool,
    accept_version_change: bool,
    page: bool,
    keep: bool,
    allow_unlearned: bool,
    log_format: logs.Format | None,
    log_level: str | None,
    quiet: bool,
) -> None:
    """Stream the events of PIPELINE, a TOML file, through its forest.

    Each event is predicted, then learned. The run folder (runs/NAME by default) holds the snapshots and,
    for a recorded source, the predictions. With --broker, folder and topics are those of NAME-broker.
    Running the same file again continues where the last run stopped, however it stopped; the result is
    identical to an uninterrupted run.

    \b
    Examples:
      streamforest run pipelines/digits.toml
      streamforest run pipelines/digits.toml --fresh --set model.n_trees=50
      streamforest run pipelines/kafka.toml --create-topics
    """
    logs.set_up(log_level or ("warning" if quiet else "info"), log_format)
    with StopSignals() as signals, ExitStack() as stack:
        stack.enter_context(_quiet_kernels())
        servers, own = None, False
        if broker is not None:
            servers, own = stack.enter_context(_broker(broker))
        loaded = load_pipeline(pipeline, os.environ, settings, servers)
        config = loaded.config
        if fresh and config.kafka is not None and not own:
            raise ConfigError(
                "--fresh: published predictions cannot be taken back from the broker; "
                "give the pipeline another name to start over"
            )
        if servers is not None:
            drain = create_topics = True
            _feed(loaded)
        if config.kafka is not None and config.kafka.model_scope == "partition":
            if keep:
                raise ConfigError(
                    "--keep: has no effect with kafka.model_scope = 'partition', whose pages end with "
                    "their partitions"
                )
            accept = accept_version_change
            try:
                runs = _consume_each(
                    stack, loaded, drain, create_topics, accept, max_events, signals, pipeline
                )
            except Stopped as error:
                log.warning("Stopped by %s: %s", signals.requested, error)
                return
            if servers is not None:
                _keep_predictions(config)
            _judge(runs, config, pipeline, allow_unlearned)
            return
        metrics = PipelineMetrics(config.name, REASONS)
        live = stack.enter_context(LivePage(loaded, pipeline, metrics, page or keep))
        try:
            with opened(
                loaded,
                fresh=fresh or own,  # a broker started for this run holds no earlier run
                drain=drain,
                create_topics=create_topics,
                accept_version_change=accept_version_change,
                stopping=lambda: signals.requested is not None,
                waiting=signals.at_once,
                telemetry=Listeners(
                    live.watch(metrics, fresh or own), RowLog(REMEDIES), TroubleLog()
                ),
            ) as current:
                gc.freeze()  # what is loaded by now is never garbage: keep it out of every collection
                ending = _consume(current, config.name, _total(loaded), max_events, signals, quiet)
            if keep:
                live.keep(lambda: signals.requested is not None)
        except Stopped as error:
            log.warning("Stopped by %s: %s", signals.requested, error)
            return
        if servers is not None:
            _keep_predictions(config)
        if ending != "stopped":
            _judge([current], config, pipeline, allow_unlearned, ending == "finished")


@contextmanager
def _quiet_kernels() -> Iterator[None]:
    """The run logs that kernels are compiled; as a notice of their own it would be no record."""
    before = os.environ.get(QUIET_VARIABLE)
    os.environ[QUIET_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[QUIET_VARIABLE]
        else:
            os.environ[QUIET_VARIABLE] = before


def _judge(
    runs: list[Run], config: Config, pipeline: Path, allowed: bool, finished: bool = True
) -> None:
    """Warn of dead letters in runs that have ended; Failure if they are most of the events, or if nothing
    was learned, unless that is allowed.
    """
    summaries = [run.state.rows.summary() for run in runs]
    if not summaries:
        return
    whole = functools.reduce(Summary.__add__, summaries)
    letters_in = f"`streamforest dlq list {printable(str(pipeline), 200)}` shows them"
    problem, failed = shortfall(whole, config.labels is not None, letters_in, finished)
    if problem is None:
        return
    if failed and not (allowed or config.run.allow_unlearned):
        raise Failure(f"{problem}. --allow-unlearned (run.allow_unlearned) accepts that")
    log.warning("%s", problem)


def _consume_each(
    stack: ExitStack,
    loaded: Pipeline,
    drain: bool,
    create_topics: bool,
    accept: bool,
    max_events: int | None,
    signals: StopSignals,
    file: Path,
) -> list[Run]:
    """A forest for each partition that this process is given; those that were read to their end."""
    if max_events is not None:
        raise ConfigError(
            "--max-events: counts the events of one forest; use it with kafka.model_scope = 'topic'"
        )
    config = loaded.config
    metrics = WorkerMetrics(config.name, REASONS, REMEDIES)
    live = stack.enter_context(LivePage(loaded, file, metrics, asked=False))
    with opened_workers(
        loaded,
        drain=drain,
        create_topics=create_topics,
        accept_version_change=accept,
        waiting=signals.at_once,
        telemetry=PartitionPages(metrics, live.site, config.run) if live.site else metrics,
    ) as workers:
        gc.freeze()
        ending = workers.consume(stop=lambda: signals.requested is not None)
    runs = []
    for number, worker in sorted(workers.finished.items()):
        if worker.run_ is not None:
            runs.append(worker.run_)
            click.echo(report(worker.run_, f"{config.name}, partition {number}"))
    if ending != "finished":
        log.info("Stopped by %s; the same command continues from there", signals.requested)
        return []
    return runs


@contextmanager
def _broker(where: str) -> Iterator[tuple[str, bool]]:
    """The address of a broker: as given, the one that runs already, or one for this run only; and
    whether it is the latter, which is gone with all its topics when the run ends.
    """
    if where != "local":
        yield where, False
        return
    running = Broker(default_folder())
    if running.status().running:
        yield running.servers, False
        return
    log.info("starting a broker for this run")
    with Broker() as own:
        yield own.servers, True


def _feed(loaded: Pipeline) -> None:
    """Replay the source to the pipeline's topic, as far as it is not there already."""
    config = loaded.config
    assert config.kafka is not None
    if loaded.source is None:
        raise ConfigError("--broker: sends [source] to the broker, and this pipeline has none")
    there = end_offset_sum(config.kafka.connection, config.topics.events)
    if there < loaded.source.total:
        form = cast(Format, config.events_format)
        options = ReplayOptions(
            config.topics.events,
            partitions=1,
            start=there,
            format=form,
            label=config.features.label,
            id=config.features.id,
        )
        replay(config.kafka.connection, loaded.source, options)


def _keep_predictions(config: Config) -> None:
    """The predictions as a file of the run folder: a broker of this run is gone when it ends."""
    assert config.kafka is not None
    path = config.run.folder / "predictions.jsonl"
    count = keep(config.kafka.connection, config.topics.predictions, path, config.run.file_mode)
    log.info("%s predictions of %s are in %s", f"{count:,}", config.topics.predictions, path)


def _consume(
    current: Run,
    name: str,
    total: int | None,
    max_events: int | None,
    signals: StopSignals,
    quiet: bool,
) -> Ending:
    """Go on with a run and report on it; how it ended."""
    if total is not None and current.events >= total:
        current.consume()  # a kill may have come between the last commit and its snapshot
        click.echo(report(current, name, total))
        log.info("already finished: nothing left to do; --fresh starts %s over", name)
        return "finished"
    if current.events:
        log.info("%s: continuing at event %s", name, f"{current.events:,}")
    with progress(current, name, total, quiet) as watch:
        ending = current.consume(
            max_events=max_events, stop=lambda: signals.requested is not None, watch=watch
        )
    click.echo(report(current, name, total))
    if ending != "finished":
        why = signals.requested if ending == "stopped" else f"--max-events {max_events}"
        of = "" if total is None else f" of {total:,}"
        log.info(
            "Stopped by %s after event %s%s; the same command continues from there",
            why,
            f"{current.events:,}",
            of,
        )
    else:
        log.info("finished: %s", became(current.state.rows.summary()))
    return ending


def _total(loaded: Pipeline) -> int | None:
    """The total number of events; None for a topic, which has no end."""
    if loaded.config.kafka is not None or loaded.source is None:
        return None
    return loaded.source.total
