"""Events for the tests: deterministic, classes that appear over time, bad ones among them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

from kafka import KafkaProducer

from streamforest.io.kafka.clients import connect

FEATURES = 10


def events(n: int, bad: float = 0.02, seed: int = 0, strings: bool = True) -> Iterator[bytes]:
    """`n` messages; a share `bad` of them cannot be decoded, is invalid, or cannot be learned."""
    draw = random.Random(seed)
    for i in range(n):
        if draw.random() < bad:
            yield _bad(draw, strings)
            continue
        k = draw.randrange(min(12, 2 + i // max(1, n // 12)))
        x = {f"f{j}": round(draw.gauss((k * (j + 1)) % 7, 1.0), 4) for j in range(FEATURES)}
        event: dict[str, Any] = {"id": f"e{i}", "x": x}
        if draw.random() > 0.05:
            event["y"] = f"class {k}" if k % 2 else k
        if draw.random() < 0.02:
            del x["f3"]
        yield json.dumps(event).encode()


def _bad(draw: random.Random, strings: bool) -> bytes:
    x = {f"f{j}": 1.5 for j in range(FEATURES)}
    kinds: list[bytes] = [
        draw.randbytes(30),
        b"",
        b"[1, 2]",
        b'{"x": {"f0": 1.0}, "y": "class 1"',
        b'{"y": "class 1"}',
        json.dumps({"x": x, "y": ["no", "label"]}).encode(),
        json.dumps({"x": x, "y": "class 1", "v": 7}).encode(),
        json.dumps({"x": x, "y": 0.0}).encode(),  # equals the class 0, of another type
    ]
    if strings:
        kinds.append(json.dumps({"x": {**x, "f1": "text"}, "y": "class 1"}).encode())
    return draw.choice(kinds)


def send(servers: str, topic: str, values: Iterable[bytes], partitions: int, first: int = 0) -> int:
    """Send messages round robin, wait for every one; how many there were."""
    producer = connect(KafkaProducer, servers, acks="all", linger_ms=20)
    futures = [
        producer.send(topic, value, key=str(i).encode(), partition=(first + i) % partitions)
        for i, value in enumerate(values)
    ]
    producer.flush(timeout=60)
    for future in futures:
        future.get(timeout=10)
    producer.close()
    return len(futures)
