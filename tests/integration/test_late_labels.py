"""Labels that come by themselves, on a real broker: what is learned, what is counted, what survives.

The whole kill test, with its tally: python -m pytest -m slow tests/integration/test_late_labels.py -s
"""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.kills import FOREST, LEVELS, Plan, run_plan
from integration.late_feed import Message, late_messages, level_messages, send_all
from integration.late_oracle import LateJudge, LateVerdict, Matching
from integration.oracle import blocks, read_all

from streamforest import ConsistentForestClassifier, OnlineForestClassifier
from streamforest.forests.persistence import snapshot
from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.loop import Run
from streamforest.testing.broker.server import Broker

LABELS = "[labels]\nexpire_after_seconds = 3\nmax_clock_step_seconds = 60\n"
PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
session_timeout_ms = 6000
[model]
kind = "{kind}"
n_trees = 3
[run]
commit_interval_ms = 100
folder = "{folder}"
[metrics]
port = 0
{more}
"""


class Case:
    """A pipeline with labels of their own, on the same topic or on another."""

    def __init__(self, broker: Broker, folder: Path, second: bool, lanes: int = 2) -> None:
        self.servers, self.folder = broker.servers, folder / "run"
        self.name = f"late-{uuid.uuid4().hex[:8]}"
        self.events = f"{self.name}.events"
        self.labels = f"{self.name}.labels" if second else None
        topics = Topics.of(self.name, labels=self.labels)
        ensure_topics(broker.servers, topics, create=True, partitions=lanes)
        self.path = folder / "p.toml"

    def text(self, more: str) -> str:
        named = f'[topics]\nlabels = "{self.labels}"\n' if self.labels else ""
        return more + named

    def send(self, *messages: Message) -> None:
        send_all(self.servers, messages, self.events, self.labels)

    def drain(
        self,
        more: str = LABELS,
        telemetry: PipelineMetrics | None = None,
        kind: str = "consistent",
    ) -> Run:
        text = PIPELINE.format(
            name=self.name,
            servers=self.servers,
            folder=self.folder,
            more=self.text(more),
            kind=kind,
        )
        self.path.write_text(text, encoding="utf-8")
        with opened(load_pipeline(self.path), drain=True, telemetry=telemetry) as run:
            assert run.consume() == "finished"
        return run

    def predictions(self) -> list[dict[str, Any]]:
        records = read_all(self.servers, f"{self.name}.predictions")
        found = [json.loads(r.value) for several in records.values() for r in several]
        return sorted(found, key=lambda p: p["event"])


@pytest.fixture(params=[False, True], ids=["same topic", "second topic"])
def case(request: pytest.FixtureRequest, kafka_broker: Broker, tmp_path: Path) -> Case:
    return Case(kafka_broker, tmp_path, request.param)


def event(at: int, identity: Any, a: float, y: Any = None, lane: int = 0) -> Message:
    told = {"id": identity, "x": {"a": a}, **({} if y is None else {"y": y})}
    return Message(False, lane, at, json.dumps(told).encode())


def label(at: int, identity: Any, y: Any, lane: int = 0) -> Message:
    return Message(True, lane, at, json.dumps({"id": identity, "y": y}).encode())


def an_hour_ago() -> int:
    return int(time.time() * 1000) - 3_600_000


def metric(metrics: PipelineMetrics, name: str, **labels: str) -> float:
    value = metrics.registry.get_sample_value(f"streamforest_{name}", labels)
    assert value is not None, name
    return value


def coarse_label(at: int, identity: Any, coarse: str, y: Any = None) -> Message:
    told = {"id": identity, "coarse": coarse, **({} if y is None else {"y": y})}
    return Message(True, 0, at, json.dumps(told).encode())


def test_a_class_after_a_category_refines_it_and_a_restart_changes_nothing(case: Case) -> None:
    """Categories come with late labels, classes later still; the run is stopped between the two."""
    now = an_hour_ago()
    more = LABELS + '[taxonomy]\nletter = ["a", "b"]\n'
    case.send(*(event(now + i, f"k{i}", float(i % 2), "ab"[i % 2]) for i in range(60)))
    case.send(*(event(now + 100 + i, f"e{i}", float(i % 2)) for i in range(10)))
    case.send(*(coarse_label(now + 700 + i, f"e{i}", "letter") for i in range(10)))
    run = case.drain(more, kind="ncm")
    assert run.state.late is not None
    assert len(run.state.late.refinable) == 10
    case.send(*(label(now + 1_300 + i, f"e{i}", "ab"[i % 2]) for i in range(8)))
    case.send(label(now + 1_400, "e3", "b"))  # a second time
    case.send(coarse_label(now + 1_500, "e9", "digit", "b"))  # of another category
    case.send(event(now + 1_600, "last", 1.0, "b"))
    metrics = PipelineMetrics("late")
    run = case.drain(more, metrics, "ncm")
    store = run.state.late
    assert store is not None
    assert (store.counts["matched"], store.counts["refined"]) == (10, 8)
    assert (store.counts["duplicate"], store.counts["refinement_missed"]) == (1, 0)
    assert sorted(store.refinable) == ["e8", "e9"]
    assert metric(metrics, "labels_total", outcome="refined") == 8
    assert metric(metrics, "coarse_accuracy_ratio", model="main") > 0.5
    (dead,) = [r for rs in read_all(case.servers, f"{case.name}.dlq").values() for r in rs]
    assert b"digit" in dead.value or "digit" in str(dead.headers)
    assert b"letter" in dead.value or "letter" in str(dead.headers)
    told = case.predictions()
    assert len(told) == 71
    assert all(p["coarse"] == "letter" for p in told[5:])
    levels = run.state.models["main"].summary()["levels"]
    assert (levels["refined"], levels["missed"]) == (8, 0)


def test_each_label_has_one_outcome(case: Case) -> None:
    """Two known classes first; then one event of each fate, further apart than topics are read."""
    now = an_hour_ago()
    case.send(*(event(now + i, f"k{i}", float(i % 2), "ab"[i % 2]) for i in range(60)))
    case.send(
        event(now + 100, "late", 1.0),
        event(now + 110, "none", 1.0),
        event(now + 120, None, 0.0),
    )
    case.send(label(now + 700, "late", "b"), label(now + 710, "soon", "a"))
    case.send(
        event(now + 1_000, "soon", 0.0),
        event(now + 1_010, "late", 0.0),  # an id that is taken: it never waits
    )
    case.send(label(now + 1_200, "late", "b"), label(now + 1_210, "k3", "a"))  # two second labels
    case.send(label(now + 1_220, "nobody", "a"))
    case.send(event(now + 4_500, "tick", 1.0, "b"))  # time passes: "none" and "nobody" give up
    case.send(label(now + 4_700, "none", "b"))
    metrics = PipelineMetrics("late")
    run = case.drain(telemetry=metrics)
    counts = dict(run.state.late.counts)  # type: ignore[union-attr]
    assert counts == {
        "matched": 2,
        "early": 2,
        "expired": 1,
        "duplicate": 2,
        "unmatched": 2,
        "refused": 0,
        "at_once": 61,
        "never": 2,
        "refined": 0,
        "refinement_missed": 0,
    }
    for outcome in ("matched", "early", "expired", "duplicate", "unmatched", "never"):
        assert metric(metrics, "labels_total", outcome=outcome) == counts[outcome]
    assert metric(metrics, "label_records_total") == 6
    assert metric(metrics, "events_total", outcome="predicted") == 66
    assert metric(metrics, "label_delay_seconds_count") == 2
    assert metric(metrics, "label_delay_seconds_bucket", le="1.0") == 2
    assert metric(metrics, "labelled_share_ratio") == pytest.approx(63 / 66)
    assert metric(metrics, "label_store_events") == 0
    assert metric(metrics, "labelled_events_total", model="main") == 63
    told = {p.get("id"): p for p in case.predictions()}
    assert told["soon"]["truth"] == "a"  # its label was there before it
    assert told["none"]["truth"] is None
    assert run.state.models["main"].n_learned == 63


def test_accuracy_is_of_the_prediction_made_at_the_time(case: Case) -> None:
    """The model knows only "a" when the events come; by the time of their labels it knows "b"."""
    now = an_hour_ago()
    case.send(*(event(now + i, f"k{i}", 0.0, "a") for i in range(80)))
    case.send(*(event(now + 200 + i, f"w{i}", 5.0) for i in range(20)))
    case.drain()
    case.send(*(event(now + 400 + i, f"b{i}", 5.0, "b") for i in range(80)))
    case.send(*(label(now + 900 + i, f"w{i}", "b") for i in range(20)))
    run = case.drain()
    assert [p["label"] for p in case.predictions() if str(p["id"]).startswith("w")] == ["a"] * 20
    totals = run.measures["main"].totals
    assert totals.events == 180
    assert totals.labelled == 180
    wrong = [p for p in case.predictions() if p["truth"] not in (None, p["label"])]
    assert totals.labelled - totals.correct == 20 + len(wrong)


def test_the_store_has_its_bounds(case: Case) -> None:
    now = an_hour_ago()
    more = "[labels]\nmax_events = 50\nmax_early_labels = 20\nmax_bytes = 65536\n"
    case.send(*(event(now + i, f"e{i}", 1.0) for i in range(200)))
    case.send(*(label(now + 300 + i, f"n{i}", "a") for i in range(100)))
    run = case.drain(more)
    store = run.state.late
    assert store is not None
    assert (len(store.waiting), len(store.early), len(store.known)) == (50, 20, 100)
    assert store.counts["expired"] == 150
    assert store.counts["unmatched"] == 80
    big = {f"f{i}": 1.0 for i in range(100)}
    case.send(
        *(
            Message(False, 0, now + 500 + i, json.dumps({"id": f"b{i}", "x": big}).encode())
            for i in range(100)
        )
    )
    run = case.drain(more)
    assert run.state.late is not None
    assert run.state.late.bytes <= 65_536
    assert 0 < len(run.state.late.waiting) < 50


def check_kills(broker: Broker, folder: Path, second: bool, plan: Plan) -> LateVerdict:
    case = Case(broker, folder, second, plan.partitions)
    feed = late_messages(plan.events, plan.partitions, seed=plan.seed)

    def send_more(n: int | None) -> int:
        return send_all(broker.servers, itertools.islice(feed, n), case.events, case.labels)

    tally = run_plan(
        broker, case.name, folder, plan, FOREST + case.text(LABELS), send_more=send_more
    )
    models = {
        "main": ConsistentForestClassifier(n_trees=4, seed=3),
        "other": OnlineForestClassifier(n_trees=2, seed=0),
    }
    judge = LateJudge(models, Matching(wait=3_000, step=60_000))
    verdict = judge.judge(broker.servers, case.name, folder / "run", case.labels)
    print(f"\n{tally}\n{verdict}")
    for outcome in ("matched", "early", "expired", "duplicate", "unmatched", "never"):
        assert verdict.counts[outcome] > plan.events // 500, (outcome, verdict.counts)
    return verdict


@pytest.mark.timeout(900)
@pytest.mark.parametrize("second", [False, True], ids=["same topic", "second topic"])
def test_killed_while_labels_wait(kafka_broker: Broker, tmp_path: Path, second: bool) -> None:
    kills = 2 if second else 1
    plan = Plan(events=1_600, per_failpoint=0, random_kills=kills, broker_kills=0, partitions=2)
    check_kills(kafka_broker, tmp_path, second, plan)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("second", [False, True], ids=["same topic", "second topic"])
def test_the_whole_kill_test_with_late_labels(
    kafka_broker: Broker, tmp_path: Path, second: bool
) -> None:
    plan = Plan(events=30_000, per_failpoint=2, random_kills=20, broker_kills=2, partitions=4)
    check_kills(kafka_broker, tmp_path, second, plan)


def check_levels(broker: Broker, folder: Path, plan: Plan) -> None:
    """A consumer that is killed says and learns what one says that never was.

    One partition: both read the same messages in the same order.
    """
    feed = list(level_messages(plan.events, plan.seed))
    told, models = [], []
    for name in ("undisturbed", "killed"):
        case = Case(broker, _made(folder / name), second=False, lanes=1)
        lives = plan if name == "killed" else replace(plan, per_failpoint=0, random_kills=0)
        left = iter(feed)

        def send_more(n: int | None, case: Case = case, left: Iterator[Message] = left) -> int:
            return send_all(broker.servers, itertools.islice(left, n), case.events)

        tally = run_plan(
            broker, case.name, folder / name, lives, LEVELS + LABELS, send_more=send_more
        )
        print(f"\n{name}: {tally}")
        told.append([_without_place(p) for p in case.predictions()])
        (*_, last) = sorted((case.folder / "snapshots").glob("*.safetensors"))
        models.append(blocks(last.read_bytes()))
        loaded, runtime = snapshot.read(last)
        counts = runtime["labels"]["counts"]
        assert counts["refined"] > plan.events // 10, counts
        assert counts["duplicate"] > plan.events // 200, counts
        refined = {name: model.summary()["levels"]["refined"] for name, model in loaded.items()}
        assert refined["main"] > plan.events // 10, refined
        assert refined["other"] > 0, refined  # those that were withheld from it
    assert len(told[0]) == plan.events
    assert told[0] == told[1]
    for name in ("main", "other"):
        assert models[0][name] == models[1][name], f"the block of model {name} differs"


@pytest.mark.parametrize("n", [800, 6_000])
def test_no_false_pair_is_the_first_of_its_class(n: int) -> None:
    """Else the kill tests would lose events to dead letters, rightly."""
    first: dict[str, str] = {}
    false = 0
    for message in level_messages(n, seed=1):
        told = json.loads(message.value)
        if "y" in told and "coarse" in told:
            known = first.setdefault(told["y"], told["coarse"])
            assert message.label or known == told["coarse"], told
            false += known != told["coarse"]
    assert false > n // 200


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _without_place(prediction: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in prediction.items() if k not in ("topic", "commit", "pipeline", "run")}


@pytest.mark.timeout(900)
def test_killed_with_categories_first_and_classes_later(
    kafka_broker: Broker, tmp_path: Path
) -> None:
    plan = Plan(events=800, per_failpoint=0, random_kills=2, broker_kills=0, partitions=1)
    check_levels(kafka_broker, tmp_path, plan)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_whole_kill_test_with_categories_first(kafka_broker: Broker, tmp_path: Path) -> None:
    plan = Plan(events=6_000, per_failpoint=1, random_kills=8, broker_kills=1, partitions=1)
    check_levels(kafka_broker, tmp_path, plan)
