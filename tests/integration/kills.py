"""The kill test's driver: one life of a consumer after the other, each ended in its own way."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from integration.feed import events, send

from streamforest.testing import FAILPOINTS, Broker
from streamforest.testing.forked import ForkedConsumer

FOREST = (
    '[model]\nkind = "consistent"\nn_trees = 4\nseed = 3\n'
    '[[shadow]]\nname = "other"\nkind = "online"\nn_trees = 2\n'
)
LEVELS = (
    '[model]\nkind = "ncm"\nn_trees = 3\nseed = 3\n'
    '[[shadow]]\nname = "other"\nkind = "stream"\nn_trees = 2\nseed = 3\n'
)
RIVER = '[model]\nfactory = "integration_factory:scaled"\n'
FACTORY = """
from river import preprocessing
from streamforest import ConsistentForestClassifier


def scaled():
    return preprocessing.StandardScaler() | ConsistentForestClassifier(n_trees=3, seed=5)
"""
PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
session_timeout_ms = 2000
delivery = "{delivery}"
{model}
[run]
batch_size = 100
commit_interval_ms = 150
commit_interval_events = 300
snapshot_interval_events = 500
folder = "{folder}"
[metrics]
port = 0
"""


@dataclass
class Plan:
    """How often each way to die is tried, over how many events."""

    events: int
    per_failpoint: int
    random_kills: int
    broker_kills: int
    partitions: int = 4
    seed: int = 1

    def lives(self) -> list[str]:
        """All ways, shuffled."""
        ways = [name for name in FAILPOINTS for _ in range(self.per_failpoint)]
        ways += ["random"] * self.random_kills + ["broker"] * self.broker_kills
        random.Random(self.seed).shuffle(ways)
        return ways


@dataclass
class Tally:
    """What happened."""

    sent: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        told = ", ".join(f"{way} {n}" for way, n in sorted(self.deaths.items()))
        return f"{self.sent:,} events, {sum(self.deaths.values())} deaths in {self.seconds:.0f} s: {told}"


def run_plan(
    broker: Broker,
    name: str,
    folder: Path,
    plan: Plan,
    model: str,
    strings: bool = True,
    delivery: str = "exactly-once",
    send_more: Callable[[int | None], int] | None = None,
) -> Tally:
    """Live and die as planned, then drain what is left in a last, undisturbed life.

    `send_more` sends the next so many messages, or all that are left, where they are not the usual
    ones.
    """
    begun, tally = time.monotonic(), Tally()
    path = folder / "pipeline.toml"
    path.write_text(
        PIPELINE.format(
            name=name,
            servers=broker.servers,
            model=model,
            folder=folder / "run",
            delivery=delivery,
        ),
        encoding="utf-8",
    )
    topic = f"{name}.events"
    lives = plan.lives()
    # as many as the points want, on however slow a machine
    seeds = itertools.count(plan.seed)
    feed = itertools.chain.from_iterable(
        events(plan.events, seed=s, strings=strings) for s in seeds
    )
    share = plan.events // (2 * max(1, len(lives)))
    draw = random.Random(plan.seed)
    with ForkedConsumer(path, folder=folder) as first:
        first.until_ready(timeout=400)  # the server compiles the kernels, if nobody has yet
        assert first.stop() == 0

    def more(n: int | None) -> None:
        if send_more is not None:
            tally.sent += send_more(n)
            return
        chunk = itertools.islice(feed, n)
        tally.sent += send(broker.servers, topic, chunk, plan.partitions, tally.sent)

    for way in lives:
        more(share)
        _live(broker, path, folder, way, draw, more)
        tally.deaths[way] += 1
    more(max(0, plan.events - tally.sent) if send_more is None else None)
    with ForkedConsumer(path, "--drain", folder=folder) as last:
        code = last.wait_or_fail(300)
        assert code == 0, last.log()[-3000:]
    tally.seconds = time.monotonic() - begun
    return tally


def _live(
    broker: Broker,
    path: Path,
    folder: Path,
    way: str,
    draw: random.Random,
    more: Callable[[int], None],
) -> None:
    if way == "random":
        with ForkedConsumer(path, folder=folder) as consumer:
            if draw.random() < 0.8:
                consumer.until_ready()
            time.sleep(draw.uniform(0.0, 0.8))
            consumer.kill()
    elif way == "broker":
        with ForkedConsumer(path, folder=folder) as consumer:
            consumer.until_ready()
            time.sleep(draw.uniform(0.0, 0.5))
            broker.kill()
            broker.start()
            assert consumer.stop() == 0, consumer.log()[-3000:]
    else:
        passes = draw.randrange(1, 3)
        with ForkedConsumer(path, folder=folder, failpoint=way, passes=passes) as consumer:
            # how many events a point takes depends on how they fall into polls and commits
            for _ in range(60):
                with contextlib.suppress(TimeoutError):
                    consumer.wait(1.0)
                    break
                more(100)
            code = consumer.wait_or_fail(30)
            assert code == -9, f"{way}: ended with {code}\n{consumer.log()[-3000:]}"
