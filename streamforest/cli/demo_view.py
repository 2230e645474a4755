"""What the demo shows in the terminal: a small table that is drawn anew, or lines where there is none."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from streamforest.cli.report import duration, percent, sparkline
from streamforest.observe.history import History
from streamforest.observe.page.view import lately, run_view

_FRAME = 0.2  # seconds between two pictures
_LINE_EVERY = 2.0  # seconds between two lines where there is no terminal
_POINTS = 40  # of the curve


class DemoView:
    """The course of a run, on stderr."""

    def __init__(self, history: History, total: int, console: Console | None = None) -> None:
        self._history, self._total = history, total
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._drawn = 0.0
        self._born = 0

    def __enter__(self) -> DemoView:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self.update(at_once=True)
            self._live.stop()

    def update(self, at_once: bool = False) -> None:
        """Show where the run is, unless that was shown just now."""
        now = time.monotonic()
        wait = _LINE_EVERY if self._live is None else _FRAME
        if not at_once and now - self._drawn < wait:
            return
        self._drawn = now
        with self._history.lock:
            told = run_view(self._history, lately(self._history, time.time()))
            curve = [
                point.models[told["main"]][1] / point.models[told["main"]][0]
                for point in self._history.kept.whole.points
                if point.models.get(told["main"], (0, 0))[0]
            ]
        rows = self._rows(told, curve)
        if self._live is not None:
            self._live.update(_table(rows, told["events"] / self._total), refresh=True)
            return
        line = ", ".join(text for name, text in rows if name != "curve")
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _rows(self, told: dict[str, Any], curve: list[float]) -> list[tuple[str, str]]:
        window, latency, classes = told["window"], told["latency"], told["classes"]
        rate = "" if told["rate"] is None else f", {told['rate']:,.0f}/s"
        rows = [("events", f"{told['events']:,} of {self._total:,} events{rate}")]
        if window["accuracy"] is None:
            rows.append(("accuracy", "accuracy: not enough data yet"))
        else:
            no_change = f" (no-change {percent(window['no_change'])})"
            rows.append(("accuracy", f"accuracy {percent(window['accuracy'])}{no_change}"))
        step = max(1, len(curve) // _POINTS)
        rows.append(("curve", sparkline(curve[::step][-_POINTS:])))
        times = [
            f"{name} {duration(latency[key])}"
            for name, key in (
                ("predict", "predict"),
                ("learn", "learn"),
                ("record to commit", "wait_median"),
            )
            if latency[key] is not None
        ]
        rows.append(("latency", " · ".join(times) or "latency: not measured yet"))
        rows.append(("classes", f"{max(classes['known'], classes['born'])} classes known"))
        if classes["recent"]:
            last = classes["recent"][0]
            by_now = "" if last["now"] is None else f", {percent(last['now'])} recognised by now"
            rows.append(
                ("newest", f"last new class {last['name']}: {last['events']} events{by_now}")
            )
        return [(name, text) for name, text in rows if text]


def _table(rows: list[tuple[str, str]], done: float) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", justify="right")
    table.add_column()
    table.add_row("", ProgressBar(total=1.0, completed=done, width=_POINTS + 20))
    for name, text in rows:
        table.add_row("" if name == "curve" else name, Text(text))
    return table
