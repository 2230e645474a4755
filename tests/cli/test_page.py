"""The live page of a run from the command line: a page for each partition, and the demo's terminal view."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from streamforest.cli.demo_view import DemoView
from streamforest.cli.page import PartitionPages
from streamforest.observe.history import History
from streamforest.observe.page.site import About, Site
from streamforest.observe.partitions import WorkerMetrics
from streamforest.observe.telemetry import (
    BatchAdvanced,
    ClassesBorn,
    CommitMade,
    IterationDone,
    Listener,
    RoleChanged,
    RowsRead,
)
from streamforest.runtime.config.load import load_pipeline


def learn(listener: Listener, label: str, learned: int) -> None:
    listener.on_event(ClassesBorn([label], learned - 200))
    listener.on_event(BatchAdvanced("main", [label] * 200, [label] * 200, 0.1, 0, learned))
    listener.on_event(RowsRead(200, 0, 200, 200, 0, 0))
    listener.on_event(IterationDone())


def test_each_partition_has_its_page_and_its_history(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        f'[pipeline]\nname = "p"\n[source]\ndataset = "digits"\n[model]\n[run]\nfolder = "{tmp_path}/run"\n',
        encoding="utf-8",
    )
    site = Site(About("p", "p.toml", "topic", True))
    pages = PartitionPages(WorkerMetrics("p"), site, load_pipeline(path, {}).config.run)

    def told(url: str) -> Any:
        found = site.answer(url)
        assert found is not None
        return json.loads(found[0])

    for number, label in ((0, "zero"), (2, "two")):
        listener = pages.worker(number)
        listener.on_event(RoleChanged("owner", 1))
        learn(listener, label, 200)
    assert told("/page/now.json")["partitions"] == [0, 2]
    assert told("/page/2/now.json")["run"]["classes"]["births"][0]["name"] == "two"
    pages.forget(2)
    assert told("/page/now.json")["partitions"] == [0]
    assert (tmp_path / "run" / "partition-2" / "page-history.json").is_file()
    again = pages.worker(2)
    again.on_event(RoleChanged("owner", 1))
    assert told("/page/2/now.json")["run"]["classes"]["births"][0]["name"] == "two"


def shown(console: Console, stream: io.StringIO) -> str:
    history = History()
    with DemoView(history, 1_000, console) as view:
        view.update(at_once=True)
        learn(history, "a\x1b[31m", 200)
        history.on_event(CommitMade(0.1, [], 0.0, {"main": ["a"]}, 200, "main"))
        view.update(at_once=True)
    return stream.getvalue()


def test_the_terminal_view_on_a_terminal_and_in_a_pipe() -> None:
    for terminal in (True, False):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=terminal, width=120, color_system=None)
        told = shown(console, stream)
        assert "accuracy: not enough data yet" in told
        assert "200 of 1,000 events" in told
        assert "accuracy 100.0 %" in told
        assert "last new class a\\x1b[31m: 200 events, 100.0 % recognised by now" in told
        assert ("\x1b" in told) == terminal, "only a terminal is drawn on"
