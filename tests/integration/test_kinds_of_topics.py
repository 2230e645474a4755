"""Kinds of messages that other producers send: what they are taken for, what is learned, what is said."""

from __future__ import annotations

import datetime as dt
import json
import logging
import random
import subprocess
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from integration.oracle import read_output
from kafka import KafkaProducer

from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.testing.broker import download
from streamforest.testing.broker.server import Broker

ROWS = 150
PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
session_timeout_ms = 6000
partitions = 1
[model]
kind = "online"
n_trees = 2
[run]
folder = "{folder}"
[metrics]
port = 0
"""
Message = tuple[bytes | None, list[tuple[str, bytes]]]
"""Value and headers."""


def number(i: int) -> float:
    return (i % 2) * 4 + (i * 7 % 10) / 10


def flat(i: int) -> dict[str, Any]:
    sent = dt.datetime(2026, 3, 1, 12) + dt.timedelta(seconds=i)
    return {
        "amount": number(i),
        "colour": "red",
        "sent": f"{sent}Z",
        "label": "cat" if i % 2 else "dog",
    }


def json_of(record: Callable[[int], Any], rows: int = ROWS) -> list[Message]:
    return [(json.dumps(record(i)).encode(), []) for i in range(rows)]


def cloud(i: int) -> list[tuple[str, bytes]]:
    """The headers of a CloudEvent."""
    told = {"specversion": "1.0", "id": f"c{i}", "source": "/shop", "type": f"order.{'ab'[i % 2]}"}
    return [
        (f"ce_{k}", v.encode())
        for k, v in (told | {"time": f"2026-03-01T12:00:{i % 60:02}Z"}).items()
    ]


@dataclass(frozen=True)
class Kind:
    """Messages of one kind and what becomes of them."""

    messages: list[Message]
    types: dict[str, str]
    settings: tuple[str, ...] = ("features.label=label",)
    learned: int = ROWS
    reasons: dict[str, int] = field(default_factory=dict)
    said: str = ""
    labels: list[Message] = field(default_factory=list)


FLAT = {"amount": "number", "colour": "category", "sent": "date"}
KINDS = {
    "flat records": Kind(json_of(flat), FLAT),
    "flat MessagePack": Kind(
        [(msgspec.msgpack.encode(flat(i)), []) for i in range(ROWS)],
        FLAT,
        ("features.label=label", "events.format=msgpack"),
    ),
    "MessagePack's own times": Kind(
        [
            (msgspec.msgpack.encode({"t": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "y": i % 2}), [])
            for i in range(ROWS)
        ],
        {"t": "date"},
        ("events.format=msgpack",),
    ),
    "events with x": Kind(
        json_of(lambda i: {"x": flat(i), "y": i % 2}), FLAT | {"label": "category"}, ()
    ),
    "an envelope": Kind(
        json_of(lambda i: {"meta": {"host": "a"}, "payload": flat(i)}),
        {f"payload.{name}": kind for name, kind in FLAT.items()} | {"meta.host": "ignored"},
        ("features.label=payload.label", 'features.ignore=["meta.*"]'),
    ),
    "tombstones and empty messages": Kind(
        [*json_of(flat), (None, []), (b"", []), (b"{}", [])],
        FLAT,
        reasons={"empty": 2, "invalid": 1},
    ),
    "the label is called otherwise": Kind(
        json_of(flat),
        FLAT | {"label": "category"},
        (),
        learned=0,
        said="none of the first 100 records has the label 'y' (features.label), so nothing is learned; "
        "their fields are 'amount', 'colour', 'sent', 'label'",
    ),
    "JSON in a registry's framing": Kind(
        [*((b"\0\0\0\0\x07" + value, []) for value, _ in json_of(flat) if value), (b"{}", [])],
        FLAT,
        ("features.label=label", "events.format=json-schema"),
        reasons={"undecodable": 1},
    ),
    "CloudEvents in binary mode": Kind(
        [(value, cloud(i)) for i, (value, _) in enumerate(json_of(flat))],
        FLAT | {"ce_type": "category", "ce_time": "date"},
    ),
    "CloudEvents whose type is the label": Kind(
        [
            (value, cloud(i))
            for i, (value, _) in enumerate(json_of(lambda i: {"x": {"a": number(i)}}))
        ],
        {"a": "number"},
        ("features.label=ce_type",),
    ),
    "labels on a topic of their own": Kind(
        json_of(lambda i: {"key": i, "amount": number(i)}),
        {"amount": "number"},
        ("features.label=label", "features.id=key", "labels.expire_after_seconds=3600"),
        labels=json_of(lambda i: {"key": i, "label": i % 2, "by": "a person"}),
    ),
}


class Case:
    """A pipeline on the broker, with a name of its own."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.servers, self.folder = broker.servers, folder
        self.name = f"kind-{uuid.uuid4().hex[:8]}"
        self.path = folder / "p.toml"
        text = PIPELINE.format(name=self.name, servers=self.servers, folder=folder / "run")
        self.path.write_text(text, encoding="utf-8")

    def send(self, messages: Iterable[Message], topic: str = "events") -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers, acks="all")
        for value, headers in messages:
            producer.send(f"{self.name}.{topic}", value, key=b"k", headers=headers, partition=0)
        producer.close()

    def run(self, *settings: str) -> Any:
        """The state once the topic is read to its end."""
        loaded = load_pipeline(self.path, {}, settings)
        with opened(loaded, drain=True, create_topics=True) as run:
            assert run.consume() == "finished"
            return run.state


@pytest.fixture
def case(kafka_broker: Broker, tmp_path: Path) -> Case:
    return Case(kafka_broker, tmp_path)


@pytest.mark.parametrize("name", KINDS)
def test_what_becomes_of_it(case: Case, name: str, caplog: pytest.LogCaptureFixture) -> None:
    kind = KINDS[name]
    settings = list(kind.settings)
    topics = Topics.of(case.name)
    if kind.labels:
        settings.append(f"topics.labels={case.name}.labels")
        topics = Topics.of(case.name, labels=f"{case.name}.labels")
    ensure_topics(case.servers, topics, create=True, partitions=1)
    case.send(kind.messages)
    if kind.labels:
        case.send(kind.labels, "labels")
    with caplog.at_level(logging.WARNING):
        state = case.run(*settings)
    columns = state.reader.describe()
    assert {column.name: column.type for column in columns} == kind.types
    assert sum(column.misfits for column in columns) == 0
    assert state.models["main"].n_learned == kind.learned
    found: dict[str, int] = {}
    for letter in read_output(case.servers, case.name).dead.values():
        reason = letter["__streamforest.errors.reason"].decode()
        found[reason] = found.get(reason, 0) + 1
    assert found == kind.reasons
    if name.startswith("CloudEvents"):
        predictions = read_output(case.servers, case.name).predictions
        assert [predictions[0, i]["id"] for i in range(ROWS)] == [f"c{i}" for i in range(ROWS)]
    warnings = [record.getMessage() for record in caplog.records]
    assert any(kind.said in text for text in warnings) or not kind.said


def lines(n: int) -> list[str]:
    """Flat records with a date, gaps, a text and an id of their own for each."""
    draw = random.Random(5)
    words = ["delay", "refund", "parcel", "broken", "late", "damaged", "kind", "staff"]
    found = []
    for i in range(n):
        k = draw.randrange(2 + i // 400)
        record = {
            "id": f"e{i}",
            "when": (dt.datetime(2026, 1, 1) + dt.timedelta(seconds=61 * i)).isoformat(),
            "amount": round(draw.gauss(8 * k, 2), 2) if draw.random() > 0.1 else None,
            "colour": draw.choice(["red", "grün", "blue"]),
            "note": " ".join(draw.choice(words) for _ in range(5)),
            "label": f"class {k}",
        }
        found.append(json.dumps(record, ensure_ascii=False))
    return found


def test_flat_records_of_kafkas_own_client_give_what_the_file_gives(case: Case) -> None:
    several = lines(1_200)
    ensure_topics(case.servers, Topics.of(case.name), create=True, partitions=1)
    sent = subprocess.run(
        [
            download.java(),
            "-cp",
            f"{download.jars()}/*",
            str(Path(__file__).with_name("LineProducer.java")),
            case.servers,
            f"{case.name}.events",
        ],
        input="\n".join(several).encode(),
        capture_output=True,
        timeout=120,
    )
    assert sent.stdout.strip() == b"1200", sent.stderr.decode()[-2_000:]
    state = case.run("features.label=label")
    assert state.models["main"].n_learned == 1_200
    output = read_output(case.servers, case.name)
    (case.folder / "e.jsonl").write_text("\n".join(several), encoding="utf-8")
    pipeline = case.folder / "file.toml"
    pipeline.write_text(
        f'[pipeline]\nname = "f"\n[source]\nfile = "{case.folder / "e.jsonl"}"\n[features]\n'
        'label = "label"\n[model]\nkind = "online"\nn_trees = 2\n'
        f'[run]\nfolder = "{case.folder / "file"}"\n'
    )
    with opened(load_pipeline(pipeline)) as run:
        assert run.consume() == "finished"
        assert run.state.reader.state() == state.reader.state()
    written = (case.folder / "file" / "predictions.jsonl").read_text().splitlines()
    for i, line in enumerate(map(json.loads, written)):
        given = output.predictions[0, i]
        for key in ("label", "top", "truth", "learned", "id"):
            assert given.get(key) == line.get(key), (i, key)
