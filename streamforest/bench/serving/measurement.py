"""Two servers in one run: saturated rate, latency at half of it and at a common rate, and the model alone.

What is compared is the price of serving: the p99 of a single prediction over HTTP beyond the p99 of the same
model asked in memory. Both servers are processes of their own on this machine and are measured in turns, so
that whatever else the machine does meets both. What is told is the median of the rounds.

The half of a server's own rate says how it answers when it is half busy; a faster server is asked more often
then. So both are also asked at the same rate, half of what the slower one can do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from streamforest import StreamForestClassifier, save
from streamforest.bench.serving.clients import Timed, at_rate, requests_of, run, saturated
from streamforest.bench.serving.events import training_events
from streamforest.bench.serving.plain import trained
from streamforest.errors import StreamForestError
from streamforest.testing.broker.server import free_port

_START = "import sys; sys.argv[0] = 'streamforest'; from streamforest.__main__ import main; main()"
_ASKED = 500  # different events
_WAIT_SECONDS = 120.0
_WARM_SECONDS = 1.0
CONNECTIONS = 16
OURS, PLAIN = "streamforest serve", "FastAPI + River"


@dataclass(frozen=True)
class Latency:
    """Seconds of a request at a rate: medians of the rounds."""

    rate: float
    """Requests a second that were sent."""
    p50: float
    p99: float
    late_p99: float
    """By how much the clients themselves were late: a part of the times above."""

    @classmethod
    def of(cls, rate: float, rounds: list[Timed]) -> Latency:
        """From the times of the rounds."""
        took = np.array([np.percentile(one.took, [50, 99]) for one in rounds])
        late = [float(np.percentile(one.late, 99)) if one.late else 0.0 for one in rounds]
        p50, p99 = np.median(took, axis=0).tolist()
        return cls(rate, p50, p99, median(late))


@dataclass(frozen=True)
class Served:
    """What was measured of one server; times in seconds."""

    server: str
    rate: float
    """Answers a second, saturated."""
    half: Latency
    """At half that rate."""
    same: Latency
    """At half the rate of the slower server."""
    model_p50: float
    model_p99: float
    """Of the model alone, in memory."""

    def beyond(self, latency: Latency) -> float:
        """The p99 of a request over that of the model."""
        return latency.p99 - self.model_p99


@dataclass(frozen=True)
class Comparison:
    """Both servers, and how busy the machine was with anything else."""

    servers: list[Served]
    rounds: int
    seconds: float
    """Of each measurement."""
    load_before: float
    load_after: float
    """Load averages of a minute; the benchmark's own part is in the second."""
    cores: int


@dataclass
class _Server:
    """A server that runs, and what it was seen to do, round by round."""

    name: str
    port: int
    requests: list[bytes]
    own: list[tuple[float, float]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    half: list[Timed] = field(default_factory=list)
    same: list[Timed] = field(default_factory=list)


def measure(
    events: int,
    seconds: float,
    rounds: int = 3,
    progress: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Both servers, each with a model that has learned so many events."""
    asked = [x for x, _ in training_events(_ASKED, seed=1)]
    before = os.getloadavg()[0]
    with TemporaryDirectory() as work, ExitStack() as stack:
        path = Path(work) / "model.safetensors"
        progress(f"learning {events:,} events, starting the servers")
        ours = StreamForestClassifier(n_trees=20, seed=1)
        for x, y in training_events(events):
            ours.learn_one(x, y)
        save(ours, path)
        models: dict[str, Any] = {OURS: ours, PLAIN: trained(events)}
        servers = []
        for name in models:
            port = free_port()
            command = (
                ["-c", _START, "serve", str(path), "--port", str(port)]
                if name == OURS
                else ["-m", "streamforest.bench.serving.plain", str(port), str(events)]
            )
            stack.enter_context(_running([sys.executable, *command], port))
            servers.append(_Server(name, port, requests_of(asked, port)))
        for one in servers:
            run(saturated(one.port, one.requests, _WARM_SECONDS, CONNECTIONS))
        for number in range(1, rounds + 1):
            for one in servers:
                one.own.append(_own_times(models[one.name], asked))
                one.rates.append(run(saturated(one.port, one.requests, seconds, CONNECTIONS)))
                progress(f"round {number}: {one.name}: {one.rates[-1]:,.0f} requests/s")
        slowest = min(median(one.rates) for one in servers)
        for number in range(1, rounds + 1):
            for one in servers if number % 2 else servers[::-1]:
                progress(f"round {number}: {one.name}: latency")
                for rate, found in ((median(one.rates) / 2, one.half), (slowest / 2, one.same)):
                    found.append(run(at_rate(one.port, one.requests, rate, seconds, CONNECTIONS)))
        told = [_told(one, slowest / 2) for one in servers]
    return Comparison(told, rounds, seconds, before, os.getloadavg()[0], os.cpu_count() or 1)


def _told(server: _Server, same: float) -> Served:
    own = np.median(np.array(server.own), axis=0).tolist()
    rate = median(server.rates)
    half, both = Latency.of(rate / 2, server.half), Latency.of(same, server.same)
    return Served(server.name, rate, half, both, *own)


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


def report(found: Comparison, versions: str) -> str:
    """Two lines for each server, and under what circumstances."""
    lines = [
        f"{'server':20} {'saturated/s':>11}  {'asked/s':>8} {'p50':>9} {'p99':>9}  {'model p50':>9} "
        f"{'p99':>9}  {'p99 beyond':>10} {'clients late':>12}"
    ]
    for label in ("half", "same"):
        lines.append(f"At {'half of its own rate' if label == 'half' else 'the same rate'}:")
        for one in found.servers:
            latency: Latency = getattr(one, label)
            times = (latency.p50, latency.p99, one.model_p50, one.model_p99)
            p50, p99, own50, own99 = (f"{1000 * t:.2f} ms" for t in times)
            lines.append(
                f"{one.server:20} {one.rate:11,.0f}  {latency.rate:8,.0f} {p50:>9} {p99:>9}  {own50:>9} "
                f"{own99:>9}  {1000 * one.beyond(latency):>7.2f} ms {1000 * latency.late_p99:>9.2f} ms"
            )
    lines += [
        f"Medians of {found.rounds} rounds of {found.seconds:g} s, the servers in turns, {CONNECTIONS} "
        "connections; beyond: the p99 over that of the model alone; late: p99 of the clients' own delay, "
        "which is in the times.",
        f"Load average {found.load_before:.1f} before and {found.load_after:.1f} after, {found.cores} cores; "
        f"{versions}",
    ]
    return "\n".join(lines)
