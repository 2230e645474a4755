"""What the live page costs a run, with a browser that looks at it all the time."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from integration.waiting import until
from support.browser import Watched, chromium

from streamforest.observe.history import History
from streamforest.observe.page.site import About, Site
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.server import MetricsServer
from streamforest.observe.telemetry import Listeners, TelemetryEvent
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened

PIPELINE = """
[pipeline]
name = "cost"
[source]
dataset = "digits"
[source.schedule]
first = 2
every = 400
[model]
n_trees = 20
[[shadow]]
name = "small"
n_trees = 10
[run]
batch_size = 500  # as on Kafka
folder = "{folder}"
"""


class Timed(History):
    """A history that counts the CPU time it takes of the run's thread."""

    cost = 0.0

    def on_event(self, event: TelemetryEvent) -> None:
        begun = time.thread_time()
        super().on_event(event)
        self.cost += time.thread_time() - begun


def cpu(thread: threading.Thread) -> float:
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def test_history_and_page_take_less_than_a_hundredth_of_the_run(tmp_path: Path) -> None:
    """The least of three: other processes can only make it look dearer."""
    told = []
    for number in range(3):
        share, text = measured(tmp_path / str(number))
        print(text)
        if share < 0.01:
            return
        told.append(text)
    raise AssertionError("; ".join(told))


def measured(tmp_path: Path) -> tuple[float, str]:
    """The share of a run's CPU time that goes to its page, and how it comes about."""
    tmp_path.mkdir()
    path = tmp_path / "p.toml"
    path.write_text(PIPELINE.format(folder=tmp_path / "run"), encoding="utf-8")
    loaded = load_pipeline(path, {}, ())
    metrics, history = PipelineMetrics("cost"), Timed(tmp_path / "h.json")
    site = Site(About("cost", "p.toml", "digits", False, 5_391))
    site.add(history, metrics)
    took: dict[str, float] = {}

    def run() -> None:
        with opened(loaded, telemetry=Listeners(metrics, history)) as current:
            begun = time.process_time(), history.cost
            current.consume()
            took["run"], took["history"] = time.process_time() - begun[0], history.cost - begun[1]

    with chromium() as browser, MetricsServer(metrics, "127.0.0.1", 0, site=site) as serving:
        watched = Watched(browser)
        watched.open(f"http://127.0.0.1:{serving.port}/")
        threads: list[Any] = [serving._thread, *serving._workers._threads]
        before = sum(map(cpu, threads))
        begun = time.monotonic()
        working = threading.Thread(target=run)
        working.start()
        until(lambda: watched.page.wait_for_timeout(50) or not working.is_alive())
        seconds = time.monotonic() - begun
        page = sum(map(cpu, threads)) - before
        polls = sum("now.json" in url for url in watched.asked)
        watched.close()
    assert polls > seconds / 3, "the browser has looked at it"
    # the history costs by the event, the page by the second: of a consumer that has a core to itself
    share = took["history"] / took["run"] + page / polls
    told = (
        f"history {took['history']:.4f} s, page {page:.4f} s in {seconds:.1f} s with {polls} polls, "
        f"run {took['run']:.2f} s: {share:.2%}"
    )
    return share, told
