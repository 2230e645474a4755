"""Several processes of one pipeline: one owns the partitions, the others follow and take over.

Members that die by the dozen are in `test_groups_killed.py`.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from integration.groups import Group, Member, kill_in_turn, owners
from integration.waiting import get, until

from streamforest.cli import root
from streamforest.errors import ConfigError
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.testing.broker.server import Broker


@pytest.fixture
def group(kafka_broker: Broker, tmp_path: Path) -> Group:
    return Group(kafka_broker, tmp_path)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_standby_follows_and_takes_over_with_nothing_to_replay(
    group: Group, stack: ExitStack
) -> None:
    """Two machines that share nothing but the broker: each has a folder of its own."""
    owner = stack.enter_context(Member(group))
    until(owner.owns)
    standby = stack.enter_context(Member(group, "--set", f"run.folder={group.folder / 'own'}"))
    until(standby.stands_by)
    until(lambda: owner.says() == "ready: owner of 2 partitions")  # after the rebalance
    folders = [group.folder / name / "snapshots" for name in ("run", "own")]
    for n in (400, 800, 1_200):  # one after the other: a writer that is busy leaves one out
        group.feed(400)
        name = f"s-{n:012d}.safetensors"
        until(lambda name=name: all((folder / name).exists() for folder in folders))  # type: ignore[misc]
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    group.feed(50)
    until(lambda: group.committed() == 1_250)
    until(lambda: standby.says() == "ready: standby at event 1250, 0 behind")
    metrics = get(f"http://127.0.0.1:{standby.port}/metrics")[1]
    assert 'streamforest_role{role="standby"} 1.0' in metrics
    assert "streamforest_standby_behind_events 0.0" in metrics
    owner.kill()
    until(standby.owns)
    (told,) = re.findall(r"at event (\d+) again: followed in memory, (\d+) events", standby.log())
    assert told == ("1250", "0")
    group.feed(150)
    until(lambda: group.committed() == 1_400)
    assert standby.stop() == 0
    group.judge("own")


def test_a_zombie_publishes_nothing_and_joins_again(group: Group, stack: ExitStack) -> None:
    first = stack.enter_context(Member(group))
    until(first.owns)
    second = stack.enter_context(Member(group))
    until(second.stands_by)
    group.feed(300)
    until(lambda: group.committed() > 0)
    os.kill(first.pid, signal.SIGSTOP)  # with a commit pending or not, wherever it is
    until(second.owns)
    group.feed(300)
    until(lambda: group.committed() == 600)
    os.kill(first.pid, signal.SIGCONT)
    until(first.stands_by)
    group.feed(300)
    until(lambda: group.committed() == 900)
    assert second.kill() == -signal.SIGKILL
    until(first.owns)  # it came back by itself, and is of use
    group.feed(100)
    until(lambda: group.committed() == 1_000)
    assert first.stop() == 0
    group.judge()


@pytest.fixture
def each(kafka_broker: Broker, tmp_path: Path) -> Group:
    return Group(kafka_broker, tmp_path, "partition")


def test_partitions_move_with_their_snapshots(each: Group, stack: ExitStack) -> None:
    first = stack.enter_context(Member(each))
    until(lambda: owners(first) == [2])
    each.feed(900)
    until(lambda: each.committed() > 200)
    second = stack.enter_context(Member(each))
    until(lambda: owners(first, second) == [1, 1])
    each.feed(300)
    until(lambda: each.committed() == 1_200)
    each.feed(300)
    first.kill()
    until(lambda: owners(second) == [2])
    until(lambda: each.committed() == 1_500)
    assert second.stop() == 0, second.log()[-3000:]
    each.judge_each()
    listed = CliRunner().invoke(root, ["snapshots", "list", str(each.path), "--partition", "1"])
    assert "s-000000000750" in listed.stdout
    assert "named" in listed.stdout
    assert "after event 750" in listed.stdout
    refused = CliRunner().invoke(root, ["snapshots", "list", str(each.path)])
    assert refused.exit_code == 2
    assert "--partition: missing; this pipeline has a forest for each partition" in refused.stderr


def test_a_zombie_of_a_partition_publishes_nothing(each: Group, stack: ExitStack) -> None:
    first = stack.enter_context(Member(each))
    second = stack.enter_context(Member(each))
    until(lambda: owners(first, second) == [1, 1])
    each.feed(300)
    until(lambda: each.committed() > 0)
    os.kill(first.pid, signal.SIGSTOP)
    until(lambda: owners(second) == [2])
    each.feed(300)
    until(lambda: each.committed() == 600)
    os.kill(first.pid, signal.SIGCONT)
    until(lambda: owners(first, second) == [1, 1])  # it came back by itself
    each.feed(300)
    until(lambda: each.committed() == 900)
    assert [first.stop(), second.stop()] == [0, 0]
    each.drain()
    each.judge_each()


def test_a_static_member_keeps_its_place_over_a_restart(group: Group, stack: ExitStack) -> None:
    """The session is longer than the test may take: nobody waits for it to end."""
    flags = ("--set", "kafka.group_instance_id=one", "--set", "kafka.session_timeout_ms=300000")
    first = stack.enter_context(Member(group, *flags))
    until(first.owns)
    group.feed(100)
    until(lambda: group.committed() == 100)
    first.kill()
    again = stack.enter_context(Member(group, *flags))
    until(again.owns)
    group.feed(100)
    until(lambda: group.committed() == 200)
    assert again.stop() == 0
    third = stack.enter_context(Member(group, "--drain", *flags))
    third.expect_exit(0)
    group.judge()


def test_two_pipelines_do_not_share_a_folder(group: Group) -> None:
    group.feed(20)  # before anything was read, the folder could still become another's
    with opened(load_pipeline(group.path), drain=True) as run:
        assert run.consume() == "finished"
    other = load_pipeline(group.path, {}, ["pipeline.name=other"])
    refused = pytest.raises(ConfigError, match=r"belongs to another pipeline \(pipeline 'group-")
    with refused, opened(other):
        pass


@pytest.mark.timeout(300)
def test_owners_are_killed_in_turn(group: Group) -> None:
    several = ["before-commit", "random"]
    waits = kill_in_turn(group, several, size=2)
    group.drain()
    group.judge()
    assert waits
