"""Members of a group die in turn, at random and at every failpoint, and the broker with them.

All of it, with the tallies: python -m pytest -m slow -n0 -s tests/integration/test_groups_killed.py
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest
from integration.groups import Group, LateGroup, churned, in_every_way, kill_in_turn, ways

from streamforest.testing import FAILPOINTS
from streamforest.testing.broker.server import Broker


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [2, 3])
def test_owners_are_killed_in_turn_in_every_way(
    kafka_broker: Broker, tmp_path: Path, size: int
) -> None:
    group = Group(kafka_broker, tmp_path)
    several = ways(list(FAILPOINTS), randoms=15, stops=5, seed=size)
    waits = kill_in_turn(group, several, size)
    group.drain()
    group.judge()
    print(
        f"\n{len(several)} owners of {size} processes, {group.sent:,} events: fail-over in "
        f"{statistics.median(waits):.1f} s (median), {max(waits):.1f} s at most; session 2 s"
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("scope", ["topic", "partition"])
def test_members_die_in_every_way(
    kafka_broker: Broker, tmp_path: Path, scope: str, size: int
) -> None:
    print(churned(Group(kafka_broker, tmp_path, scope), in_every_way(size), size, seed=size))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("second", [False, True], ids=["same topic", "second topic"])
@pytest.mark.parametrize("scope", ["topic", "partition"])
def test_members_die_while_labels_wait(
    kafka_broker: Broker, tmp_path: Path, scope: str, second: bool, size: int
) -> None:
    group = LateGroup(kafka_broker, tmp_path, scope, second)
    print(churned(group, in_every_way(size + 4), size, seed=size))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scope", ["topic", "partition"])
def test_100_rebalances_in_a_row(kafka_broker: Broker, tmp_path: Path, scope: str) -> None:
    group = Group(kafka_broker, tmp_path, scope)
    several = random.Random(9).choices(["join", "join", "stop", "kill"], k=140)
    churn = churned(group, several, most=3, seed=4)
    print(churn)
    assert sum(churn.tally.values()) >= 100
