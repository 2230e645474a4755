"""Several processes of one pipeline, for tests: a group to feed and judge, and ways to let members go."""

from __future__ import annotations

import itertools
import random
import re
import statistics
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from integration.feed import events, send
from integration.late_feed import late_messages, send_all
from integration.late_oracle import LateJudge, Matching
from integration.oracle import committed, judge
from integration.waiting import get, until
from kafka.errors import KafkaError

from streamforest import ConsistentForestClassifier
from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.partition_workers import opened_workers
from streamforest.testing import FAILPOINTS
from streamforest.testing.broker.server import Broker, free_port
from streamforest.testing.forked import ForkedConsumer

LANES = 2
PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
session_timeout_ms = 2000
model_scope = "{scope}"
[model]
kind = "consistent"
n_trees = 3
[run]
batch_size = 50
commit_interval_ms = 100
commit_interval_events = 200
snapshot_interval_events = 400
folder = "{folder}"
[metrics]
port = 0
"""


LABELS = "[labels]\nexpire_after_seconds = 3\nmax_clock_step_seconds = 60\n"


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

    def member(self, *arguments: str, **settings: Any) -> Member:
        """A process of the group."""
        return Member(self, *arguments, **settings)

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
        with self.member("--drain") as last:
            last.expect_exit(0)

    def judge_each(self) -> None:
        """Each partition by itself."""
        counts = []
        for lane in range(LANES):
            model = ConsistentForestClassifier(n_trees=3, seed=0)
            folder = self.folder / "run" / f"partition-{lane}"
            verdict = judge(self.servers, self.name, self.topic, model, folder, lane=lane)
            counts.append(verdict.events)
        assert sum(counts) == self.sent
        self.compare_undisturbed(counts)

    def compare_undisturbed(self, counts: list[int]) -> None:
        """With one topic, the last snapshots are to the byte what a run that nobody disturbed leaves."""
        undisturbed = self.folder / "undisturbed"
        flags = (f"pipeline.name={self.name}-again", f"topics.events={self.topic}")
        pipeline = load_pipeline(self.path, {}, [*flags, f"run.folder={undisturbed}"])
        with opened_workers(pipeline, drain=True, create_topics=True) as workers:
            assert workers.consume() == "finished"
        for lane, count in enumerate(counts):
            name = f"partition-{lane}/snapshots/s-{count:012d}.safetensors"
            ours, theirs = self.folder / "run" / name, undisturbed / name
            assert ours.read_bytes() == theirs.read_bytes()

    def judge(self, folder: str = "run") -> None:
        model = ConsistentForestClassifier(n_trees=3, seed=0)
        verdict = judge(self.servers, self.name, self.topic, model, self.folder / folder)
        assert verdict.events == self.sent


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
        counts = []
        for lane in range(LANES) if self.each else [None]:
            models = {"main": ConsistentForestClassifier(n_trees=3, seed=0)}
            folder = self.folder / "run" / ("" if lane is None else f"partition-{lane}")
            judge = LateJudge(models, Matching(wait=3_000, step=60_000))
            verdict = judge.judge(self.servers, self.name, folder, self.labels, lane)
            counts.append(verdict.events)
        assert sum(counts) == self.sent
        if self.each and self.labels is None:
            self.compare_undisturbed(counts)


def owners(*members: Member) -> list[int]:
    """How many partitions each of them owns, and is at work on."""
    told = [re.fullmatch(r"ready: owner of (\d+) partitions", member.says()) for member in members]
    return [int(one[1]) if one else 0 for one in told]


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
        self.members.append((self.stack.enter_context(self.group.member(**settings)), way))

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


class Churn:
    """Members join, leave cleanly and die, one after the other; after each, all that was sent is done."""

    def __init__(self, group: Group, stack: ExitStack, most: int, seed: int) -> None:
        self.group, self.stack, self.most = group, stack, most
        self.draw = random.Random(seed)
        self.members: list[Member] = []
        self.tally: Counter[str] = Counter()
        self.waits: list[float] = []
        """Seconds from each change until all that was sent is committed."""

    def alive(self) -> list[Member]:
        self.members = [member for member in self.members if not member.gone()]
        return self.members

    def join(self, **settings: Any) -> Member:
        self.members.append(self.stack.enter_context(self.group.member(**settings)))
        self.tally["joined"] += 1
        return self.members[-1]

    def kill(self, member: Member) -> None:
        member.kill()
        self.tally["killed at random"] += 1

    def all(self, several: list[str]) -> None:
        for way in several:
            alive = self.alive()
            if way == "broker":
                self.kill_broker()
            elif way in FAILPOINTS:
                self.die_at(way)
            elif way == "join" and len(alive) < self.most:
                self.join()
            elif len(alive) > 1:
                member = self.draw.choice(alive)
                if way == "kill":
                    self.kill(member)
                else:
                    until(lambda member=member: bool(member.says()))  # type: ignore[misc]
                    assert member.stop() == 0, member.log()[-3000:]
                    self.tally["left"] += 1
            self.settle()

    def kill_broker(self) -> None:
        """With events on their way, at no particular moment."""
        self.feed()
        time.sleep(self.draw.uniform(0, 0.3))
        self.group.broker.kill()
        self.group.broker.start()
        self.tally["broker"] += 1

    def die_at(self, point: str) -> None:
        """A member becomes an owner, others join it, and it goes on until it dies at its point."""
        others = list(self.alive())
        armed = self.join(failpoint=point, passes=self.draw.randrange(1, 3))
        until(lambda: armed.gone() or bool(armed.says()))
        for other in others:
            self.kill(other)
        until(lambda: armed.gone() or armed.owns())
        while len(self.alive()) < self.most:
            self.join()
        until(lambda: armed.gone() or all(member.says() for member in self.alive()))
        while not armed.gone():  # how many events a point takes depends on how they fall
            self.group.feed(200)
        self.tally[point] += 1

    def feed(self) -> None:
        self.group.feed(self.draw.randrange(20, 80))

    def settle(self) -> None:
        """Everything that was sent is committed, by whoever is left."""
        self.feed()
        begun = time.monotonic()
        while self.group.committed() != self.group.sent:
            if not self.alive():
                self.join()
            assert time.monotonic() - begun < 90, [m.log()[-2000:] for m in self.members]
            time.sleep(0.05)
        self.waits.append(time.monotonic() - begun)

    def end(self) -> None:
        for member in self.alive():
            assert member.stop() == 0, member.log()[-3000:]
        self.group.drain()

    def __str__(self) -> str:
        changes = sum(self.tally.values())
        told = ", ".join(f"{way} {n}" for way, n in sorted(self.tally.items()))
        median, most = statistics.median(self.waits), max(self.waits)
        return (
            f"\n{changes} changes of up to {self.most} processes, {self.group.sent:,} messages: all "
            f"committed {median:.1f} s after each (median), {most:.1f} s at most; {told}"
        )


def churned(group: Group, several: list[str], most: int, seed: int) -> Churn:
    with ExitStack() as stack:
        churn = Churn(group, stack, most, seed)
        churn.join()
        churn.all(several)
        churn.end()
    group.judged()
    return churn


def in_every_way(seed: int) -> list[str]:
    several = [*FAILPOINTS, *["kill", "join"] * 6, *["broker"] * 3]
    return ways(several, randoms=0, stops=3, seed=seed)
