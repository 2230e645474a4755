"""A soak: a steady rate of events with late labels for a long time, and a rebalance every minute.

One consumer lives through all of it on a real broker; every minute a second one joins the group or leaves it
again. Memory of the first must stay flat once it is warm, and the time from an event's record to the commit
of its prediction must not grow.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
import threading
import time
import urllib.request
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing.broker.server import Broker, free_port
from streamforest.testing.process import Consumer

TENTHS = 10
_FEATURES, _CLASSES = 10, 10
_PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
session_timeout_ms = 6000
[topics]
labels = "{name}.labels"
[labels]
expire_after_seconds = 60
max_events = 20000
[model]
kind = "consistent"
n_trees = 5
max_nodes = 1024
max_fringe_bytes = 500000
[run]
snapshot_interval_seconds = 20
folder = "{folder}"
[metrics]
port = {port}
"""


@dataclass(frozen=True)
class Settings:
    """Duration, rate, and delay of the labels."""

    minutes: float = 30.0
    rate: float = 300.0
    delay: float = 5.0
    every: float = 60.0
    """Seconds between two rebalances."""
    seed: int = 0


@dataclass(frozen=True)
class Tenth:
    """One tenth of the time."""

    minutes: float
    """Seconds from the start to its end."""
    process_bytes: int
    """Memory of the consumer at that time."""
    events: int
    """Events predicted in this tenth."""
    p50: float
    p99: float
    """Seconds from record to commit; the upper edge of a bucket."""
    matched: int
    changes: int


class Feeder(threading.Thread):
    """Sends events at a rate, and their labels a while later."""

    def __init__(self, servers: str, topics: Topics, settings: Settings) -> None:
        super().__init__(daemon=True, name="feeder")
        self._producer = KafkaProducer(bootstrap_servers=servers, linger_ms=5)
        self._topics, self._settings = topics, settings
        self._ending = threading.Event()
        self.sent = 0

    def run(self) -> None:
        """Send until stopped."""
        draw, due = random.Random(self._settings.seed), deque[tuple[float, int, bytes]]()
        begun = time.monotonic()
        labels = self._topics.labels or self._topics.events
        while not self._ending.is_set():
            now = time.monotonic()
            while due and due[0][0] <= now:
                _, partition, value = due.popleft()
                self._producer.send(labels, value, partition=partition)
            while self.sent < (now - begun) * self._settings.rate:
                k, partition = draw.randrange(_CLASSES), self.sent % 2
                x = {f"f{j}": draw.gauss((k * (j + 3)) % 7, 1.5) for j in range(_FEATURES)}
                identity = f"e{self.sent}"
                event = json.dumps({"id": identity, "x": x}).encode()
                self._producer.send(self._topics.events, event, partition=partition)
                if draw.random() < 0.95:
                    label = json.dumps({"id": identity, "y": k}).encode()
                    due.append((now + self._settings.delay, partition, label))
                self.sent += 1
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop and wait."""
        self._ending.set()
        self.join(30)
        self._producer.close(timeout=10)


@dataclass
class Reading:
    """What the consumer's metrics say at one moment."""

    events: float
    matched: float
    waits: dict[float, float]


def read(port: int) -> Reading:
    """Read the metrics of a consumer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()

    def value(pattern: str) -> float:
        found = re.search(rf"(?m)^streamforest_{pattern} (\S+)", text)
        return float(found[1]) if found else 0.0

    waits = {
        float(edge): float(count)
        for edge, count in re.findall(
            r'streamforest_end_to_end_seconds_bucket{le="([^"]+)"} (\S+)', text
        )
    }
    return Reading(
        value(r'events_total{outcome="predicted"}'),
        value(r'labels_total{outcome="matched"}'),
        waits,
    )


def quantile(before: Reading, after: Reading, q: float) -> float:
    """Below which upper edge a share `q` of the waits between two readings lies.

    >>> a, b = Reading(0, 0, {0.1: 5, 1.0: 5}), Reading(0, 0, {0.1: 5, 1.0: 9, float("inf"): 10})
    >>> quantile(a, b, 0.5), quantile(a, b, 0.99)
    (1.0, inf)
    """
    most = max(before.waits, default=0.0)
    counts = {
        edge: n - before.waits.get(edge, before.waits.get(most, 0.0))
        for edge, n in after.waits.items()
    }
    total = max(counts.values(), default=0.0)
    return next((edge for edge in sorted(counts) if counts[edge] >= q * total), 0.0)


def memory(pid: int) -> int:
    """Memory of a process in bytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def run(settings: Settings, progress: Callable[[str], None] = lambda text: None) -> list[Tenth]:
    """Run the whole soak on its own broker."""
    with Broker() as broker, tempfile.TemporaryDirectory() as work:
        name, port = f"soak-{uuid.uuid4().hex[:8]}", free_port()
        topics = Topics.of(name, labels=f"{name}.labels")
        ensure_topics(broker.servers, topics, create=True, partitions=2)
        path = Path(work) / "soak.toml"
        text = _PIPELINE.format(
            name=name, servers=broker.servers, folder=Path(work) / "run", port=port
        )
        path.write_text(text, encoding="utf-8")
        with Consumer(path, folder=Path(work)) as first:
            first.until_ready(timeout=400)
            feeder = Feeder(broker.servers, topics, settings)
            feeder.start()
            try:
                return _watch(settings, first, path, port, progress)
            finally:
                feeder.stop()
                code = first.stop()
                if code:
                    raise RuntimeError(f"the consumer ended with {code}: {first.log()[-2000:]}")


def _watch(
    settings: Settings, first: Consumer, path: Path, port: int, progress: Callable[[str], None]
) -> list[Tenth]:
    begun = time.monotonic()
    whole = 60 * settings.minutes
    second: Consumer | None = None
    changes, tenths, before = 0, list[Tenth](), read(port)
    try:
        while len(tenths) < TENTHS:
            time.sleep(min(0.5, whole / 100))
            gone = time.monotonic() - begun
            if gone >= (changes + 1) * settings.every:
                changes += 1
                second = _change(second, path)
            if gone >= (len(tenths) + 1) * whole / TENTHS:
                after = read(port)
                done = len(tenths) + 1
                tenths.append(
                    Tenth(
                        round(gone / 60, 1),
                        memory(first.pid),
                        int(after.events - before.events),
                        quantile(before, after, 0.5),
                        quantile(before, after, 0.99),
                        int(after.matched - before.matched),
                        changes,
                    )
                )
                progress(f"{done} of {TENTHS}: {line(tenths[-1])}")
                before = after
    finally:
        if second is not None:
            second.__exit__(None, None, None)
    return tenths


def _change(second: Consumer | None, path: Path) -> Consumer | None:
    """A second process joins, or leaves cleanly."""
    if second is None:
        return Consumer(path, "--set", f"metrics.port={free_port()}", folder=path.parent).start()
    second.stop()
    second.__exit__(None, None, None)
    return None


def line(tenth: Tenth) -> str:
    """One tenth as a line."""
    return (
        f"{tenth.minutes:5.1f} min  {tenth.process_bytes / 1e6:6.0f} MB  {tenth.events:>9,} events  "
        f"{tenth.matched:>9,} labels  p50 {tenth.p50:5.2f} s  p99 {tenth.p99:5.2f} s  "
        f"{tenth.changes:>3} rebalances"
    )


def report(tenths: Sequence[Tenth]) -> str:
    """The curve, and the change of memory and latency after the warm-up."""
    rows = [line(tenth) for tenth in tenths]
    warm, last = tenths[2], tenths[-1]
    rows.append(
        f"memory at the end: {last.process_bytes / warm.process_bytes:.2f} of that after three tenths; "
        f"p99: {last.p99:.2f} s, was {warm.p99:.2f} s"
    )
    return "\n".join(rows)


def content(settings: Settings, tenths: Sequence[Tenth]) -> dict[str, Any]:
    """All figures, for JSON."""
    return {"settings": asdict(settings), "tenths": [asdict(tenth) for tenth in tenths]}
