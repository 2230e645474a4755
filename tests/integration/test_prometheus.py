"""A real Prometheus scrapes a real consumer, and promtool has nothing to say against our metrics."""

from __future__ import annotations

import subprocess
import time
import uuid
from pathlib import Path

from integration.feed import events, send
from integration.prometheus import Prometheus, tool
from integration.waiting import get, until

from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing import Consumer
from streamforest.testing.broker.server import Broker, free_port

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


def test_prometheus_scrapes_a_consumer(kafka_broker: Broker, tmp_path: Path) -> None:
    name, port, promtool = f"prom-{uuid.uuid4().hex[:8]}", free_port(), tool("promtool")
    ensure_topics(kafka_broker.servers, Topics.of(name), create=True, partitions=2)
    sent = send(kafka_broker.servers, f"{name}.events", events(2_000, bad=0.05), 2)
    path = tmp_path / "p.toml"
    path.write_text(PIPELINE.format(name=name, servers=kafka_broker.servers, port=port))
    with Prometheus(tmp_path, port) as server, Consumer(path, folder=tmp_path) as consumer:
        asked = server.value
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
            [promtool, "check", "metrics"], input=metrics, text=True, capture_output=True
        )
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
        assert get(f"http://127.0.0.1:{port}/other")[0] == 404
        assert consumer.stop() == 0
