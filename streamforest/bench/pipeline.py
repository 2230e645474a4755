"""What the pipeline costs: its speed beside the sum of its unavoidable parts, on a real broker.

The parts are a bare kafka-python poll, the codec and `advance` on the same batches, each timed by
itself, in the same process, right before the pipeline runs on the same topic. The share is the parts'
time divided by the pipeline's: 1.0 would mean that commits, predictions and the journal cost nothing.
"""

from __future__ import annotations

import copy
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from streamforest import ConsistentForestClassifier
from streamforest.runtime.config import load_pipeline
from streamforest.runtime.loop import Run
from streamforest.runtime.opening import opened
from streamforest.runtime.snapshots import SnapshotFolder
from streamforest.stream.events import decoder
from streamforest.stream.kafka_topics import admin, create_topic

BATCH = 500
FEATURES = 50
TREES = 10
CLASSES = 10
Clock = Callable[[], float]
GOALS = {"packed": 0.75, "one each": 0.45}

_PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
servers = "{servers}"
[topics]
events = "{topic}"
[model]
n_trees = {trees}
[predictions]
pack = {pack}
[run]
batch = {batch}
folder = "{folder}"
snapshot_seconds = 86400
[metrics]
port = 0
"""


@dataclass
class Parts:
    """Seconds spent in each part."""

    seconds: dict[str, float] = field(default_factory=dict)
    events: int = 0

    def add(self, name: str, seconds: float) -> None:
        """Count time for a part."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @property
    def total(self) -> float:
        """All parts together."""
        return sum(self.seconds.values())


@dataclass
class Result:
    """One way of running the pipeline, beside its parts."""

    shape: str
    publishing: str
    parts: Parts
    pipeline: Parts

    @property
    def share(self) -> float:
        """The parts' time divided by the pipeline's."""
        return (self.parts.total / self.parts.events) / (self.pipeline.total / self.pipeline.events)


def messages(n: int, vectors: bool, seed: int = 0) -> Iterator[bytes]:
    """Events of 50 features, 10 classes, all labelled."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(CLASSES, size=n)
    centres = draw.normal(0, 1, (CLASSES, FEATURES))
    for label in labels.tolist():
        x = np.round(centres[label] + draw.normal(0, 1, FEATURES), 4).tolist()
        features = x if vectors else {f"feature_{j}": v for j, v in enumerate(x)}
        yield json.dumps({"x": features, "y": label}).encode()


def fill(servers: str, topic: str, n: int, vectors: bool) -> None:
    """A topic with one partition and `n` events."""
    client = admin(servers)
    create_topic(client, topic, 1)
    client.close()
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=20, batch_size=256 * 1024)
    for value in messages(n, vectors):
        producer.send(topic, value, partition=0)
    producer.flush(timeout=120)
    producer.close()


def bare_parts(servers: str, topic: str, n: int, clock: Clock = time.perf_counter) -> Parts:
    """Poll, decode and advance, each by itself, on the same batches."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers, enable_auto_commit=False, group_id=None, check_crcs=True
    )
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    consumer.seek(tp, 0)
    consumer.poll(timeout_ms=5_000, max_records=1)  # connected, first fetch under way
    consumer.seek(tp, 0)
    decode = decoder()
    model = ConsistentForestClassifier(n_trees=TREES, seed=0)
    parts = Parts()
    while parts.events < n:
        begun = clock()
        records = consumer.poll(timeout_ms=1_000, max_records=BATCH).get(tp, [])
        polled = clock()
        events = [decode(record.value) for record in records]
        decoded = clock()
        x: Any = [event.x for event in events]
        if events and isinstance(x[0], list):
            x = np.array(x)
        if events:
            model.advance(x, [event.y for event in events])
        parts.add("poll", polled - begun)
        parts.add("decode", decoded - polled)
        parts.add("advance", clock() - decoded)
        parts.events += len(events)
    consumer.close(autocommit=False)
    return parts


def whole_pipeline(
    servers: str, topic: str, n: int, pack: bool, clock: Clock = time.perf_counter
) -> Parts:
    """The pipeline itself on the same topic, exactly once, with a clock around its steps."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "bench.toml"
        text = _PIPELINE.format(
            name=name,
            servers=servers,
            topic=topic,
            trees=TREES,
            pack=str(pack).lower(),
            batch=BATCH,
            folder=Path(work) / "run",
        )
        path.write_text(text, encoding="utf-8")
        with opened(load_pipeline(path), create_topics=True) as run:
            parts = Parts()
            _time_steps(run, parts, clock)
            begun = clock()
            while run.events < n:
                run._step(n)
                if run.clocks.commit_due(run.events, run.pending):
                    run._commit()
            run._commit()
            spent = clock() - begun
            parts.add("the loop itself", spent - parts.total)
            parts.events = run.events
    return parts


def _time_steps(run: Run, parts: Parts, clock: Clock) -> None:
    """Time the steps of a run from outside, so that the loop carries no clocks for it."""

    def timed(owner: Any, method: str, name: str) -> None:
        call: Callable[..., Any] = getattr(owner, method)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            begun = clock()
            try:
                return call(*args, **kwargs)
            finally:
                parts.add(name, clock() - begun)

        setattr(owner, method, wrapper)

    timed(run.log, "poll", "poll")
    timed(run, "_advance_models", "advance, top classes, measures")
    timed(run, "_publish", "prediction messages")
    timed(run.commits, "commit", "commit: publish, journal, offsets")


def measure(
    servers: str, n: int, rounds: int = 3, clock: Clock = time.perf_counter
) -> list[Result]:
    """Both shapes of events, both ways of publishing; the best of a few interleaved rounds each."""
    results = []
    for shape in ("named", "array"):
        topic = f"bench-{shape}-{uuid.uuid4().hex[:8]}"
        fill(servers, topic, n, vectors=shape == "array")
        bare_parts(servers, topic, min(n, 2_000))  # warm
        for publishing in GOALS:
            best: Result | None = None
            for _ in range(rounds):
                bare = bare_parts(servers, topic, n, clock)
                whole = whole_pipeline(servers, topic, n, pack=publishing == "packed", clock=clock)
                result = Result(shape, publishing, bare, whole)
                if best is None or result.share > best.share:
                    best = result
            assert best is not None
            results.append(best)
    return results


@dataclass(frozen=True)
class Stall:
    """What a snapshot of a large model holds the stream up for, beside a copy of its bytes."""

    megabytes: float
    copy_seconds: float
    stall_seconds: float
    longest_seconds: float
    """The longest that one event waited while the snapshot was written in the background."""


def measure_stall(megabytes: int = 100) -> Stall:
    """Grow a forest to so many megabytes and copy it as a snapshot does."""
    draw = np.random.default_rng(0)
    model = ConsistentForestClassifier(n_trees=50, seed=0)
    while model.summary()["total_bytes"] < megabytes * 1_000_000:
        X = draw.normal(0, 1, (2_000, FEATURES))
        model.advance(X, draw.integers(CLASSES, size=2_000).tolist())
    size = int(model.summary()["total_bytes"])
    block = np.ones(size, np.uint8)
    copies = [_timed(lambda: block.copy()) for _ in range(5)]
    stalls = [_timed(lambda: copy.deepcopy(model)) for _ in range(5)]
    longest = _longest_pause(model, draw)
    return Stall(size / 1e6, float(np.median(copies)), float(np.median(stalls)), longest)


def _longest_pause(model: Any, draw: np.random.Generator) -> float:
    """Advance event by event while a snapshot is being written; the longest one took."""
    X = draw.normal(0, 1, (1, FEATURES))
    longest = 0.0
    with tempfile.TemporaryDirectory() as work:
        snapshots = SnapshotFolder(Path(work))
        snapshots.begin({"main": model}, {}, 0, 0, {})
        while snapshots.busy:
            longest = max(longest, _timed(lambda: model.advance(X, [0])))
    return longest


def _timed(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    kept = call()
    seconds = time.perf_counter() - begun
    del kept
    return seconds


def report(results: list[Result], stall: Stall | None) -> str:
    """A table of shares and one of where the time goes, in plain text."""
    lines = ["share of the bare parts' speed (poll + decode + advance), exactly-once:"]
    for r in results:
        bare = r.parts.events / r.parts.total
        whole = r.pipeline.events / r.pipeline.total
        goal = GOALS[r.publishing]
        verdict = "ok" if r.share >= goal else "missed"
        lines.append(
            f"  {r.shape:<6} {r.publishing:<9} {whole:>8,.0f} of {bare:>8,.0f} events/s  "
            f"{r.share:>5.0%}  (goal {goal:.0%}: {verdict})"
        )
    lines.append("where the time goes, µs an event:")
    for r in results:
        lines.append(f"  {r.shape}, {r.publishing}")
        for name, parts in (("bare", r.parts), ("pipeline", r.pipeline)):
            told = ", ".join(
                f"{part} {seconds / parts.events * 1e6:.1f}"
                for part, seconds in parts.seconds.items()
            )
            lines.append(f"    {name:<9} {told}")
    if stall is not None:
        lines.append(
            f"snapshot of a model of {stall.megabytes:.0f} MB: the stream waits "
            f"{stall.stall_seconds * 1e3:.0f} ms, a copy of the bytes takes "
            f"{stall.copy_seconds * 1e3:.0f} ms ({stall.stall_seconds / stall.copy_seconds:.1f} times); "
            "while it is written no event takes "
            f"longer than {stall.longest_seconds * 1e3:.0f} ms"
        )
    return "\n".join(lines)
