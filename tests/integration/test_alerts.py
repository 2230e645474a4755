"""A real Prometheus with the shipped rules, scraping a real consumer that is put into trouble.

Every expression of both dashboards returns data, and every alert fires and clears. The expressions are those
of the rule file; only their ranges and `for:` are shorter. `tests/observe/alerts_test.yml` has them at full
length. It takes two minutes and a machine that is not overloaded:

    python -m pytest -m slow -n0 tests/integration/test_alerts.py
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from integration.prometheus import Prometheus
from kafka import KafkaProducer

from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing import Consumer
from streamforest.testing.broker.server import Broker, free_port

DOCKER = Path(__file__).parents[2] / "docker"
BOARDS = sorted((DOCKER / "grafana" / "dashboards").glob("*.json"))
SHORT = {"1d": "16s", "1h": "6s", "15m": "3s", "5m": "3s", "2m": "1s"}
PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
[labels]
[events]
decoder = "alerts_decoder:decode"
[model]
n_trees = 3
[[shadow]]
name = "online"
kind = "online"
n_trees = 2
[[shadow]]
name = "ncm"
kind = "ncm"
n_trees = 2
[run]
batch_size = 20
commit_interval_ms = 100
snapshot_interval_seconds = 1
folder = "run"
[metrics]
port = {port}
"""
DECODER = """
import json, pathlib, time
SLOW = pathlib.Path(__file__).with_name("slow")
def decode(message):
    if SLOW.exists():
        time.sleep(0.02)
    return json.loads(message.value)
"""


def shortened(rules: str) -> str:
    """The rules with shorter ranges and `for:`, and nothing else changed."""
    rules = re.sub(r"\[(\w+)\]", lambda found: f"[{SHORT[found[1]]}]", rules)
    return re.sub(r"for: (\w+)", lambda found: f"for: {SHORT[found[1]]}", rules)


def alert_names() -> list[str]:
    return re.findall(r"alert: (\w+)", (DOCKER / "prometheus" / "rules.yml").read_text())


def expressions() -> list[str]:
    """Every expression of both dashboards, as Grafana would send it."""
    found = [
        target["expr"]
        for board in BOARDS
        for panel in json.loads(board.read_text(encoding="utf-8"))["panels"]
        for target in panel.get("targets", [])
    ]
    return [
        one.replace("$__rate_interval", "3s").replace("$job", "streamforest.*") for one in found
    ]


class Feed:
    """Sends 100 events a second at most; what they are like may be changed meanwhile."""

    def __init__(self, servers: str, topic: str) -> None:
        self.labelled, self.bad, self.random, self.age = True, 0.0, False, 0.0
        self._producer = KafkaProducer(bootstrap_servers=servers, linger_ms=5)
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.paused = threading.Event()
        self.paused.set()

    def __enter__(self) -> Feed:
        self._thread.start()
        return self  # paused

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join(20)
        self._producer.close(timeout=5)

    def _run(self) -> None:
        draw = random.Random(0)
        number, late = 0, []
        while not self._ended.wait(0.1):
            if self.paused.is_set():
                continue
            for _ in range(10):
                number += 1
                k = draw.randrange(min(8, 2 + number // 100))
                x = {f"f{j}": round(draw.gauss((k * (j + 1)) % 7, 0.3), 3) for j in range(5)}
                y = f"class {draw.randrange(8) if self.random else k}"
                event: dict[str, Any] = {"id": f"e{number}", "x": x}
                if self.labelled and number % 10:
                    event["y"] = y
                elif self.labelled:
                    late.append({"id": event["id"], "y": y})
                self._send(b"{" if draw.random() < self.bad else json.dumps(event).encode())
            while self.labelled and len(late) > 3:
                self._send(json.dumps(late.pop(0)).encode())

    def _send(self, value: bytes) -> None:
        at = int((time.time() - self.age) * 1000)
        self._producer.send(self._topic, value, timestamp_ms=at)


@contextmanager
def frozen(broker: Broker) -> Iterator[None]:
    pid = broker.status().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_panel_has_data_and_every_alert_fires_and_clears(
    kafka_broker: Broker, tmp_path: Path
) -> None:
    name, port = f"alerts-{uuid.uuid4().hex[:8]}", free_port()
    ensure_topics(kafka_broker.servers, Topics.of(name), create=True, partitions=1)
    path = tmp_path / "p.toml"
    path.write_text(PIPELINE.format(name=name, servers=kafka_broker.servers, port=port))
    (tmp_path / "alerts_decoder.py").write_text(DECODER)
    rules = tmp_path / "rules.yml"
    rules.write_text(shortened((DOCKER / "prometheus" / "rules.yml").read_text()))
    seen: set[str] = set()

    with (
        Prometheus(tmp_path, port, rules) as server,
        Feed(kafka_broker.servers, f"{name}.events") as feed,
    ):

        def firing() -> set[str]:
            found = server.samples('ALERTS{alertstate="firing"}')
            return {one["metric"]["alertname"] for one in found}

        def is_firing(alert: str) -> bool:
            return alert in firing()

        def fires(*alerts: str) -> None:
            for alert in alerts:
                until(partial(is_firing, alert), alert)
            seen.update(alerts)

        def clears() -> None:
            until(lambda: not firing(), "no alert")

        def caught_up() -> None:
            until(lambda: server.samples("max(streamforest_consumer_lag_seconds) < 2"), "no lag")

        def without_data() -> list[str]:
            return [one for one in expressions() if not has_data(server.samples(one))]

        with Consumer(path, folder=tmp_path) as consumer:
            consumer.until_ready()
            feed.paused.clear()
            until(lambda: not without_data(), "data")
            clears()
            caught_up()

            slow, snapshots = tmp_path / "slow", tmp_path / "run" / "snapshots"
            feed.bad, feed.age = 0.2, 120.0
            slow.touch()
            snapshots.rename(tmp_path / "kept")
            snapshots.write_text("not a folder")
            fires(
                "StreamforestDeadLettersRising",
                "StreamforestLagGrowing",
                "StreamforestSnapshotsStale",
            )
            feed.bad, feed.age = 0.0, 0.0
            slow.unlink()
            snapshots.unlink()
            (tmp_path / "kept").rename(snapshots)
            clears()
            caught_up()

            feed.labelled = False
            fires("StreamforestNotLearning")
            feed.labelled = True
            clears()

            feed.random = True
            fires("StreamforestAccuracyDropped")
            feed.random = False
            clears()

            slow.touch()  # so that there are records in memory when the broker stops answering
            until(lambda: server.samples("sum(streamforest_consumer_lag_records) > 150"), "lag")
            feed.paused.set()
            with frozen(kafka_broker):
                fires("StreamforestCommitsFailing")
            slow.unlink()
            feed.paused.clear()
            clears()
            assert consumer.stop() == 0
        fires("StreamforestNoOwner")
        with Consumer(path, folder=tmp_path) as consumer:
            consumer.until_ready()
            clears()
            assert consumer.stop() == 0
    assert seen == set(alert_names())


def until(condition: Callable[[], object], what: str) -> None:
    """Wait, asking seldom: whoever is asked shares the machine with the consumer."""
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.2)


def has_data(samples: list[dict[str, Any]]) -> bool:
    return any(one["value"][1] != "NaN" for one in samples)
