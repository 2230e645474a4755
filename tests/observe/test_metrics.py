"""Metrics keep their labels bounded and strangers' text as text."""

from __future__ import annotations

import json
import logging
import time
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import pytest
from prometheus_client import generate_latest

from streamforest.errors import ConfigError
from streamforest.observe.evaluation import LabelWindow
from streamforest.observe.logs import JsonLines
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.server import MetricsServer
from streamforest.observe.telemetry import (
    BatchAdvanced,
    BatchSampled,
    CommitDoubted,
    CommitMade,
    EventRefused,
    IterationDone,
    LabelsRead,
    LabelsRecovered,
    LogOpened,
    NoveltyMeasured,
    Readiness,
    RoleChanged,
    RowsRead,
)
from streamforest.runtime.labels.store import LabelStore, LateRules


def batch(truth: list[Any], predicted: list[Any]) -> BatchAdvanced:
    return BatchAdvanced("main", truth, predicted, 0.1, 0, 5)


def test_classes_beyond_the_top_are_other() -> None:
    metrics = PipelineMetrics("p", ["invalid"])
    labels = [f"class {i}" for i in range(100)]
    metrics.on_event(batch(labels, labels))
    text = generate_latest(metrics.registry).decode()
    lines = [
        line for line in text.splitlines() if line.startswith("streamforest_class_events_total")
    ]
    assert len(lines) == 21
    assert 'streamforest_class_events_total{class="other"} 80.0' in lines
    assert 'streamforest_correct_predictions_total{model="main"} 100.0' in text


def test_control_characters_stay_text() -> None:
    metrics = PipelineMetrics("p")
    metrics.on_event(batch(['a"}\n\x1b[31m'], [None]))
    text = generate_latest(metrics.registry).decode()
    assert "\x1b" not in text
    record = logging.LogRecord("n", logging.INFO, "", 0, "a\n\x1b[31m%s", ("b",), None)
    assert "\x1b" not in json.loads(JsonLines().format(record))["message"]


def test_the_window() -> None:
    window = LabelWindow(window=4)
    window.add(["z", "a", "a", "b", "b"], ["z", "a", "a", "a", "b"])
    assert window.accuracy == 0.75
    assert window.kappa == 0.5
    assert window.recall(["b"]) == 0.5


def series(metrics: PipelineMetrics) -> dict[str, float]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    found = [line for line in lines if line.startswith("streamforest_class_events_total")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in found}


def test_the_largest_classes_are_shown_not_the_first() -> None:
    metrics = PipelineMetrics("p")
    early = [f"early {i}" for i in range(20)]
    metrics.on_event(batch(early, early))
    assert set(series(metrics)) == {*early, "other"}
    late = [f"late {i}" for i in range(20) for _ in range(10)]
    metrics.on_event(batch(late, late))
    before = series(metrics)
    metrics.on_event(batch(late, late))
    after = series(metrics)
    assert set(after) == {f"late {i}" for i in range(20)} | {"other"}
    assert after["other"] == before["other"] == 200  # a counter never goes back
    assert all(after[f"late {i}"] == 10 for i in range(20))


def test_a_label_in_every_event_takes_no_memory_and_drives_no_large_class_out() -> None:
    metrics = PipelineMetrics("p")
    sent = 0
    for number in range(200):
        labels = ["big"] * 50 + [f"once {number} {i}" for i in range(450)]
        sent += len(labels)
        metrics.on_event(batch(labels, labels))
    assert len(metrics._by_class._volume) <= 200
    shown = series(metrics)
    assert len(shown) <= 21
    assert shown["big"] == 200 * 50


def test_time_to_predict_and_time_to_learn_are_apart() -> None:
    metrics = PipelineMetrics("p")
    metrics.on_event(BatchSampled("main", 3e-6, 4e-5, 100))
    metrics.on_event(BatchSampled("main", 3e-6, None, 10))
    text = generate_latest(metrics.registry).decode()
    assert 'streamforest_predict_seconds_count{model="main"} 110.0' in text
    assert 'streamforest_predict_seconds_bucket{le="5e-06",model="main"} 110.0' in text
    assert 'streamforest_learn_seconds_count{model="main"} 100.0' in text


def test_novelty_is_a_histogram_by_model() -> None:
    metrics = PipelineMetrics("p")
    metrics.on_event(NoveltyMeasured("main", np.array([0.4, 1.2, np.inf, np.nan, 60.0])))
    text = generate_latest(metrics.registry).decode()
    assert 'streamforest_novelty_ratio_bucket{le="0.5",model="main"} 1.0' in text
    assert 'streamforest_novelty_ratio_bucket{le="1.5",model="main"} 2.0' in text
    assert 'streamforest_novelty_ratio_count{model="main"} 3.0' in text


def test_a_standby_tells_no_lag_of_when_it_was_the_owner() -> None:
    metrics = PipelineMetrics("p")
    metrics.on_event(LogOpened(lambda: None, lambda: {("t", 0): 70, ("t", 1): 5}))
    metrics.on_event(RoleChanged("owner", 2))
    metrics.on_event(IterationDone())
    told = generate_latest(metrics.registry).decode()
    assert 'streamforest_consumer_lag_records{partition="0",topic="t"} 70.0' in told
    metrics.on_event(RoleChanged("standby", 0, 100, 3))
    assert "streamforest_consumer_lag_records{" not in generate_latest(metrics.registry).decode()


def test_events_that_wait_for_a_commit_are_counted() -> None:
    metrics = PipelineMetrics("p")

    def waiting() -> float | None:
        return metrics.registry.get_sample_value("streamforest_uncommitted_events")

    read = RowsRead(records=5, labels=1, predicted=3, learned=3, not_admitted=0, waiting=0)
    refused = EventRefused("invalid", "t-0@4", "no event")
    for event in (read, refused, CommitDoubted()):
        metrics.on_event(event)
    assert waiting() == 4
    metrics.on_event(CommitMade(0.1, [], 0.0, {}))
    assert waiting() == 0
    metrics.on_event(read)
    metrics.on_event(RoleChanged("standby", 0))  # another process does them again
    assert waiting() == 0


def test_events_that_can_never_be_labelled_are_counted() -> None:
    metrics = PipelineMetrics("p")
    store = LabelStore(LateRules())
    metrics.on_event(LabelsRecovered(store.status()))
    assert 'labels_total{outcome="never"} 0.0' in generate_latest(metrics.registry).decode()
    store.wait(None, {"f": 1.0}, 5)
    metrics.on_event(LabelsRead(store.status(), 0, []))
    assert 'labels_total{outcome="never"} 1.0' in generate_latest(metrics.registry).decode()


def test_health_says_why() -> None:
    metrics = PipelineMetrics("p")
    with MetricsServer(metrics, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.port}"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{address}/readyz")
        assert (caught.value.code, caught.value.read()) == (503, b"not ready: starting\n")
        metrics.on_event(Readiness(None))
        assert urllib.request.urlopen(f"{address}/readyz").read() == b"ready\n"
        assert urllib.request.urlopen(f"{address}/livez").status == 200
        metrics.on_event(LogOpened(lambda: "the broker is away", dict))
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{address}/readyz")
        assert caught.value.read() == b"not ready: the broker is away\n"
        metrics._iteration_at = time.monotonic() - 500
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{address}/livez")
        assert caught.value.read() == b"not alive: the main loop is stalled for 500 s\n"
        with pytest.raises(ConfigError, match=r"metrics\.port=…"):
            MetricsServer(metrics, "127.0.0.1", server.port)
