"""Consumers are killed while the brokers of their cluster are killed, rolled and hung, one at a time: every
event has exactly one answer, and the model is the one that the journal describes.

All of it, with the tallies: python -m pytest -m slow -n0 -s tests/integration/test_kill_cluster.py
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from integration.groups import Group, churned, kill_in_turn, ways
from integration.kills import Plan
from integration.test_kill import check_forest

from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing import FAILPOINTS
from streamforest.testing.broker.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
_WAYS = ("killed", "rolled", "hung")
_HUNG_SECONDS = 14.0


@contextmanager
def troubled(cluster: Cluster, seed: int) -> Iterator[Counter[str]]:
    """One node after the other is killed, rolled or made to hang, and the cluster healed, all the time."""
    ended, tally, draw = threading.Event(), Counter[str](), random.Random(seed)

    def work() -> None:
        while not ended.wait(3.0):
            node, way = draw.choice(cluster.nodes), _WAYS[tally.total() % len(_WAYS)]
            if way == "killed":
                node.kill()
                ended.wait(draw.uniform(0.0, 5.0))
            elif way == "rolled":
                node.stop()
            else:
                node.freeze()
                ended.wait(_HUNG_SECONDS)
            cluster.heal()
            tally[way] += 1

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield tally
    finally:
        ended.set()
        thread.join(120)
        cluster.heal()
        print(f"\nnodes: {dict(tally)}")


def test_one_process(kafka_cluster: Cluster, tmp_path: Path) -> None:
    name = f"kill-{uuid.uuid4().hex[:8]}"
    ensure_topics(kafka_cluster.servers, Topics.of(name), create=True, partitions=4)
    plan = Plan(events=12_000, per_failpoint=1, random_kills=6, broker_kills=0)
    broker: Any = kafka_cluster
    with troubled(kafka_cluster, seed=1) as tally:
        check_forest(broker, name, tmp_path, plan)
    assert tally.total() >= 3


def test_owner_and_standby(kafka_cluster: Cluster, tmp_path: Path) -> None:
    broker: Any = kafka_cluster
    group = Group(broker, tmp_path)
    with troubled(kafka_cluster, seed=2) as tally:
        several = ways(list(FAILPOINTS), randoms=4, stops=2, seed=2)
        waits = kill_in_turn(group, several, 2)
        group.drain()
    group.judge()
    print(
        f"\n{len(several)} owners, {group.sent:,} events: fail-over in {max(waits):.1f} s at most"
    )
    assert tally.total() >= 3


def test_a_group_with_a_forest_for_each_partition(kafka_cluster: Cluster, tmp_path: Path) -> None:
    broker: Any = kafka_cluster
    several = ways([*FAILPOINTS[::2], *["kill", "join"] * 3], randoms=0, stops=1, seed=3)
    with troubled(kafka_cluster, seed=3) as tally:
        print(churned(Group(broker, tmp_path, "partition"), several, 2, seed=3))
    assert tally.total() >= 3
