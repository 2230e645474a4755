"""Metrics keep their labels bounded and strangers' text as text."""

from __future__ import annotations

import json
import logging
import urllib.request
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest

from streamforest.errors import ConfigError
from streamforest.observe.logs import JsonLines
from streamforest.observe.metrics import ModelWindow, PipelineMetrics
from streamforest.observe.server import MetricsServer

MODEL = SimpleNamespace(n_learned=5)


def test_classes_beyond_the_top_are_other() -> None:
    metrics = PipelineMetrics("p", ["invalid"])
    labels = [f"class {i}" for i in range(100)]
    metrics.advanced("main", MODEL, labels, labels, 0.1)
    text = generate_latest(metrics.registry).decode()
    lines = [
        line for line in text.splitlines() if line.startswith("streamforest_class_events_total")
    ]
    assert len(lines) == 21
    assert 'streamforest_class_events_total{class="other"} 80.0' in lines
    assert 'streamforest_correct_predictions_total{model="main"} 100.0' in text


def test_control_characters_stay_text() -> None:
    metrics = PipelineMetrics("p")
    metrics.advanced("main", MODEL, ['a"}\n\x1b[31m'], [None], 0.1)
    text = generate_latest(metrics.registry).decode()
    assert "\x1b" not in text
    record = logging.LogRecord("n", logging.INFO, "", 0, "a\n\x1b[31m%s", ("b",), None)
    assert "\x1b" not in json.loads(JsonLines().format(record))["message"]


def test_the_window() -> None:
    window = ModelWindow(window=4)
    assert window.add(["a", "a", "b", "b", None], ["a", "a", "a", "b", "b"]) == 2
    assert window.accuracy() == 0.75
    assert window.kappa() == 0.5
    assert window.newest_recall() == 0.75


def test_health_says_why() -> None:
    metrics = PipelineMetrics("p")
    with MetricsServer(metrics, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.port}"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{address}/readyz")
        assert (caught.value.code, caught.value.read()) == (503, b"not ready: starting\n")
        metrics.ready(None)
        assert urllib.request.urlopen(f"{address}/readyz").read() == b"ready\n"
        assert urllib.request.urlopen(f"{address}/livez").status == 200
        with pytest.raises(ConfigError, match=r"metrics\.port=…"):
            MetricsServer(metrics, "127.0.0.1", server.port)
