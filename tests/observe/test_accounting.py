"""Counts of rows, dead letters in the log, and the metrics that show both."""

from __future__ import annotations

import json
import logging

import pytest
from prometheus_client import generate_latest

from streamforest.observe import logs
from streamforest.observe.accounting import MAX_REASONS, RowCounts
from streamforest.observe.log_listeners import RowLog, TroubleLog
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.telemetry import (
    EventRefused,
    IterationDone,
    Listeners,
    LogOpened,
    ModelsChanged,
    Readiness,
    RowsCounted,
    RowsRead,
)


def read(records: int, **more: int) -> RowsRead:
    counts = {
        "labels": 0,
        "predicted": records,
        "learned": records,
        "not_admitted": 0,
        "waiting": 0,
    }
    return RowsRead(records=records, **{**counts, **more})


def refused(number: int, reason: str = "label") -> EventRefused:
    return EventRefused(reason, f"e.csv, row {number}", f"label {number} is no label")


def test_late_labels_are_not_events_and_rows_may_wait() -> None:
    counts = RowCounts()
    counts.on_event(read(10, predicted=10, learned=0, waiting=10))
    counts.on_event(read(6, labels=6, predicted=0, learned=6, waiting=3))
    summary = counts.summary()
    assert (summary.read, summary.learned, summary.waiting, summary.predicted_only) == (10, 6, 3, 1)
    assert sum(summary.parts().values()) == summary.read
    assert RowCounts.from_state(counts.state(), waiting=3).summary() == summary


def test_the_first_dead_letter_of_a_reason_is_the_example() -> None:
    counts = RowCounts()
    for number in range(5):
        counts.on_event(refused(number))
    counts.on_event(refused(7, "feature"))
    assert counts.refused["label"].count == 5
    assert counts.refused["label"].place == "e.csv, row 0"
    assert RowCounts.from_state(counts.state()).state() == counts.state()


def test_a_forged_state_is_refused() -> None:
    good = RowCounts().state()
    for wrong in (
        {"learned": 5},
        {"refused": [["label", 1, "here", 7]]},
        {"refused": [["label", 1, "here", "why"]] * 2},
        {"refused": [[f"r{i}", 1, "here", "why"] for i in range(MAX_REASONS + 1)]},
        {"predicted": -1},
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            RowCounts.from_state({**good, **wrong})


def test_dead_letters_are_logged_once_a_minute_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    listener = RowLog({"label": "send labels"}, clock=lambda: now)
    logs.tear_down()
    with caplog.at_level(logging.INFO, "streamforest"):
        listener.on_event(read(1_000))
        for number in range(5):
            listener.on_event(refused(number))
        listener.on_event(refused(5, "feature"))
        now = 61.0
        for number in range(6, 40):
            listener.on_event(refused(number))
    shown = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert shown == [
        (
            "INFO",
            "a dead letter with reason 'label' (1 so far); at e.csv, row 0: label 0 is no "
            "label. Remedy: send labels",
        ),
        (
            "INFO",
            "a dead letter with reason 'feature' (6 so far); at e.csv, row 5: label 5 is no "
            "label. Remedy: see the message",
        ),
        (
            "INFO",
            "5 more dead letters with reason 'label' (7 so far); at e.csv, row 6: label 6 is "
            "no label. Remedy: send labels",
        ),
    ]
    now = 130.0
    with caplog.at_level(logging.INFO, "streamforest"):
        listener.on_event(refused(40))
    assert caplog.records[-1].levelname == "WARNING", "more than 1 % by now"


def test_a_broker_that_is_gone_and_back_is_logged_once_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, reason = 0.0, None
    listener = TroubleLog(clock=lambda: now, name="partition 3")
    logs.tear_down()
    with caplog.at_level(logging.INFO, "streamforest"):
        listener.on_event(LogOpened(lambda: reason, dict))
        for now, reason, ready in (  # noqa: B007
            (2.0, "no partitions are assigned", False),
            (4.0, None, True),
            (6.0, "no answer from a:9092 for 7 s", True),
            (6.5, None, True),
            (8.0, "poll: another text", True),
            (20.0, None, True),
            (22.0, None, True),
        ):
            listener.on_event(Readiness(None if ready else "recovering"))
            listener.on_event(IterationDone())
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "partition 3: nothing can be committed now: no answer from a:9092 for 7 s"),
        ("INFO", "partition 3: commits can be made again, after 14 s"),
    ]


def test_metrics_show_what_became_of_the_rows_and_how_large_models_are() -> None:
    metrics = PipelineMetrics("p", ["label"])
    listeners = Listeners(metrics, RowCounts())
    counts = {"read": 9, "learned": 6, "waiting": 2, "dead_letters": 1}
    listeners.on_event(RowsCounted(counts, {"misfit": 4, "other": 3}))
    listeners.on_event(refused(1))
    asked = []

    def summaries() -> dict[str, dict[str, int]]:
        asked.append(1)
        return {"main": {"total_bytes": 7_000}}

    for _ in range(3):
        listeners.on_event(ModelsChanged(summaries))
    text = generate_latest(metrics.registry).decode()
    for line in (
        'streamforest_rows{outcome="read"} 9.0',
        'streamforest_rows{outcome="waiting"} 2.0',
        'streamforest_degraded_values{reason="misfit"} 4.0',
        'streamforest_degraded_values{reason="other"} 3.0',
        'streamforest_dead_letters_total{reason="label"} 1.0',
        'streamforest_model_bytes{model="main"} 7000.0',
    ):
        assert line in text
    assert len(asked) == 1, "at most once a second"


def test_records_are_kept_apart_from_progress(capsys: pytest.CaptureFixture[str]) -> None:
    above: list[str] = []
    logs.set_up("info", "json")
    try:
        with logs.above(above.append):
            logging.getLogger("streamforest.x").info("one\n\x1b[31m")
        logging.getLogger("streamforest.x").debug("hidden")
        logging.getLogger("streamforest.x").info("two")
    finally:
        logs.tear_down()
    (one,) = above
    assert json.loads(one)["message"] == r"one\n\x1b[31m"
    assert json.loads(capsys.readouterr().err)["message"] == "two"
    assert not logs.is_set_up()
