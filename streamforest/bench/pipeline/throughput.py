"""The cost of the pipeline: its throughput against the sum of its unavoidable parts, on a real broker.

The parts are a bare kafka-python poll, the codec and `advance` on the same batches, each timed by
itself, in the same process, right before the pipeline runs on the same topic. The share is the parts'
time divided by the pipeline's: 1.0 would mean that commits, predictions and the journal cost nothing.
It is taken in each round and the median counts; by the wall clock, and by the CPU time of this process,
which other work on the machine disturbs less.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from streamforest import ConsistentForestClassifier
from streamforest.io.codec.events import decoder
from streamforest.io.kafka.auth.connection import Connection, Security
from streamforest.io.kafka.clients import admin, connect
from streamforest.io.kafka.topics import create_topic
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.runtime.config.load import Pipeline, load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.loop import Run
from streamforest.testing.broker.download import KAFKA

BATCH = 500
FEATURES = 50
TREES = 10
CLASSES = 10
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
GOALS = {"packed": 0.75, "one each": 0.45}

_PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
[topics]
events = "{topic}"
[model]
kind = "consistent"
n_trees = {trees}
[predictions]
batch_messages = {pack}
[run]
batch_size = {batch}
folder = "{folder}"
snapshot_interval_seconds = 86400
[metrics]
port = 0
"""


Times = dict[str, float]
"""Seconds by clock."""


def now() -> Times:
    """The current time of every clock."""
    return {name: clock() for name, clock in CLOCKS.items()}


@dataclass
class Parts:
    """Seconds spent in each part, by each clock."""

    seconds: dict[str, Times] = field(default_factory=dict)
    events: int = 0

    def add(self, name: str, begun: Times, ended: Times) -> None:
        """Add the time between two readings of the clocks to a part."""
        spent = self.seconds.setdefault(name, dict.fromkeys(CLOCKS, 0.0))
        for clock in CLOCKS:
            spent[clock] += ended[clock] - begun[clock]

    def total(self, clock: str) -> float:
        """All parts together."""
        return sum(spent[clock] for spent in self.seconds.values())

    def each(self, clock: str) -> float:
        """Seconds per event."""
        return self.total(clock) / self.events


@dataclass
class Result:
    """One configuration of the pipeline and its parts, round by round."""

    shape: str
    publishing: str
    rounds: list[tuple[Parts, Parts]] = field(default_factory=list)
    """The bare parts and the pipeline, for each round."""

    def share(self, clock: str) -> float:
        """The parts' time divided by the pipeline's, the median of the rounds."""
        return median(bare.each(clock) / whole.each(clock) for bare, whole in self.rounds)

    def spread(self, clock: str) -> tuple[float, float]:
        """The smallest and the largest share of a round."""
        shares = [bare.each(clock) / whole.each(clock) for bare, whole in self.rounds]
        return min(shares), max(shares)


def messages(n: int, vectors: bool, seed: int = 0) -> Iterator[bytes]:
    """Events of 50 features, 10 classes, all labelled."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(CLASSES, size=n)
    centres = draw.normal(0, 1, (CLASSES, FEATURES))
    for label in labels.tolist():
        x = np.round(centres[label] + draw.normal(0, 1, FEATURES), 4).tolist()
        features = x if vectors else {f"feature_{j}": v for j, v in enumerate(x)}
        yield json.dumps({"x": features, "y": label}).encode()


def fill(where: str | Connection, topic: str, n: int, vectors: bool, partitions: int = 1) -> None:
    """A topic of `n` events, 1 ms apart: with several partitions, each next one is in the next partition."""
    client = admin(where)
    create_topic(client, topic, partitions)
    client.close()
    producer = connect(KafkaProducer, where, linger_ms=20, batch_size=256 * 1024)
    start = int(time.time() * 1000) - n
    for number, value in enumerate(messages(n, vectors)):
        producer.send(topic, value, partition=number % partitions, timestamp_ms=start + number)
    producer.flush(timeout=120)
    producer.close()


def bare_parts(where: str | Connection, topic: str, n: int, partitions: int = 1) -> Parts:
    """Poll, decode and advance, each by itself, on batches as polls bring them."""
    consumer = connect(
        KafkaConsumer, where, enable_auto_commit=False, group_id=None, check_crcs=True
    )
    every = [TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(every)
    consumer.seek_to_beginning()
    consumer.poll(timeout_ms=5_000, max_records=1)  # connected, first fetch under way
    consumer.seek_to_beginning()
    decode = decoder()
    model = ConsistentForestClassifier(n_trees=TREES, seed=0)
    parts = Parts()
    while parts.events < n:
        begun = now()
        by_partition = consumer.poll(timeout_ms=1_000, max_records=BATCH)
        polled = now()
        records = [record for several in by_partition.values() for record in several]
        events = [decode(record.value) for record in records]
        decoded = now()
        x: Any = [event.x for event in events]
        if events and isinstance(x[0], list):
            x = np.array(x)
        if events:
            model.advance(x, [event.y for event in events])
        parts.add("poll", begun, polled)
        parts.add("decode", polled, decoded)
        parts.add("advance", decoded, now())
        parts.events += len(events)
    consumer.close(autocommit=False)
    return parts


def whole_pipeline(where: str | Connection, topic: str, n: int, pack: bool) -> Parts:
    """The pipeline itself on the same topic, exactly once, metrics and all, with clocks around its
    steps; from its first poll to the last commit. The snapshot at the end is measured elsewhere.
    """
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "bench.toml"
        text = _PIPELINE.format(
            name=name,
            servers=Connection.to(where).servers,
            topic=topic,
            trees=TREES,
            pack=str(pack).lower(),
            batch=BATCH,
            folder=Path(work) / "run",
        )
        path.write_text(text, encoding="utf-8")
        metrics = PipelineMetrics(name)
        loaded = secured(load_pipeline(path), Connection.to(where).security)
        with opened(loaded, create_topics=True, telemetry=metrics) as run:
            parts = Parts()
            timed_steps(run, parts)
            begun = now()
            while run.events < n:
                run._step(n)
                if run.schedule.commit_due(run.events, run.context.pending) or run.events >= n:
                    run._commit()
            ended = now()
            for clock in CLOCKS:
                ended[clock] -= parts.total(clock)
            parts.add("decode, admit, messages, the loop itself", begun, ended)
            parts.events = run.events
    return parts


def secured(pipeline: Pipeline, security: Security) -> Pipeline:
    """The same pipeline with this connection."""
    assert pipeline.config.kafka is not None
    kafka = replace(pipeline.config.kafka, security=security)
    return replace(pipeline, config=replace(pipeline.config, kafka=kafka))


def timed_steps(run: Run, parts: Parts) -> None:
    """Time the steps of a run from outside, so that the loop carries no clocks for it."""

    def timed(owner: Any, method: str, name: str) -> None:
        call: Callable[..., Any] = getattr(owner, method)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            begun = now()
            try:
                return call(*args, **kwargs)
            finally:
                parts.add(name, begun, now())

        setattr(owner, method, wrapper)

    timed(run.log.source, "poll", "poll")
    timed(run, "_advance_models", "advance, top classes, measures")
    timed(run.committer, "send", "commit: publish, journal, offsets")


def measure(
    where: str | Connection,
    n: int,
    rounds: int = 5,
    partitions: int = 1,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Result]:
    """Both shapes of events, both ways of publishing, in interleaved rounds."""
    results: list[Result] = []
    gc.freeze()  # as `streamforest run` does; for both sides
    for shape in ("named", "array"):
        topic = f"bench-{shape}-{uuid.uuid4().hex[:8]}"
        fill(where, topic, n, vectors=shape == "array", partitions=partitions)
        bare_parts(where, topic, min(n, 2_000), partitions)  # warm
        ways = {publishing: Result(shape, publishing) for publishing in GOALS}
        for number in range(rounds):
            for publishing, result in ways.items():
                progress(f"{shape}, {publishing}: round {number + 1} of {rounds}")
                bare = bare_parts(where, topic, n, partitions)
                whole = whole_pipeline(where, topic, n, pack=publishing == "packed")
                result.rounds.append((bare, whole))
        results += ways.values()
    return results


def versions() -> str:
    """Versions and machine."""
    names = ("kafka-python", "msgspec", "numba", "numpy")
    return ", ".join([f"Apache Kafka {KAFKA}", *(f"{name} {version(name)}" for name in names)])


def report(results: list[Result], clock: str = "wall", partitions: int = 1) -> str:
    """A table of shares by both clocks, judged by one of them, and a table of where the time goes."""
    other = next(name for name in CLOCKS if name != clock)
    lines = [
        versions(),
        f"{TREES} trees, {FEATURES} features, {partitions} partitions, batches of {BATCH}, exactly once, "
        f"{results[0].rounds[0][1].events:,} events, median of {len(results[0].rounds)} rounds",
        f"share of the bare parts' speed (poll + decode + advance), {clock} time:",
    ]
    for r in results:
        bare, whole = (median(1 / pair[i].each(clock) for pair in r.rounds) for i in (0, 1))
        goal, share, (low, high) = GOALS[r.publishing], r.share(clock), r.spread(clock)
        lines.append(
            f"  {r.shape:<6} {r.publishing:<9} {whole:>8,.0f} of {bare:>8,.0f} events/s  "
            f"{share:>5.0%} ({low:.0%} to {high:.0%}; {other} time {r.share(other):.0%})  "
            f"goal {goal:.0%}: {'ok' if share >= goal else 'missed'}"
        )
    lines.append(f"where the time goes, µs an event, {clock} time, medians:")
    for r in results:
        lines.append(f"  {r.shape}, {r.publishing}")
        for i, side in enumerate(("bare", "pipeline")):
            lines += _table(side, [pair[i] for pair in r.rounds], clock)
    return "\n".join(lines)


def _table(side: str, rounds: list[Parts], clock: str) -> Iterator[str]:
    for part in rounds[0].seconds:
        each = median(parts.seconds[part][clock] / parts.events for parts in rounds)
        yield f"    {side:<9} {part:<41} {each * 1e6:>7.1f}"
    whole = median(parts.each(clock) for parts in rounds)
    yield f"    {side:<9} {'all':<41} {whole * 1e6:>7.1f}"
