"""Whatever is killed and whenever: every event has exactly one answer, and the model is the one that
the journal describes, to the last bit.

The whole of it, with its tally: python -m pytest -m slow tests/integration/test_kill.py -s
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from integration.kills import FACTORY, FOREST, RIVER, Plan, run_plan
from integration.oracle import judge
from river import preprocessing

from streamforest import ConsistentForestClassifier, OnlineForestClassifier
from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing.broker.server import Broker


@pytest.fixture
def name(kafka_broker: Broker) -> str:
    """A pipeline of its own, with its topics."""
    name = f"kill-{uuid.uuid4().hex[:8]}"
    ensure_topics(kafka_broker.servers, Topics.of(name), create=True, partitions=4)
    return name


def check_forest(broker: Broker, name: str, folder: Path, plan: Plan) -> None:
    tally = run_plan(broker, name, folder, plan, FOREST)
    verdict = judge(
        broker.servers,
        name,
        f"{name}.events",
        ConsistentForestClassifier(n_trees=4, seed=3),
        folder / "run",
        {"other": OnlineForestClassifier(n_trees=2, seed=0)},
    )
    print(f"\n{tally}\n{verdict}")
    assert verdict.events == tally.sent >= plan.events
    assert verdict.dead > plan.events // 100
    assert {"undecodable", "invalid", "version", "label"} <= set(verdict.reasons)


def check_river(broker: Broker, name: str, folder: Path, plan: Plan) -> None:
    (folder / "integration_factory.py").write_text(FACTORY, encoding="utf-8")
    tally = run_plan(broker, name, folder, plan, RIVER)
    model = preprocessing.StandardScaler() | ConsistentForestClassifier(n_trees=3, seed=5)
    verdict = judge(broker.servers, name, f"{name}.events", model, folder / "run")
    print(f"\n{tally}\n{verdict}")
    assert verdict.events == tally.sent >= plan.events


@pytest.mark.timeout(900)
def test_killed_at_every_failpoint(kafka_broker: Broker, name: str, tmp_path: Path) -> None:
    plan = Plan(events=6_000, per_failpoint=1, random_kills=2, broker_kills=1)
    check_forest(kafka_broker, name, tmp_path, plan)


def test_a_river_pipeline_is_recovered_exactly(
    kafka_broker: Broker, name: str, tmp_path: Path
) -> None:
    plan = Plan(events=3_000, per_failpoint=0, random_kills=3, broker_kills=0)
    check_river(kafka_broker, name, tmp_path, plan)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_whole_kill_test(kafka_broker: Broker, name: str, tmp_path: Path) -> None:
    plan = Plan(events=50_000, per_failpoint=2, random_kills=30, broker_kills=3)
    check_forest(kafka_broker, name, tmp_path, plan)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_whole_kill_test_of_a_river_pipeline(
    kafka_broker: Broker, name: str, tmp_path: Path
) -> None:
    plan = Plan(events=50_000, per_failpoint=2, random_kills=30, broker_kills=3)
    check_river(kafka_broker, name, tmp_path, plan)
