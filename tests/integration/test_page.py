"""The live page of a real consumer, in a real browser."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.feed import events, send
from integration.waiting import get, until
from support.browser import Watched, chromium

from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing.broker.server import Broker, free_port
from streamforest.testing.forked import ForkedConsumer

PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
session_timeout_ms = 2000
[model]
n_trees = 5
[[shadow]]
name = "shade"
n_trees = 3
[run]
commit_interval_ms = 100
snapshot_interval_seconds = 1
folder = "run"
[metrics]
port = {port}
"""
HOSTILE = "<img src=x onerror=alert(1)>"


class Case:
    """A pipeline with its topics of two partitions, and its page."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.servers, self.folder, self.port = broker.servers, folder, free_port()
        self.name = f"page-{uuid.uuid4().hex[:8]}"
        self.url = f"http://127.0.0.1:{self.port}/"
        ensure_topics(broker.servers, Topics.of(self.name), create=True, partitions=2)
        self.path = folder / "p.toml"
        text = PIPELINE.format(name=self.name, servers=self.servers, port=self.port)
        self.path.write_text(text, encoding="utf-8")

    def consumer(self) -> ForkedConsumer:
        return ForkedConsumer(self.path, folder=self.folder)

    def feed(self, n: int, bad: float = 0.02, seed: int = 0) -> None:
        send(self.servers, f"{self.name}.events", events(n, bad, seed), 2)

    def send_class(self, label: str, n: int) -> None:
        x = {f"f{j}": 30.0 + j for j in range(10)}
        messages = [json.dumps({"x": x, "y": label}).encode() for _ in range(n)]
        send(self.servers, f"{self.name}.events", messages, 2)

    def now(self) -> Any:
        code, text = get(f"{self.url}page/now.json")
        return json.loads(text)["run"] if code == 200 else None

    def has_read(self, n: int) -> bool:
        run = self.now()
        return run is not None and run["events"] >= n


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


def test_it_fills_while_a_stream_runs_and_survives_a_restart(
    browser: Any, kafka_broker: Broker, tmp_path: Path
) -> None:
    case = Case(kafka_broker, tmp_path)
    watched = Watched(browser)
    with case.consumer() as consumer:
        consumer.until_ready()
        watched.open(case.url)
        assert watched.text("#t-accuracy-note") == "not enough data yet"
        assert watched.page.locator("#c-accuracy .nodata").is_visible()
        assert watched.text("#letters-empty") == "None. Every event could be read."
        case.feed(3_000, bad=0.05)
        watched.wait_for("#t-accuracy-note", "of the last")
        watched.page.locator("#c-accuracy .nodata").wait_for(state="hidden")
        watched.wait_for("#models tr", "shade")
        watched.wait_for("#classes th", "class 11")
        watched.wait_for("#letters td", f"{case.name}.events-")
        assert watched.text("#t-classes") == "12"
        assert "owner of 2 partitions" in watched.text("#delivery")

        case.feed(1, bad=0)  # the producer is warm: what follows is the page's own time
        begun = time.monotonic()
        case.send_class(HOSTILE, 3)
        sent = time.monotonic()
        watched.wait_for("#classes th", HOSTILE, seconds=10)
        assert time.monotonic() - sent < 2, f"sent within {sent - begun:.1f} s"
        assert watched.page.locator("main img").count() == 0
        assert f"newest: {HOSTILE[:17]}" in watched.text("#t-classes-note")

        until(lambda: case.has_read(3_004))
        assert watched.logged == []
        assert {url.split("/")[2] for url in watched.asked} == {f"127.0.0.1:{case.port}"}
        before = case.now()
        assert consumer.stop() == 0
    watched.wait_for("#live", "no answer")
    with case.consumer() as consumer:
        consumer.until_ready()
        watched.wait_for("#live", "live")
        after = case.now()
        for kept in ("births", "recent"):
            names = [one["name"] for one in before["classes"][kept]]
            assert [one["name"] for one in after["classes"][kept]] == names
        assert after["dead"]["reasons"] == before["dead"]["reasons"]
        assert after["delivery"]["commits"] >= before["delivery"]["commits"]
        watched.wait_for("#classes th", HOSTILE)
        points = json.loads(get(f"{case.url}page/whole.json")[1])
        assert sum(points["labelled"]) > 2_500
        case.feed(300, seed=5)
        until(lambda: case.has_read(3_304))
        later = json.loads(get(f"{case.url}page/whole.json")[1])
        assert later["learned"] == sorted(later["learned"])
        assert consumer.stop() == 0
    watched.close()


@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (1_100, "light")])
def test_it_fits_is_accessible_and_can_be_used_by_keyboard(
    browser: Any, kafka_broker: Broker, tmp_path: Path, width: int, scheme: str
) -> None:
    case = Case(kafka_broker, tmp_path)
    case.feed(2_000, bad=0.05)
    watched = Watched(browser, width, scheme)
    with case.consumer() as consumer:
        consumer.until_ready()
        until(lambda: case.has_read(2_000))
        watched.open(case.url)
        watched.page.locator("#c-accuracy .nodata").wait_for(state="hidden")
        assert watched.serious() == []
        page = watched.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("input[name=axis][value=events]").focus()
        page.keyboard.press("ArrowLeft")
        assert page.locator("input[name=axis][value=time]").is_checked()
        page.locator("#c-accuracy .plot").focus()
        page.keyboard.press("Home")
        assert "no-change" in watched.text("#spoken")
        assert watched.logged == []
        loaded = {url for url in watched.asked if "json" not in url}
        assert len(loaded) >= 6, loaded
        size = sum(len(get(url)[1].encode()) for url in loaded)
        assert size < 200_000, f"{size:,} bytes"
        assert consumer.stop() == 0
    watched.close()
