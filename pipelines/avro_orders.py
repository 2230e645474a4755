"""A decoder for Avro messages in a schema registry's framing, and a shop that sends some.

    pip install fastavro
    python pipelines/avro_orders.py 127.0.0.1:9092

A message is a zero byte, the number of the schema it was written with (four bytes, big-endian), and the
Avro record. The schemas are in `schemas/`, one file per number, and are read once, at the start: the meaning
of a message must not depend on a service that may answer differently tomorrow. Before a producer uses a new
schema, put it there and restart.

`avro.toml` names `decode`. For Protobuf or any other format, write a function like it.
"""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro

from streamforest.errors import EventError

SCHEMAS = {
    int(path.stem): fastavro.parse_schema(json.loads(path.read_text(encoding="utf-8")))
    for path in (Path(__file__).parent / "schemas").glob("*.avsc")
}
NOT_FEATURES = ("id", "placed", "kind")
TOPIC = "avro-orders.events"


def decode(message: Any) -> dict[str, Any]:
    """The event in a message; an exception makes the message a dead letter with that reason."""
    value = message.value
    if len(value) < 5 or value[0] != 0:
        raise EventError("not framed by a schema registry: no zero byte and schema number")
    number = int.from_bytes(value[1:5], "big")
    if number not in SCHEMAS:
        raise EventError(f"schema {number} is not in schemas/", "version")
    body = io.BytesIO(value[5:])
    order = fastavro.schemaless_reader(body, SCHEMAS[number])
    if body.read(1):
        raise EventError("bytes are left over after the record", "invalid")
    return {
        "id": order["id"],
        "ts": int(order["placed"].timestamp() * 1000),
        "x": {name: value for name, value in order.items() if name not in NOT_FEATURES},
        "y": order["kind"],
    }


decode.version = 1  # raise it when the same message would give another event


def orders(n: int, seed: int = 0) -> Iterator[bytes]:
    """Messages of a shop: kinds of orders appear over time, the second schema half-way."""
    draw = random.Random(seed)
    kinds = {  # amount, items, hour, country, account in days
        "household": (60, 4, 18, "DE", 900),
        "gift": (35, 1, 12, "FR", 400),
        "wholesale": (2_400, 60, 9, "NL", 1_500),
        "reseller": (700, 12, 3, "PL", 40),
        "stolen card": (450, 2, 4, None, 1),
    }
    for i in range(n):
        open_kinds = list(kinds)[: 2 + 4 * i // n]
        kind = draw.choice(open_kinds)
        amount, items, hour, country, days = kinds[kind]
        number = 1 if i < n // 2 else 2
        order: dict[str, Any] = {
            "id": f"order-{i}",
            "placed": 1_700_000_000_000 + 60_000 * i,
            "amount": round(amount * draw.lognormvariate(0, 0.4), 2),
            "items": max(1, round(draw.gauss(items, items / 4))),
            "hour": round(draw.gauss(hour, 2)) % 24,
            "country": country if draw.random() < 0.9 else "US",
            "kind": kind if draw.random() < 0.95 else None,
        }
        if number == 2:
            order["account_days"] = round(days * draw.lognormvariate(0, 0.6), 1)
        body = io.BytesIO()
        fastavro.schemaless_writer(body, SCHEMAS[number], order)
        yield b"\0" + number.to_bytes(4, "big") + body.getvalue()


def main(servers: str = "127.0.0.1:9092", n: int = 5_000) -> None:
    """Send orders to the topic of `avro.toml`, which is made if it is missing."""
    from kafka import KafkaProducer

    from streamforest.io.tools.replay import prepare

    prepare(servers, {TOPIC: 1})
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=20)
    for value in orders(n):
        producer.send(TOPIC, value)
    producer.close()
    print(f"{n:,} orders to {TOPIC}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
