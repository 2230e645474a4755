"""A real Prometheus scrapes a real consumer, and promtool has nothing to say against our metrics."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from integration.feed import events, send
from integration.waiting import get, until

from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing import Consumer
from streamforest.testing.broker.server import Broker, free_port
from streamforest.testing.plugin import missing

PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
session_timeout_ms = 1000
[model]
kind = "consistent"
n_trees = 3
[[shadow]]
name = "shade"
n_trees = 2
[run]
commit_interval_ms = 100
snapshot_interval_seconds = 1
folder = "run"
[metrics]
port = {port}
"""
SCRAPE = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: streamforest
    static_configs: [{{targets: ['127.0.0.1:{port}']}}]
"""


@pytest.fixture
def tools() -> tuple[str, str]:
    """Prometheus and promtool."""
    found = shutil.which("prometheus"), shutil.which("promtool")
    if None in found:
        missing("prometheus and promtool are missing: apt-get install prometheus")
    return found  # type: ignore[return-value]


def test_prometheus_scrapes_a_consumer(
    kafka_broker: Broker, tmp_path: Path, tools: tuple[str, str]
) -> None:
    name, port, own = f"prom-{uuid.uuid4().hex[:8]}", free_port(), free_port()
    ensure_topics(kafka_broker.servers, Topics.of(name), create=True, partitions=2)
    sent = send(kafka_broker.servers, f"{name}.events", events(2_000, bad=0.05), 2)
    path = tmp_path / "p.toml"
    path.write_text(PIPELINE.format(name=name, servers=kafka_broker.servers, port=port))
    (tmp_path / "prometheus.yml").write_text(SCRAPE.format(port=port))
    server = subprocess.Popen(
        [
            tools[0],
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{own}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def asked(query: str) -> float:
        from urllib.parse import quote

        _, text = get(f"http://127.0.0.1:{own}/api/v1/query?query={quote(query)}")
        result = json.loads(text)["data"]["result"] if text else []
        return float(result[0]["value"][1]) if result else 0.0

    try:
        with Consumer(path, folder=tmp_path) as consumer:
            until(lambda: get(f"http://127.0.0.1:{port}/livez")[0] == 200)
            code, text = get(f"http://127.0.0.1:{port}/readyz")
            assert code == 200 or "not ready: " in text
            consumer.until_ready()
            until(lambda: asked("sum(streamforest_events_total)") == sent)
            assert get(f"http://127.0.0.1:{port}/readyz")[1].startswith("ready: owner of ")
            assert asked("sum(streamforest_dead_letters_total)") > 0
            assert asked('streamforest_labelled_events_total{model="shade"}') > 1_500
            assert asked('streamforest_accuracy_ratio{model="main"}') > 0.2
            until(lambda: asked("sum(streamforest_consumer_lag_records)") == 0)
            assert asked('sum(streamforest_predict_seconds_count{model="main"})') > 0
            assert asked('sum(streamforest_learn_seconds_count{model="shade"})') > 0
            assert asked("streamforest_end_to_end_seconds_count") == sent
            assert asked("streamforest_snapshots_total") > 0
            until(lambda: asked('streamforest_fringe_occupancy_ratio{model="main"}') > 0)
            assert asked('streamforest_model_bytes{model="shade"}') > 0
            assert asked('streamforest_classes{model="main"}') == 12
            assert time.time() - asked("streamforest_last_new_class_timestamp_seconds") < 300
            assert asked("sum(streamforest_class_events_total)") == asked(
                'streamforest_labelled_events_total{model="main"}'
            )
            assert asked("streamforest_build_info") == 1
            assert asked("streamforest_class_births_total") == 12
            until(lambda: asked("max(streamforest_consumer_lag_seconds)") == 0)
            assert asked("count(streamforest_consumer_lag_seconds)") == 2
            assert 0 < asked("streamforest_no_change_accuracy_ratio") < 0.5
            assert asked('streamforest_kappa_temporal_ratio{model="main"}') > 0
            assert time.time() - asked("streamforest_last_labelled_event_timestamp_seconds") < 300
            ages = 'streamforest_class_age_{}{{model="main",age="1-10"}}'
            assert asked(ages.format("events_total")) == 120
            assert 0 < asked(ages.format("recall_ratio")) < 1
            _, metrics = get(f"http://127.0.0.1:{port}/metrics")
            checked = subprocess.run(
                [tools[1], "check", "metrics"], input=metrics, text=True, capture_output=True
            )
            assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
            assert get(f"http://127.0.0.1:{port}/other")[0] == 404
            assert consumer.stop() == 0
    finally:
        server.terminate()
        server.wait(20)
