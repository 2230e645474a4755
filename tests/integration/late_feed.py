"""Events and their labels apart: late, early, twice, never; bad ones among both."""

from __future__ import annotations

import heapq
import json
import random
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from integration.feed import FEATURES, _bad
from kafka import KafkaProducer

STEP_MS = 10
"""Between two events, by their records' timestamps."""


class Message(NamedTuple):
    """One message; `label` says which topic it belongs to."""

    label: bool
    lane: int
    timestamp: int
    value: bytes


def late_messages(
    n: int, lanes: int, wait_ms: int = 3_000, seed: int = 0, start: int | None = None
) -> Iterator[Message]:
    """`n` events in the order of time, and the labels that belong to them."""
    draw = random.Random(seed)
    start = int(time.time() * 1000) - 6 * 3_600_000 if start is None else start
    due: list[tuple[int, int, int, bytes]] = []
    count = 0

    def label(at: int, lane: int, value: Any) -> None:
        nonlocal count
        count += 1
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        heapq.heappush(due, (at, count, lane, raw))

    for i in range(n):
        at, lane = start + STEP_MS * i, i % lanes
        while due and due[0][0] <= at:
            when, _, where, raw = heapq.heappop(due)
            yield Message(True, where, when, raw)
        if draw.random() < 0.02:
            yield Message(False, lane, at, _bad(draw, strings=True))
            continue
        k = draw.randrange(min(12, 2 + i // max(1, n // 12)))
        x = {f"f{j}": round(draw.gauss((k * (j + 1)) % 7, 1.0), 4) for j in range(FEATURES)}
        y = f"class {k}" if k % 2 else k
        event: dict[str, Any] = {"id": f"e{i}", "x": x}
        way = draw.random()
        if way < 0.10:
            event["y"] = y
        elif way < 0.13:
            del event["id"]
        elif way < 0.16:  # its label went ahead
            yield Message(True, lane, at - 1, json.dumps({"id": f"e{i}", "y": y}).encode())
        elif way < 0.20:
            pass  # never
        elif way < 0.23:  # too late
            label(at + wait_ms + 500 + draw.randrange(1_000), lane, {"id": f"e{i}", "y": y})
        else:
            label(at + draw.randrange(wait_ms // 2), lane, {"id": f"e{i}", "y": y})
            if way < 0.27:  # twice
                label(at + wait_ms // 2 + 200, lane, {"id": f"e{i}", "y": "another"})
        if draw.random() < 0.02:
            label(at, lane, draw.choice(BAD_LABELS))
        if draw.random() < 0.01:
            label(at, lane, {"id": f"nobody{i}", "y": y})
        yield Message(False, lane, at, json.dumps(event).encode())
    for when, _, where, raw in sorted(due):
        yield Message(True, where, when, raw)


def level_messages(n: int, seed: int = 0, start: int | None = None) -> Iterator[Message]:
    """`n` events of 12 classes and their labels, categories first: classes follow later, or never.

    A few labels have a class of another category, which an event has named before: the first pair counts, so
    one that came first would make every true event of its class a dead letter.
    """
    draw = random.Random(seed)
    paired: set[int] = set()
    start = int(time.time() * 1000) - 6 * 3_600_000 if start is None else start
    due: list[tuple[int, int, bytes]] = []

    def later(at: int, **told: Any) -> None:
        heapq.heappush(due, (at, len(due) + 1_000 * at, json.dumps(told).encode()))

    for i in range(n):
        at = start + STEP_MS * i
        while due and due[0][0] <= at:
            when, _, raw = heapq.heappop(due)
            yield Message(True, 0, when, raw)
        k = draw.randrange(min(12, 3 + i // max(1, n // 12)))
        x = {f"f{j}": round(draw.gauss((k * (j + 1)) % 7, 1.0), 4) for j in range(FEATURES)}
        genus, species = f"genus {k % 4}", f"species {k}"
        event: dict[str, Any] = {"id": f"e{i}", "x": x}
        way = draw.random()
        if way < 0.25:
            event |= {"y": species, "coarse": genus}
            paired.add(k)
        elif way < 0.40:
            event |= {"coarse": genus}
        elif way < 0.75:
            later(at + draw.randrange(800), id=f"e{i}", coarse=genus)
        elif way < 0.90:
            later(at + draw.randrange(800), id=f"e{i}", y=species)
        if 0.25 <= way < 0.60:  # the class after the category
            later(at + 900 + draw.randrange(4_000), id=f"e{i}", y=species)
        if way < 0.02:
            later(at + 100, id=f"e{i}", y=species)  # once more
        other = (k + 1) % 12
        if 0.73 <= way < 0.75 and other in paired:  # a class of another category
            later(at + 900, id=f"e{i}", y=f"species {other}", coarse=genus)
        yield Message(False, 0, at, json.dumps(event).encode())
    for when, _, raw in sorted(due):
        yield Message(True, 0, when, raw)


BAD_LABELS: list[bytes] = [
    b'{"id": "e1"}',
    b'{"y": "class 1"}',
    b'{"id": ["e1"], "y": "class 1"}',
    b'{"id": "e2", "y": {"a": 1}}',
    b'{"id": "e3", "y": 0.0}',  # equals the class 0, of another type
    b'{"id": "e4", "y": "class 1", "v": 9}',
    b"no label",
]


def send_all(
    servers: str, messages: Iterable[Message], events: str, labels: str | None = None
) -> int:
    """Send messages in order, each with its timestamp, and wait for every one."""
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)
    futures = [
        producer.send(
            labels if labels and m.label else events,
            m.value,
            partition=m.lane,
            timestamp_ms=m.timestamp,
        )
        for m in messages
    ]
    producer.flush(timeout=60)
    for future in futures:
        future.get(timeout=10)
    producer.close()
    return len(futures)
