"""What a browser is given: three files, uPlot, an icon, and the numbers as JSON.

Everything is read-only and comes from here: the content-security policy lets the page load nothing from
elsewhere and run no code that is not in these files. The numbers are worked out at most once for each change,
however many browsers ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.resources import files
from threading import Lock
from typing import Any, Protocol

import msgspec

from streamforest._version import __version__
from streamforest.observe.history import History
from streamforest.observe.page.points import columns
from streamforest.observe.page.status import findings
from streamforest.observe.page.view import lately, run_view

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/page/uplot.js": ("uplot.js", "text/javascript; charset=utf-8"),
    "/page/uplot.css": ("uplot.css", "text/css; charset=utf-8"),
    "/page/uplot.LICENSE.txt": ("uplot.LICENSE.txt", "text/plain; charset=utf-8"),
    "/favicon.ico": ("icon.svg", "image/svg+xml"),
}
_JSON = "application/json"


class Health(Protocol):
    """What the page asks of the metrics of a run."""

    def why_not_ready(self) -> str | None:
        """None while it is at work."""

    def why_not_alive(self) -> str | None:
        """None unless only a new start helps."""


@dataclass(frozen=True)
class About:
    """What the page says of the pipeline itself."""

    pipeline: str
    file: str
    source: str
    on_kafka: bool
    total: int | None = None
    """Events that there are; None where nobody knows."""


class _Part:
    """One run, or one partition's, with the answers worked out last."""

    def __init__(self, history: History, health: Health) -> None:
        self.history, self.health = history, health
        self.points: dict[str, tuple[int, bytes]] = {}


class Site:
    """Answers for `/` and below `/page/`. One history, or one for each partition."""

    def __init__(self, about: About) -> None:
        self.about = about
        self._parts: dict[int | None, _Part] = {}
        self._lock = Lock()
        folder = files("streamforest.observe.page").joinpath("assets")
        self._files = {
            path: (folder.joinpath(name).read_bytes(), kind)
            for path, (name, kind) in _FILES.items()
        }

    def add(self, history: History, health: Health, partition: int | None = None) -> None:
        """Show a run."""
        with self._lock:
            self._parts[partition] = _Part(history, health)

    def remove(self, partition: int | None) -> None:
        """The partition is another process's now."""
        with self._lock:
            self._parts.pop(partition, None)

    def answer(self, path: str) -> tuple[bytes, str] | None:
        """Body and content type; None if there is no such page."""
        if path in self._files:
            return self._files[path]
        work = self._work(path)
        return None if work is None else (work(), _JSON)

    def _work(self, path: str) -> Callable[[], bytes] | None:
        """`/page/now.json`, `/page/minutes.json`, `/page/2/hours.json` …"""
        words = path.removeprefix("/page/").split("/")
        if not path.startswith("/page/") or len(words) > 2:
            return None
        with self._lock:
            parts = dict(self._parts)
        name = words[-1].removesuffix(".json")
        number: int | None = min(parts, key=lambda part: part or 0, default=None)
        if len(words) == 2:
            if not (words[0].isascii() and words[0].isdecimal() and len(words[0]) < 10):
                return None
            number = int(words[0])
        part = parts.get(number)
        if name == "now":
            numbers = sorted(part for part in parts if part is not None)
            return lambda: self._now(part, number, numbers)
        if name in ("minutes", "hours", "whole") and part is not None:
            chosen = part
            return lambda: _points(chosen, name)
        return None

    def _now(self, part: _Part | None, number: int | None, numbers: list[int]) -> bytes:
        told: dict[str, Any] = {
            "about": {**asdict(self.about), "version": __version__},
            "now": time.time(),
            "partition": number,
            "partitions": numbers,
        }
        if part is None:
            waits = "No partition is this process's; it waits for one to become free."
            told |= {"status": [{"level": "info", "what": waits, "remedy": ""}], "run": None}
        else:
            alive, ready = part.health.why_not_alive(), part.health.why_not_ready()
            history = part.history
            with history.lock:
                now = told["now"]
                recent = lately(history, now)
                rows = findings(history, self.about.file, alive, ready, now, recent)
                told["status"] = [asdict(row) for row in rows]
                told["run"] = run_view(history, recent)
        return msgspec.json.encode(told)


def _points(part: _Part, name: str) -> bytes:
    """A series as columns."""
    history = part.history
    with history.lock:
        revision, known = history.revision, part.points.get(name)
        if known is not None and known[0] == revision:
            return known[1]
        kept = history.kept
        points = getattr(kept, name).points
        step = {"minutes": kept.minutes.step, "hours": kept.hours.step}.get(name)
        if step is None:  # the width of a usual point of the whole run
            step = max((point.seconds for point in points), default=1.0)
        told = {"revision": revision, **columns(points, step)}
    body = msgspec.json.encode(told)
    part.points[name] = revision, body
    return body
