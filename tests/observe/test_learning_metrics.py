"""Metrics of learning and lag: what they count, and that series of a partition that left are gone."""

from __future__ import annotations

import time
from typing import Any

from streamforest.observe.measures import ModelMeasures
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.telemetry import (
    BatchAdvanced,
    ClassesBorn,
    CommitMade,
    IterationDone,
    LogOpened,
    ModelsChanged,
    Rebalanced,
    RecordsRead,
    RoleChanged,
)


def value(metrics: PipelineMetrics, name: str, **labels: str) -> Any:
    return metrics.registry.get_sample_value(f"streamforest_{name}", labels)


def test_no_change_and_kappa_temporal() -> None:
    metrics = PipelineMetrics("p")
    for truth, guess in ((["a", "a"], ["a", "a"]), (["a", "b"], ["a", "a"])):
        metrics.on_event(BatchAdvanced("main", truth, guess, 0.1, 0, 4))
    metrics.on_event(CommitMade(0.1, [], 0.0, {"main": ["a", "b"]}))
    assert value(metrics, "no_change_correct_predictions_total") == 2
    assert value(metrics, "no_change_accuracy_ratio") == 0.5
    assert value(metrics, "kappa_temporal_ratio", model="main") == 0.5
    assert time.time() - value(metrics, "last_labelled_event_timestamp_seconds") < 60


def test_recall_by_class_age_is_counted_once() -> None:
    metrics, measures = PipelineMetrics("p"), ModelMeasures()
    for _ in range(2):
        measures.update(["a"] * 10, ["a"] * 9 + ["b"], 0.1)
        metrics.on_event(CommitMade(0.1, [], 0.0, {}, 0, "main", {"main": measures}))
    young = {"model": "main", "age": "1-10"}
    assert value(metrics, "class_age_events_total", **young) == 10
    assert value(metrics, "class_age_correct_predictions_total", **young) == 9
    assert value(metrics, "class_age_recall_ratio", **young) == 0.9
    assert value(metrics, "class_age_events_total", model="main", age="11-50") == 10


def test_trees_replaced_and_an_older_model_that_was_adopted() -> None:
    metrics = PipelineMetrics("p")
    for swaps in (5, 7, 3, 4):
        told = {"main": {"swaps": swaps, "challengers_grown": 2 * swaps, "total_bytes": 1}}
        metrics._measure_at = 0.0
        metrics.on_event(ModelsChanged(lambda told=told: told))  # type: ignore[misc]
    assert value(metrics, "trees_replaced_total", model="main", reason="challenger") == 8
    assert value(metrics, "challengers_total", model="main") == 16
    metrics._measure_at = 0.0
    metrics.on_event(ModelsChanged(lambda: {"ncm": {"trees_grown": 9}}))
    assert value(metrics, "trees_replaced_total", model="ncm", reason="regrown") == 9


def test_models_that_changed_just_after_they_were_measured_are_measured_when_nothing_more_comes() -> (
    None
):
    metrics = PipelineMetrics("p")
    metrics.on_event(ModelsChanged(lambda: {"main": {"total_bytes": 1}}))
    metrics.on_event(ModelsChanged(lambda: {"main": {"total_bytes": 2}}))
    assert value(metrics, "model_bytes", model="main") == 1, "not at every commit"
    metrics._measure_at, metrics._looked = 0.0, -10.0
    metrics.on_event(IterationDone())
    assert value(metrics, "model_bytes", model="main") == 2


def test_births_and_rebalances() -> None:
    metrics = PipelineMetrics("p")
    metrics.on_event(ClassesBorn(["a", "b"], 0))
    metrics.on_event(Rebalanced())
    assert value(metrics, "class_births_total") == 2
    assert value(metrics, "rebalances_total") == 1


def test_the_series_of_a_partition_that_left_are_removed() -> None:
    metrics, lags = PipelineMetrics("p"), {("t", 0): 3, ("t", 1): 0}
    metrics.on_event(LogOpened(lambda: None, lambda: lags))
    metrics.on_event(RecordsRead({("t", 0): int(1000 * time.time()) - 50_000}))

    def looked() -> None:
        metrics._looked = -10.0
        metrics.on_event(IterationDone())

    looked()
    zero, one = {"topic": "t", "partition": "0"}, {"topic": "t", "partition": "1"}
    assert value(metrics, "consumer_lag_records", **zero) == 3
    assert 50 <= value(metrics, "consumer_lag_seconds", **zero) < 110
    assert value(metrics, "consumer_lag_seconds", **one) == 0
    del lags["t", 0]
    looked()
    assert value(metrics, "consumer_lag_records", **zero) is None
    assert value(metrics, "consumer_lag_seconds", **zero) is None
    assert value(metrics, "consumer_lag_records", **one) == 0
    metrics.on_event(RoleChanged("standby", 0))
    assert value(metrics, "consumer_lag_seconds", **one) is None


def test_records_without_a_time_have_no_lag_in_seconds() -> None:
    metrics = PipelineMetrics("p")
    metrics.on_event(LogOpened(lambda: None, lambda: {("file", 0): 3}))
    metrics.on_event(RecordsRead({("file", 0): 0}))
    metrics.on_event(IterationDone())
    assert value(metrics, "consumer_lag_records", topic="file", partition="0") == 3
    assert value(metrics, "consumer_lag_seconds", topic="file", partition="0") is None
