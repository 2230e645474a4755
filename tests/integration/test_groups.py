"""Several processes of one pipeline: one owns the partitions, the others follow and take over.

All of it, with the tallies: python -m pytest -m slow tests/integration/test_groups.py -s
"""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from integration.feed import events, send
from integration.late_feed import late_messages, send_all
from integration.late_oracle import LateJudge, Matching
from integration.oracle import committed, judge
from integration.waiting import get, until
from kafka.errors import KafkaError

from streamforest import ConsistentForestClassifier
from streamforest.cli import root
from streamforest.errors import ConfigError
from streamforest.runtime.config import load_pipeline
from streamforest.runtime.fleet import opened_fleet
from streamforest.runtime.opening import opened
from streamforest.stream.broker import Broker
from streamforest.stream.kafka_topics import Topics, ensure_topics
from streamforest.testing import FAILPOINTS
from streamforest.testing.forked import ForkedConsumer
from streamforest.testing.plugin import free_port

LANES = 2
PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
servers = "{servers}"
session_ms = 2000
scope = "{scope}"
[model]
n_trees = 3
[run]
batch = 50
commit_ms = 100
commit_events = 200
snapshot_every = 400
folder = "{folder}"
[metrics]
port = 0
"""


LABELS = "[labels]\nwait_seconds = 3\nmax_clock_step_seconds = 60\nalign_ms = 200\n"


class Member(ForkedConsumer):
    """A process of the group, with an address of its own."""

    def __init__(self, group: Group, *arguments: str, **settings: Any) -> None:
        self.port = free_port()
        flags = ("--set", f"metrics.port={self.port}", *arguments)
        super().__init__(group.path, *flags, folder=group.folder, **settings)

    def says(self) -> str:
        """What it says it is."""
        return get(f"http://127.0.0.1:{self.port}/readyz")[1].strip()

    def owns(self) -> bool:
        return self.says().startswith("ready: owner")

    def stands_by(self, behind: int = 0) -> bool:
        told = f"ready: standby at event \\d+, {behind} behind"
        return re.fullmatch(told, self.says()) is not None

    def gone(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None


class Group:
    """A pipeline, its topics, and what was sent to them."""

    more = ""
    labels: str | None = None

    def __init__(self, broker: Broker, folder: Path, scope: str = "topic") -> None:
        self.broker, self.servers, self.folder = broker, broker.servers, folder
        self.each = scope == "partition"
        self.name = f"group-{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.name}.events"
        topics = Topics.of(self.name, labels=self.labels)
        ensure_topics(broker.servers, topics, create=True, partitions=LANES, each=self.each)
        self.path = folder / "p.toml"
        text = PIPELINE.format(
            name=self.name, servers=broker.servers, folder=folder / "run", scope=scope
        )
        self.path.write_text(text + self.more, encoding="utf-8")
        self.sent = 0

    def feed(self, n: int) -> None:
        self.sent += send(
            self.servers, self.topic, events(n, seed=self.sent), LANES, first=self.sent
        )

    def committed(self) -> int:
        """Events that are committed; 0 while some partition has no commit."""
        topics = [self.topic] if self.labels is None else [self.topic, self.labels]
        try:
            return sum(
                at
                for topic in topics
                for at, _ in committed(self.servers, self.name, topic).values()
            )
        except (AttributeError, KafkaError):  # none yet, or the broker is away
            return 0

    def judged(self) -> None:
        """By whichever way the forests are spread."""
        self.judge_each() if self.each else self.judge()

    def drain(self) -> None:
        with Member(self, "--drain") as last:
            assert last.wait_or_tell() == 0, last.log()[-3000:]

    def judge_each(self) -> None:
        """Each partition by itself; and to the byte what a run that nobody disturbed leaves behind."""
        undisturbed = self.folder / "undisturbed"
        flags = (f"pipeline.name={self.name}-again", f"topics.events={self.topic}")
        pipeline = load_pipeline(self.path, {}, [*flags, f"run.folder={undisturbed}"])
        with opened_fleet(pipeline, drain=True, create_topics=True) as fleet:
            assert fleet.consume() == "finished"
        events = 0
        for lane in range(LANES):
            model = ConsistentForestClassifier(n_trees=3, seed=0)
            folder = self.folder / "run" / f"partition-{lane}"
            verdict = judge(self.servers, self.name, self.topic, model, folder, lane=lane)
            name = f"partition-{lane}/snapshots/s-{verdict.events:012d}.safetensors"
            ours, theirs = self.folder / "run" / name, undisturbed / name
            assert ours.read_bytes() == theirs.read_bytes()
            events += verdict.events
        assert events == self.sent

    def judge(self, folder: str = "run") -> None:
        model = ConsistentForestClassifier(n_trees=3, seed=0)
        verdict = judge(self.servers, self.name, self.topic, model, self.folder / folder)
        assert verdict.events == self.sent


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


def owners(*members: Member) -> list[int]:
    """How many partitions each of them owns, and is at work on."""
    told = [re.fullmatch(r"ready: owner of (\d+) partitions", member.says()) for member in members]
    return [int(one[1]) if one else 0 for one in told]


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
    assert "--partition: which one?" in refused.stderr


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
    flags = ("--set", "kafka.instance=one", "--set", "kafka.session_ms=300000")
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
    assert third.wait_or_tell() == 0
    group.judge()


def test_two_pipelines_do_not_share_a_folder(group: Group) -> None:
    with opened(load_pipeline(group.path)) as run:
        run.consume(stop=lambda: True)
    other = load_pipeline(group.path, {}, ["pipeline.name=other"])
    refused = pytest.raises(ConfigError, match=r"belongs to another pipeline \(pipeline 'group-")
    with refused, opened(other):
        pass


def ways(names: list[str], randoms: int, stops: int, seed: int) -> list[str]:
    """Ways to go, shuffled."""
    several = [*names, *["random"] * randoms, *["stop"] * stops]
    random.Random(seed).shuffle(several)
    return several


class Turns:
    """Owners of a group go one after the other, each in its own way."""

    def __init__(self, group: Group, size: int, stack: ExitStack, seed: int = 3) -> None:
        self.group, self.size, self.stack = group, size, stack
        self.draw = random.Random(seed)
        self.members: list[tuple[Member, str]] = []
        self.waits: list[float] = []
        """Seconds from each owner's end to the next one at work."""

    def all(self, several: list[str]) -> list[float]:
        left = list(several)
        while left or self.members:
            while left and len(self.members) < self.size:
                self.start(left.pop(0))
            self.turn()
        return self.waits

    def start(self, way: str) -> None:
        settings = {} if way in ("random", "stop") else {"failpoint": way, "passes": 2}
        self.members.append((self.stack.enter_context(Member(self.group, **settings)), way))

    def owner(self) -> tuple[Member, str] | None:
        return next((one for one in self.members if one[0].owns()), None)

    def turn(self) -> None:
        """The owner goes; where others are, the next one is waited for."""
        until(self.at_rest)
        found = self.owner()
        if found is None:
            return  # it has died meanwhile, at its point
        owner, way = found
        self.group.feed(self.draw.randrange(50, 250))
        if way == "random":
            time.sleep(self.draw.uniform(0, 0.3))
            owner.kill()
        elif way == "stop":
            assert owner.stop() == 0
        else:
            while not owner.gone():  # how many events a point takes depends on how they fall
                self.group.feed(60)
        begun = time.monotonic()
        self.members.remove(found)
        until(lambda: self.owner() is not None or all(m.gone() for m, _ in self.members))
        if self.owner() is not None:
            self.waits.append(time.monotonic() - begun)

    def at_rest(self) -> bool:
        """Whether one is the owner and all others stand by, each having followed to where it is."""
        self.members = [(member, way) for member, way in self.members if not member.gone()]
        stand_by = sum(member.stands_by() for member, _ in self.members)
        return not self.members or (self.owner() is not None and stand_by == len(self.members) - 1)


def kill_in_turn(group: Group, several: list[str], size: int) -> list[float]:
    with ExitStack() as stack:
        return Turns(group, size, stack).all(several)


@pytest.mark.timeout(300)
def test_owners_are_killed_in_turn(group: Group) -> None:
    several = ["before-commit", "random"]
    waits = kill_in_turn(group, several, size=2)
    group.drain()
    group.judge()
    assert waits


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [2, 3])
def test_owners_are_killed_in_turn_in_every_way(group: Group, size: int) -> None:
    several = ways(list(FAILPOINTS), randoms=15, stops=5, seed=size)
    waits = kill_in_turn(group, several, size)
    group.drain()
    group.judge()
    print(
        f"\n{len(several)} owners of {size} processes, {group.sent:,} events: fail-over in "
        f"{statistics.median(waits):.1f} s (median), {max(waits):.1f} s at most; session 2 s"
    )


class Churn:
    """Members join, leave cleanly and die, one after the other; after each, all that was sent is done."""

    def __init__(self, group: Group, stack: ExitStack, seed: int) -> None:
        self.group, self.stack = group, stack
        self.draw = random.Random(seed)
        self.members: list[Member] = []
        self.changes = 0
        self.waits: list[float] = []

    def alive(self) -> list[Member]:
        self.members = [member for member in self.members if not member.gone()]
        return self.members

    def join(self, **settings: Any) -> None:
        self.members.append(self.stack.enter_context(Member(self.group, **settings)))
        self.changes += 1

    def all(self, several: list[str], most: int) -> None:
        for way in several:
            alive = self.alive()
            if way == "broker":
                self.group.broker.kill()
                self.group.broker.start()
            elif way in FAILPOINTS:
                if len(alive) == most:
                    alive.pop(self.draw.randrange(most)).kill()
                    self.changes += 1
                self.join(failpoint=way, passes=self.draw.randrange(1, 4))
            elif way == "join" and len(alive) < most:
                self.join()
            elif len(alive) > 1:
                member = alive.pop(self.draw.randrange(len(alive)))
                if way == "kill":
                    member.kill()
                else:  # once it listens; an armed one may die of it
                    until(lambda member=member: member.gone() or bool(member.says()))  # type: ignore[misc]
                    assert member.stop() in (0, -signal.SIGKILL), member.log()[-3000:]
                self.changes += 1
            self.settle()

    def settle(self) -> None:
        """Everything that was sent is committed, by whoever is left."""
        self.group.feed(self.draw.randrange(20, 80))
        begun = time.monotonic()
        while self.group.committed() != self.group.sent:
            if not self.alive():
                self.join()
            assert time.monotonic() - begun < 90, [m.log()[-2000:] for m in self.members]
            time.sleep(0.05)
        self.waits.append(time.monotonic() - begun)

    def end(self) -> None:
        for member in self.alive():
            member.stop()  # an armed one may die of it
        self.group.drain()


def churned(group: Group, several: list[str], most: int, seed: int) -> str:
    with ExitStack() as stack:
        churn = Churn(group, stack, seed)
        churn.join()
        churn.all(several, most)
        churn.end()
    group.judged()
    return (
        f"\n{churn.changes} changes of up to {most} processes, {group.sent:,} events: all committed "
        f"{statistics.median(churn.waits):.1f} s after each (median), {max(churn.waits):.1f} s at most"
    )


def in_every_way(seed: int) -> list[str]:
    several = [*FAILPOINTS, *["kill", "join"] * 15, *["broker"] * 3]
    return ways(several, randoms=0, stops=5, seed=seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("scope", ["topic", "partition"])
def test_members_die_in_every_way(
    kafka_broker: Broker, tmp_path: Path, scope: str, size: int
) -> None:
    print(churned(Group(kafka_broker, tmp_path, scope), in_every_way(size), size, seed=size))


class LateGroup(Group):
    """The same with labels that come by themselves, among the events or on a topic of their own."""

    def __init__(self, broker: Broker, folder: Path, scope: str, second: bool) -> None:
        self.more = LABELS
        if second:
            self.labels = f"labels-{uuid.uuid4().hex[:8]}"
            self.more += f'[topics]\nlabels = "{self.labels}"\n'
        super().__init__(broker, folder, scope)
        self.messages = late_messages(1_000_000, LANES)

    def feed(self, n: int) -> None:
        part = itertools.islice(self.messages, n)
        self.sent += send_all(self.servers, part, self.topic, self.labels)

    def judged(self) -> None:
        events = 0
        for lane in range(LANES) if self.each else [None]:
            models = {"main": ConsistentForestClassifier(n_trees=3, seed=0)}
            folder = self.folder / "run" / ("" if lane is None else f"partition-{lane}")
            judge = LateJudge(models, Matching(wait=3_000, step=60_000))
            events += judge.judge(self.servers, self.name, folder, self.labels, lane).events
        assert events == self.sent


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("second", [False, True], ids=["same topic", "second topic"])
@pytest.mark.parametrize("scope", ["topic", "partition"])
def test_members_die_while_labels_wait(
    kafka_broker: Broker, tmp_path: Path, scope: str, second: bool
) -> None:
    group = LateGroup(kafka_broker, tmp_path, scope, second)
    print(churned(group, in_every_way(7)[:30], most=3, seed=7))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scope", ["topic", "partition"])
def test_100_rebalances_in_a_row(kafka_broker: Broker, tmp_path: Path, scope: str) -> None:
    group = Group(kafka_broker, tmp_path, scope)
    several = random.Random(9).choices(["join", "join", "stop", "kill"], k=140)
    told = churned(group, several, most=3, seed=4)
    print(told)
    assert int(told.split()[0]) >= 100
