"""What the live page is made of, how it is served, and what its status row says."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import pytest
from observe.test_server import Metrics, asked, code

from streamforest.observe.history import History
from streamforest.observe.page.points import Point
from streamforest.observe.page.site import About, Site
from streamforest.observe.page.status import findings
from streamforest.observe.page.view import lately
from streamforest.observe.server import MetricsServer
from streamforest.observe.telemetry import (
    BatchAdvanced,
    EventRefused,
    LabelsRead,
    LabelStatus,
    RoleChanged,
    RowsRead,
    SnapshotFailed,
)


def read(records: int) -> RowsRead:
    """A poll with so many events."""
    return RowsRead(records, 0, records, records, 0, 0)


ASSETS = files("streamforest.observe.page").joinpath("assets")


@pytest.fixture
def history() -> History:
    history = History()
    history.on_event(RoleChanged("owner", 2))
    return history


@pytest.fixture
def serving(history: History) -> Iterator[MetricsServer]:
    metrics = Metrics()
    site = Site(About("orders", "orders.toml", "topic orders", True))
    site.add(history, metrics)
    with MetricsServer(metrics, "127.0.0.1", 0, site=site) as serving:
        yield serving


def ask(serving: MetricsServer, path: str, host: str = "localhost") -> bytes:
    return asked(serving, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


def test_it_is_small_and_names_nothing_elsewhere() -> None:
    found = {one.name: one.read_text(encoding="utf-8") for one in ASSETS.iterdir()}
    assert sum(len(text.encode()) for text in found.values()) < 200_000
    assert "MIT License" in found["uplot.LICENSE.txt"]
    for name in ("index.html", "page.css", "page.js", "charts.js"):
        assert not re.search(r"https?://|//[a-z]+\.", found[name]), name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", found[name]
        )
        assert "style=" not in found[name]


def test_it_runs_nothing_but_its_own_files(serving: MetricsServer) -> None:
    for path in ("/", "/page/page.js", "/page/uplot.css", "/page/now.json", "/favicon.ico"):
        told = ask(serving, path)
        assert code(told) == 200, path
        head = told.partition(b"\r\n\r\n")[0].decode()
        assert "Content-Security-Policy: default-src 'none'; script-src 'self'" in head
        assert "unsafe" not in head
        assert "X-Content-Type-Options: nosniff" in head
        assert "Cache-Control: no-store" in head


def test_it_is_refused_to_strangers_names_and_other_methods(serving: MetricsServer) -> None:
    assert code(ask(serving, "/", host="evil.example")) == 421
    assert code(ask(serving, "/page/now.json", host="evil.example")) == 421
    for method in ("POST", "PUT", "DELETE"):
        told = asked(serving, f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert code(told) == 405


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/../history.py",
        "/page/index.html",
        "/page/3/now/now.json",
        "/page/x/now.json",
        "/page/99999999999999999999/now.json",
        "/page/secret.json",
        "/other",
    ],
)
def test_there_is_nothing_else(serving: MetricsServer, path: str) -> None:
    told = ask(serving, path)
    assert code(told) == 404
    assert b"there are /, /metrics, /livez and /readyz" in told


def test_a_partition_that_is_not_ours_says_so(serving: MetricsServer) -> None:
    told = json.loads(ask(serving, "/page/7/now.json").partition(b"\r\n\r\n")[2])
    assert told["run"] is None
    assert "waits for one to become free" in told["status"][0]["what"]


def test_partitions_have_pages_of_their_own() -> None:
    site, first, second = Site(About("p", "p.toml", "topic", True)), History(), History()
    first.on_event(BatchAdvanced("main", ["a"], ["a"], 0.1, 0, 11))
    second.on_event(BatchAdvanced("main", ["a"], ["a"], 0.1, 0, 22))
    site.add(first, Metrics(), 0)
    site.add(second, Metrics(), 3)

    def told(path: str) -> Any:
        found = site.answer(path)
        assert found is not None
        return json.loads(found[0])

    assert told("/page/now.json")["partitions"] == [0, 3]
    assert told("/page/now.json")["run"]["models"][0]["learned"] == 11
    assert told("/page/3/now.json")["run"]["models"][0]["learned"] == 22
    site.remove(3)
    assert told("/page/3/now.json")["run"] is None


def test_a_series_is_worked_out_once_for_each_change(history: History) -> None:
    site = Site(About("p", "p.toml", "topic", True))
    site.add(history, Metrics())
    first = site.answer("/page/whole.json")
    again = site.answer("/page/whole.json")
    assert first is not None
    assert again is not None
    assert first[0] is again[0]
    history.on_event(read(1))
    history.close()
    changed = site.answer("/page/whole.json")
    assert changed is not None
    assert json.loads(changed[0])["learned"] == [0]


# ---- the status row


def learn(history: History, right: int, wrong: int, **others: int) -> None:
    """So many events, all of alternating classes; then a part ends."""
    truth = ["a", "b"] * ((right + wrong) // 2)
    for name, hits in {"main": right, **others}.items():
        guess = truth[:hits] + ["?"] * (len(truth) - hits)
        history.on_event(BatchAdvanced(name, truth, guess, 0.1, 0, len(truth)))
    history.on_event(read(len(truth)))
    history._end_part(time.monotonic())


def dead(history: History) -> None:
    learn(history, 400, 0)
    history.on_event(read(20))
    for i in range(20):
        history.on_event(EventRefused("invalid", f"t-0, offset {i}", "no x"))
    history._end_part(time.monotonic())


def unlabelled(history: History) -> None:
    history.started_at -= 300
    history.on_event(read(500))
    history._end_part(time.monotonic())


def behind(history: History) -> None:
    history.lags = {("t", 0): (1_234, 90.0)}


def without_commit(history: History) -> None:
    history.started_at = history.committed_at = time.time() - 200
    history.on_event(read(1))


def worse_than_no_change(history: History) -> None:
    truth = ["a"] * 400
    history.on_event(BatchAdvanced("main", truth, ["b"] * 400, 0.1, 0, 400))
    history._end_part(time.monotonic())


def dropped(history: History) -> None:
    learn(history, 4_000, 0)
    for _ in range(4):
        learn(history, 100, 100)


def expired(history: History) -> None:
    status = LabelStatus({"matched": 100, "expired": 300}, 0.25, 0, 0, 0)
    history.on_event(LabelsRead(status, 0, []))


FOUND: list[tuple[Callable[[History], Any], str, str, str]] = [
    (lambda h: None, "info", "Waiting for the first labelled events", ""),
    (lambda h: learn(h, 380, 20), "ok", "95.0\u00a0% of the last 400 labels", ""),
    (dead, "warning", "became dead letters, most often: invalid", "dlq list orders.toml"),
    (unlabelled, "warning", "nothing is learned", "field y"),
    (behind, "warning", "1,234 records wait", "fewer trees"),
    (without_commit, "error", "No commit for 3 min", "Check the broker"),
    (lambda h: h.on_event(SnapshotFailed("write")), "error", "could not be written", "run folder"),
    (lambda h: h.on_event(SnapshotFailed("check")), "error", "its own check", "run folder"),
    (worse_than_no_change, "warning", "Repeating the last label", "[[shadow]]"),
    (dropped, "warning", "Accuracy is 50.0", "new or confused classes"),
    (
        lambda h: learn(h, 200, 200, shade=390),
        "info",
        "The shadow shade",
        "promote orders.toml shade",
    ),
    (expired, "warning", "75\u00a0% of the events got no label", "expire_after_seconds"),
    (lambda h: h.on_event(RoleChanged("standby", 0, 9, 4)), "info", "4 events behind", ""),
    (lambda h: h.close(), "ok", "Finished", ""),
]


@pytest.mark.parametrize(("happen", "level", "what", "remedy"), FOUND)
def test_the_row_names_what_is_wrong_and_what_to_do(
    history: History, happen: Callable[[History], Any], level: str, what: str, remedy: str
) -> None:
    happen(history)
    now = time.time()
    rows = findings(history, "orders.toml", None, None, now, lately(history, now))
    found = [row for row in rows if what in row.what]
    assert found, rows
    assert found[0].level == level
    assert remedy in found[0].remedy


@pytest.mark.parametrize(
    ("alive", "ready", "level", "what"),
    [
        ("the main loop is stalled for 130 s", None, "error", "The main loop is stalled"),
        (None, "recovering", "info", "Recovering."),
        (None, "no broker answers", "error", "Not ready: no broker answers"),
    ],
)
def test_the_row_says_why_a_process_does_not_work(
    history: History, alive: str | None, ready: str | None, level: str, what: str
) -> None:
    rows = findings(history, "p.toml", alive, ready, time.time(), Point())
    assert rows[0].level == level
    assert what in rows[0].what
