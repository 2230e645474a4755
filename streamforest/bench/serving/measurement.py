"""Two servers in one run: saturated rate, latency at half of it, and the time of the model alone.

What is compared is the price of serving: the p99 of a single prediction over HTTP beyond the p99 of the same
model asked in memory. Both servers are processes of their own on this machine, one after the other.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from streamforest import StreamForestClassifier, save
from streamforest.bench.serving.clients import at_rate, requests_of, saturated
from streamforest.bench.serving.events import training_events
from streamforest.bench.serving.plain import trained
from streamforest.errors import StreamForestError
from streamforest.testing.broker.server import free_port

_START = "import sys; sys.argv[0] = 'streamforest'; from streamforest.__main__ import main; main()"
_ASKED = 500  # different events
_WAIT_SECONDS = 120.0
CONNECTIONS = 16


@dataclass(frozen=True)
class Served:
    """What was measured of one server; times in seconds."""

    server: str
    rate: float
    """Answers a second, saturated."""
    p50: float
    p99: float
    """Of a request, at half that rate."""
    model_p50: float
    model_p99: float
    """Of the model alone, in memory."""

    @property
    def beyond(self) -> float:
        """The p99 of a request over that of the model."""
        return self.p99 - self.model_p99


def measure(
    events: int, seconds: float, progress: Callable[[str], None] = lambda text: None
) -> list[Served]:
    """Both servers, each with a model that has learned so many events."""
    asked = [x for x, _ in training_events(_ASKED, seed=1)]
    found = []
    with TemporaryDirectory() as work:
        path = Path(work) / "model.safetensors"
        ours = StreamForestClassifier(n_trees=20, seed=1)
        for x, y in training_events(events):
            ours.learn_one(x, y)
        save(ours, path)
        servers: list[tuple[str, Any, list[str]]] = [
            ("streamforest serve", ours, ["-c", _START, "serve", str(path), "--port"]),
            ("FastAPI + River", None, ["-m", "streamforest.bench.serving.plain"]),
        ]
        for name, model, arguments in servers:
            progress(f"{name}: learning {events:,} events, starting the server")
            port = free_port()
            plain = model is None
            command = [sys.executable, *arguments, str(port), *([str(events)] if plain else [])]
            own = _own_times(trained(events) if plain else model, asked)
            with _running(command, port):
                requests = requests_of(asked, port)
                progress(f"{name}: saturating")
                asyncio.run(saturated(port, requests, seconds / 4, CONNECTIONS))  # warm
                rate = asyncio.run(saturated(port, requests, seconds, CONNECTIONS))
                progress(f"{name}: {rate:,.0f} requests/s; latency at half of it")
                took = asyncio.run(at_rate(port, requests, rate / 2, seconds, CONNECTIONS))
            p50, p99 = np.percentile(took, [50, 99]).tolist()
            found.append(Served(name, rate, p50, p99, *own))
    return found


def _own_times(model: Any, asked: list[dict[str, float]]) -> tuple[float, float]:
    """p50 and p99 of the model alone."""
    took = []
    for x in (*asked, *asked):
        begun = time.perf_counter()
        model.predict_proba_one(x)
        took.append(time.perf_counter() - begun)
    p50, p99 = np.percentile(took[len(asked) :], [50, 99]).tolist()
    return p50, p99


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + _WAIT_SECONDS
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() > until:
                process.kill()
                told = process.communicate()[1].decode(errors="replace").strip().splitlines()
                raise StreamForestError(f"the server did not start: {told[-1] if told else ''}")
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def report(found: list[Served]) -> str:
    """A line for each server."""
    head = (
        f"{'server':20} {'requests/s':>10}  {'p50':>8} {'p99':>8}  {'model p50':>9} {'p99':>8}"
        f"  {'p99 beyond':>10}"
    )
    lines = [head]
    for one in found:
        times = [f"{1000 * t:.2f} ms" for t in (one.p50, one.p99, one.model_p50, one.model_p99)]
        lines.append(
            f"{one.server:20} {one.rate:10,.0f}  {times[0]:>8} {times[1]:>8}  {times[2]:>9} {times[3]:>8}"
            f"  {1000 * one.beyond:>7.2f} ms"
        )
    lines.append(
        "Latencies at half the saturated rate; beyond: the p99 over that of the model alone."
    )
    return "\n".join(lines)
