"""The live page of a run, for `run` and `demo`: what is served, and at which address."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click

from streamforest.observe.history import History
from streamforest.observe.page.history_file import FILE
from streamforest.observe.page.site import About, Site
from streamforest.observe.partitions import WorkerMetrics
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.server import MetricsServer, Observed
from streamforest.observe.telemetry import Listener, Listeners
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.config.schema import RunTable
from streamforest.testing.broker.server import can_listen, free_port

log = logging.getLogger(__name__)

DEFAULT_PORT = 9108


class LivePage:
    """Page, metrics and probes of one process over HTTP, until `close`; nothing without a port."""

    def __init__(self, loaded: Pipeline, file: Path, metrics: Observed, asked: bool) -> None:
        """`asked` serves the page also where the pipeline sets no port, and says where it is."""
        config = loaded.config
        self._run = config.run
        self.history: History | None = None
        self._finished = False
        self.site: Site | None = None
        self.address = ""
        self._server = ExitStack()
        port = config.metrics_port or (page_port() if asked else 0)
        if not port:
            return
        self.site = Site(_about(loaded, file))
        host, allowed = config.metrics_host, config.metrics_allowed
        serving = self._server.enter_context(MetricsServer(metrics, host, port, allowed, self.site))
        host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{serving.port}/"
        if asked:
            click.echo(f"live page: {self.address}", err=True)
        else:  # a consumer, all of whose lines are log records
            log.info("live page: %s", self.address)

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, *error: object) -> None:
        self.finish()
        self._server.close()

    def watch(self, metrics: PipelineMetrics, fresh: bool) -> Listener:
        """Who listens to the run: its metrics and, where a page is served, the page's history."""
        if self.site is None:
            return metrics
        self.history = history = History(self._run.folder / FILE, self._run.file_mode)
        if fresh:
            history.forget()
        self.site.add(history, metrics)
        return Listeners(metrics, history)

    def finish(self) -> None:
        """The run has ended: keep its history."""
        if self.history is not None and not self._finished:
            self._finished = True
            self.history.close()

    def keep(self, stop: Callable[[], bool]) -> None:
        """Go on serving the page of a run that has ended, until a signal."""
        if self.site is None or stop():
            return
        self.finish()
        click.echo(f"The page stays at {self.address} until Ctrl-C.", err=True)
        while not stop():
            time.sleep(0.1)


def page_port() -> int:
    """A port for a page whose port nobody has chosen: the usual one, or any that is free."""
    return DEFAULT_PORT if can_listen(DEFAULT_PORT) else free_port()


class PartitionPages:
    """What partition workers report, with a page for each partition."""

    def __init__(self, metrics: WorkerMetrics, site: Site, run: RunTable) -> None:
        self._metrics, self._site, self._run = metrics, site, run
        self._open: dict[int, History] = {}

    def worker(self, number: int) -> Listener:
        """The listener of a partition's run."""
        listener = self._metrics.worker(number)
        path = self._run.folder / f"partition-{number}" / FILE
        self._open[number] = history = History(path, self._run.file_mode)
        self._site.add(history, self._metrics.metrics_of(number), number)
        return Listeners(listener, history)

    def forget(self, number: int) -> None:
        """The partition is another process's now."""
        self._metrics.forget(number)
        self._site.remove(number)
        history = self._open.pop(number, None)
        if history is not None:
            history.close()

    def report(self, partitions: int, trouble: str | None) -> None:
        """So many partitions are ours."""
        self._metrics.report(partitions, trouble)


def _about(loaded: Pipeline, file: Path) -> About:
    config, source = loaded.config, loaded.source
    if config.kafka is not None:
        where = f"topic {config.topics.events} at {config.kafka.bootstrap_servers}"
        return About(config.name, str(file), where, True)
    assert source is not None
    return About(config.name, str(file), source.topic, False, source.total)
