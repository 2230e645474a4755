"""Hostile messages on a real broker: none stops the consumer, each has an answer, memory has a bound.

All 20,000: python -m pytest -m slow tests/integration/test_fuzz.py -s
"""

from __future__ import annotations

import json
import random
import re
import time
import urllib.request
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from integration.feed import send
from integration.oracle import committed, read_all, read_output
from kafka import KafkaProducer
from kafka.admin import ConfigResource

from streamforest.io.kafka.clients import admin
from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing import Consumer
from streamforest.testing.broker.server import Broker, free_port

HUGE = 10_000_000
GROWTH = 250 << 20
"""Bytes that a consumer may grow by beyond what it takes when it is ready: fetched records (at most
16 MB, in several copies while they are taken apart), 64 MB of messages that wait for a commit, and
the forest within its limits."""
PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
partitions = 2
[model]
kind = "consistent"
n_trees = 3
max_classes = 50
max_features = 100
[limits]
min_class_events = 2
max_pending_classes = 1000
[run]
commit_interval_ms = 100
folder = "run"
[metrics]
port = {port}
"""


def fuzz(draw: random.Random, i: int) -> bytes:
    """One hostile message; wherever it can it brings a label and feature names never seen before."""
    kind = draw.randrange(14)
    new = {f"n{i}-{j}": draw.random() for j in range(3)}
    if kind == 0:
        return draw.randbytes(draw.randrange(0, 200))
    if kind == 1:
        return b'{"x":' * draw.randrange(1, 5_000)
    if kind == 2:
        wrong: Any = draw.choice([1, "a", None, [[1]], {"a": []}, {"a": {"b": {}}}, True, -1.5])
        return json.dumps({"x": wrong, "y": f"label {i}"}).encode()
    if kind == 3:
        return b'{"x":{"a":1e%d},"y":"big"}' % draw.randrange(0, 2_000)
    if kind == 4:
        return b'{"x":{"a":%s},"y":%s}' % (b"9" * draw.randrange(1, 400), b"8" * 30)
    if kind == 5:
        return json.dumps({"x": {"a": 1.0}, "y": f"label {i // 40}"}).encode()
    if kind == 6:
        return json.dumps({"x": new, "y": draw.choice(["p", f"label {i}"]), "id": "same"}).encode()
    if kind == 7:
        return json.dumps({"x": {"a": f"text {i}", "b": draw.random()}, "y": True}).encode()
    if kind == 8:
        return json.dumps({"x": [draw.random()] * draw.randrange(0, 140), "y": 1}).encode()
    if kind == 9:
        return json.dumps({"x": {"k" * draw.randrange(1, 600): 1}, "y": "l" * 500}).encode()
    if kind == 10:
        return b'{"x":{"a":NaN},"y":"\\ud800"}'
    if kind == 11:
        deep = "[" * draw.randrange(1, 900)
        return f'{{"x":{{"a":1}},"y":"p","extra":{deep}{"]" * len(deep)}}}'.encode()
    if kind == 12:
        return json.dumps(
            {"x": {"a": 1, "b": None}, "y": draw.choice([1, 1.0, True, "1"])}
        ).encode()
    x = {"a": draw.gauss(0, 1), "b": 2.0}
    return json.dumps({"x": x, "y": draw.choice("pq"), "id": draw.randrange(50)}).encode()


def memory(pid: int, field: str) -> int:
    """Bytes: VmRSS is what a process takes now, VmHWM the most it ever took."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def check_fuzz(broker: Broker, folder: Path, n: int, huge: int) -> None:
    name, port = f"fuzz-{uuid.uuid4().hex[:8]}", free_port()
    events = f"{name}.events"
    ensure_topics(broker.servers, Topics.of(name), create=True, partitions=2)
    client = admin(broker.servers)
    client.alter_configs([ConfigResource("topic", events, {"max.message.bytes": "20000000"})])
    client.close()
    path = folder / "p.toml"
    path.write_text(PIPELINE.format(name=name, servers=broker.servers, port=port))
    draw = random.Random(5)
    with Consumer(path, folder=folder) as consumer:
        consumer.until_ready(timeout=400)
        before = memory(consumer.pid, "VmRSS")
        sent = 0
        for part in range(huge):  # the large ones among the others, not after them
            share = range(part * n // huge, (part + 1) * n // huge)
            sent += send(broker.servers, events, (fuzz(draw, i) for i in share), 2)
            producer = KafkaProducer(bootstrap_servers=broker.servers, max_request_size=20 << 20)
            producer.send(events, draw.randbytes(1) * HUGE, partition=part % 2).get(timeout=60)
            producer.close()
            sent += 1

        def done(c: Consumer) -> bool:
            time.sleep(0.5)
            return sum(at for at, _ in committed(broker.servers, name, events).values()) == sent

        consumer.until(done, timeout=600)
        grown = memory(consumer.pid, "VmHWM") - before
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as said:
            metrics = said.read().decode()
        assert consumer.stop() == 0, consumer.log()[-3000:]
        assert "commit 0 in doubt" not in consumer.log()
    output = read_output(broker.servers, name)
    reasons = count_reasons(output.dead)
    print(
        f"\n{sent:,} messages, {huge} of them of 10 MB: {len(output.predictions):,} predicted, "
        f"{len(output.dead):,} dead letters {reasons}; the consumer grew by {grown / 2**20:.0f} MB, "
        f"of {GROWTH >> 20} allowed"
    )
    assert not output.predictions.keys() & output.dead.keys()
    assert output.predictions.keys() | output.dead.keys() == places(broker.servers, events)
    assert len(output.predictions) + len(output.dead) == sent
    told = dict(re.findall(r'streamforest_events_total{outcome="(\w+)"} (\S+)', metrics))
    assert float(told["predicted"]) + float(told["not_admitted"]) == len(output.predictions)
    assert float(told["refused"]) == len(output.dead)
    assert metrics.count("streamforest_class_events_total{") <= 21
    assert {"undecodable", "invalid", "too_large", "capacity", "label"} <= set(reasons)
    assert grown < GROWTH


def count_reasons(dead: dict[tuple[int, int], dict[str, bytes]]) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for letter in dead.values():
        reason = letter["__streamforest.errors.reason"].decode()
        reasons[reason] = reasons.get(reason, 0) + 1
    return reasons


def places(servers: str, topic: str) -> set[tuple[int, int]]:
    """Partition and offset of every message."""
    return {(p, r.offset) for p, records in read_all(servers, topic).items() for r in records}


def test_fuzzed_messages_stop_nothing(kafka_broker: Broker, tmp_path: Path) -> None:
    check_fuzz(kafka_broker, tmp_path, 3_000, huge=3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_20000_fuzzed_messages_stop_nothing(kafka_broker: Broker, tmp_path: Path) -> None:
    check_fuzz(kafka_broker, tmp_path, 20_000, huge=20)


LATE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
partitions = 1
[labels]
expire_after_seconds = 10
max_events = 500
max_early_labels = 200
max_bytes = 500000
[model]
kind = "consistent"
n_trees = 3
max_classes = 50
max_features = 100
[run]
commit_interval_ms = 100
folder = "{folder}"
[metrics]
port = {port}
"""
AGES = (0, 1, 253_402_300_799_999)
"""1970 and 9999, in milliseconds."""


def late_fuzz(draw: random.Random, i: int, now: int) -> tuple[bytes, int]:
    """A hostile message, or an event, or a label, with a timestamp from any age."""
    at = draw.choice(AGES) if draw.random() < 0.1 else now + 20 * i
    kind = draw.randrange(10)
    if kind < 3:
        return fuzz(draw, i), at
    if kind < 4:
        wrong: Any = draw.choice([None, [], {}, "l" * 300, 1e999, float("nan"), 2**70, True])
        told: dict[str, Any] = {"id": draw.choice([i, f"e{i}", None, [], 2**80]), "y": wrong}
        return json.dumps(told).encode(), at
    if kind < 7:
        near = f"e{max(0, i + draw.randrange(-40, 10))}"
        return json.dumps({"id": near, "y": draw.choice(["p", "q", f"l{i // 50}"])}).encode(), at
    x = {"a": draw.gauss(0, 1), "b": draw.gauss(1, 1)}
    told = {"x": x, "id": f"e{i}"}
    if draw.random() < 0.2:
        told["y"] = draw.choice("pq")
    return json.dumps(told).encode(), at


def send_at(servers: str, topic: str, messages: Iterable[tuple[bytes, int]]) -> int:
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=20)
    futures = [producer.send(topic, value, partition=0, timestamp_ms=at) for value, at in messages]
    producer.flush(timeout=120)
    for future in futures:
        future.get(timeout=10)
    producer.close()
    return len(futures)


def fed(broker: Broker, folder: Path, messages: list[tuple[bytes, int]]) -> tuple[str, str, int]:
    """A pipeline that has read these messages: its name, its metrics, and by how much it grew."""
    name, port = f"fuzz-{uuid.uuid4().hex[:8]}", free_port()
    events = f"{name}.events"
    ensure_topics(broker.servers, Topics.of(name), create=True, partitions=1)
    client = admin(broker.servers)
    longest = str(2**63 - 1)  # else the broker begins a new segment with each jump of the time
    any_age = {
        "message.timestamp.after.max.ms": longest,
        "segment.ms": longest,
        "retention.ms": "-1",
    }
    client.alter_configs([ConfigResource("topic", events, any_age)])
    client.close()
    path = folder / f"{name}.toml"
    path.write_text(LATE.format(name=name, servers=broker.servers, port=port, folder=folder / name))
    with Consumer(path, folder=folder) as consumer:
        consumer.until_ready(timeout=400)
        before = memory(consumer.pid, "VmRSS")
        sent = send_at(broker.servers, events, messages)
        consumer.until(
            lambda c: (time.sleep(0.3) or committed(broker.servers, name, events)[0][0]) == sent,
            timeout=900,
        )
        grown = memory(consumer.pid, "VmHWM") - before
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as said:
            metrics = said.read().decode()
        assert consumer.stop() == 0, consumer.log()[-3000:]
    return name, metrics, grown


def check_late_fuzz(broker: Broker, folder: Path, n: int) -> None:
    draw, now = random.Random(11), int(time.time() * 1000) - 3_600_000
    messages = [late_fuzz(draw, i, now) for i in range(n)]
    name, metrics, grown = fed(broker, folder, messages)
    output = read_output(broker.servers, name)
    told = dict(re.findall(r'streamforest_events_total{outcome="(\w+)"} (\S+)', metrics))
    labels = dict(re.findall(r'streamforest_labels_total{outcome="(\w+)"} (\S+)', metrics))
    count = {outcome: int(float(value)) for outcome, value in {**told, **labels}.items()}
    waiting, early = (
        int(float(re.findall(rf"(?m)^streamforest_label_store_{what} (\S+)", metrics)[0]))
        for what in ("events", "labels")
    )
    print(
        f"\n{n:,} messages: {count}, {waiting} events and {early} labels wait; dead letters "
        f"{count_reasons(output.dead)}; grew by {grown / 2**20:.0f} MB of {GROWTH >> 20} allowed"
    )
    records = int(float(re.findall(r"(?m)^streamforest_label_records_total (\S+)", metrics)[0]))
    held = labels.pop("refused")  # labels that were taken, held, and refused with their event
    ended = sum(int(float(labels[way])) for way in ("matched", "duplicate", "unmatched"))
    assert count["predicted"] + records + int(float(told["refused"])) == n + float(held)
    assert count["predicted"] == len(output.predictions)
    assert float(told["refused"]) == len(output.dead)
    assert ended + early + float(held) == records
    assert all(count[outcome] for outcome in ("matched", "early", "expired", "duplicate"))
    assert (waiting <= 500, early <= 200) == (True, True)
    assert grown < GROWTH
    # a label that was held is refused when its event comes: its letter has its own place, so it is out too
    clean = [message for i, message in enumerate(messages) if (0, i) not in output.dead]
    again, _, _ = fed(broker, folder, clean)
    unharmed = read_output(broker.servers, again)
    assert not unharmed.dead
    assert told_by(output.predictions) == told_by(unharmed.predictions)


def told_by(predictions: dict[tuple[int, int], dict[str, Any]]) -> list[dict[str, Any]]:
    """Predictions in order, without what says where they stood."""
    own = ("event", "offset", "commit", "topic")
    return [
        {key: value for key, value in predictions[place].items() if key not in own}
        for place in sorted(predictions)
    ]


def test_fuzzed_events_and_labels_harm_no_other(kafka_broker: Broker, tmp_path: Path) -> None:
    check_late_fuzz(kafka_broker, tmp_path, 2_000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_100000_fuzzed_events_and_labels_harm_no_other(
    kafka_broker: Broker, tmp_path: Path
) -> None:
    check_late_fuzz(kafka_broker, tmp_path, 100_000)
