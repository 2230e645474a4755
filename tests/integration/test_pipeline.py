"""A pipeline on a real broker, in this process: what comes out, what is refused, what is survived."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from integration.feed import events, send
from integration.oracle import committed, judge, read_all, read_output
from kafka import KafkaProducer

from streamforest import ConsistentForestClassifier
from streamforest.cli import root
from streamforest.errors import BrokerError, ConfigError, RecoveryError
from streamforest.io.kafka.clients import admin
from streamforest.io.log import CommitInDoubt
from streamforest.io.sources.dataset import RecordedSource
from streamforest.io.tools.replay import ReplayOptions, replay
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.loop import Run
from streamforest.testing.broker.server import Broker

PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
session_timeout_ms = 6000
partitions = 2
[model]
kind = "consistent"
n_trees = 3
[run]
batch_size = 100
commit_interval_ms = 100
folder = "{folder}"
[metrics]
port = 0
"""
Opening = Callable[..., AbstractContextManager[Run]]


class Case:
    """A pipeline with a name of its own."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.servers = broker.servers
        self.name = f"case-{uuid.uuid4().hex[:8]}"
        self.events = f"{self.name}.events"
        self.folder = folder / "run"
        self.path = folder / "p.toml"
        text = PIPELINE.format(name=self.name, servers=self.servers, folder=self.folder)
        self.path.write_text(text, encoding="utf-8")

    def open(self, *flags: str, create: bool = True) -> AbstractContextManager[Run]:
        pipeline = load_pipeline(self.path, {}, flags)
        return opened(pipeline, drain=True, create_topics=create)

    def drain(self, *flags: str) -> None:
        with self.open(*flags) as run:
            assert run.consume() == "finished"


@pytest.fixture
def case(kafka_broker: Broker, tmp_path: Path) -> Case:
    return Case(kafka_broker, tmp_path)


def test_predictions_carry_key_headers_and_coordinates(case: Case) -> None:
    case.drain()
    producer = KafkaProducer(bootstrap_servers=case.servers)
    trace = [("traceparent", b"00-abc-def-01")]
    for i in range(3):
        value = json.dumps({"id": f"e{i}", "x": [float(i), 1.0], "y": "ab"[i % 2]}).encode()
        producer.send(case.events, value, key=b"k", headers=trace, partition=1)
    producer.close()
    case.drain()
    (records,) = (r for r in read_all(case.servers, f"{case.name}.predictions").values() if r)
    assert [r.key for r in records] == [b"k"] * 3
    assert all(("traceparent", b"00-abc-def-01") in r.headers for r in records)
    told = [json.loads(r.value) for r in records]
    assert [t["id"] for t in told] == ["e0", "e1", "e2"]
    assert told[0]["label"] is None
    assert [t.get("new", False) for t in told] == [True, True, False]
    assert [(t["partition"], t["offset"], t["event"], t["learned"]) for t in told] == [
        (1, i, i, i) for i in range(3)
    ]
    assert told[2]["top"][0] == [told[2]["label"], told[2]["probability"]]


def test_a_clean_stop_leaves_nothing_to_replay(case: Case) -> None:
    case.drain()
    send(case.servers, case.events, events(700), 2)
    with case.open() as run:
        assert run.consume(max_events=300) == "limit"
        reached = run.events
    standing = committed(case.servers, case.name, case.events)[0][1]
    assert (standing["events"], standing["snapshot"]) == (reached, f"s-{reached:012d}")
    case.drain()
    judge(
        case.servers,
        case.name,
        case.events,
        ConsistentForestClassifier(n_trees=3, seed=0),
        case.folder,
    )


def test_packed_predictions_are_the_same(case: Case) -> None:
    case.drain()
    send(case.servers, case.events, events(600), 2)
    case.drain("predictions.batch_messages=true")
    model = ConsistentForestClassifier(n_trees=3, seed=0)
    verdict = judge(case.servers, case.name, case.events, model, case.folder)
    records = sum(len(r) for r in read_all(case.servers, f"{case.name}.predictions").values())
    assert records < 30 < verdict.predictions


def test_at_least_once_loses_nothing(case: Case) -> None:
    case.drain("kafka.delivery=at-least-once")
    send(case.servers, case.events, events(500), 2)
    with case.open("kafka.delivery=at-least-once") as run:
        run.consume(max_events=200)
    case.drain("kafka.delivery=at-least-once")
    output = read_output(case.servers, case.name)
    assert len(output.predictions) + len(output.dead) == 500


def test_partitions_may_grow_while_it_runs(case: Case) -> None:
    case.drain()
    send(case.servers, case.events, events(200), 2)
    pipeline = load_pipeline(case.path, {}, ())
    with opened(pipeline, create_topics=True) as run:

        def grow(run: Run) -> None:
            if run.events >= 200 and len(run.state.positions) == 2 and not grown:
                grown.append(True)
                client = admin(case.servers)
                client.create_partitions({case.events: 3})
                client.close()
                send(case.servers, case.events, events(60, seed=9), 3)

        grown: list[bool] = []
        assert run.consume(max_events=260, watch=grow) == "limit"
        assert len(run.state.positions) == 3
    judge(
        case.servers,
        case.name,
        case.events,
        ConsistentForestClassifier(n_trees=3, seed=0),
        case.folder,
    )


def test_partitions_may_grow_while_a_commit_is_in_doubt(case: Case) -> None:
    """What is found when the log is asked belongs to the run from then on, new partitions too."""
    case.drain()
    send(case.servers, case.events, events(200), 2)
    with opened(load_pipeline(case.path, {}, ()), create_topics=True) as run:
        sink: Any = run.log.sink
        assignment: Any = run.log.membership.assignment  # type: ignore[attr-defined]
        usual = sink.commit
        doubts = 0

        def doubtful(transaction: Any) -> None:
            nonlocal doubts
            if run.events < 200:
                usual(transaction)
                return
            sink.commit = usual
            doubts += 1
            client = admin(case.servers)
            client.create_partitions({case.events: 3})
            client.close()
            send(case.servers, case.events, events(60, seed=9), 3)
            assignment.note_loss()  # as after being fenced
            assignment.consumer._coordinator.request_rejoin()
            raise CommitInDoubt("nobody knows")

        sink.commit = doubtful
        assert run.consume(max_events=260) == "limit"
        assert sink.commit == usual
        assert doubts == 1
        assert len(run.state.positions) == 3
    judge(
        case.servers,
        case.name,
        case.events,
        ConsistentForestClassifier(n_trees=3, seed=0),
        case.folder,
    )


def test_a_key_too_long_to_travel_is_a_dead_letter(case: Case) -> None:
    """A prediction carries the key of its event, and is larger: it would not fit the topic."""
    case.drain()
    with closing(KafkaProducer(bootstrap_servers=case.servers)) as producer:
        for key in (b"k" * 1_000_000, b"k" * 65_536):
            producer.send(case.events, b'{"x": [1.0], "y": "a"}', key=key, partition=0)
    case.drain()
    output = read_output(case.servers, case.name)
    assert [one["offset"] for one in output.predictions.values()] == [1]
    (letter,) = output.dead.values()
    assert letter["__streamforest.errors.reason"] == b"too_large"
    sent = CliRunner().invoke(root, ["dlq", "replay", str(case.path)])
    assert sent.output == "1 sent back, 0 left out\n"
    keys = [len(record.key) for record in read_all(case.servers, case.events)[0]]
    assert keys == [1_000_000, 65_536, 1_000_000]


def test_dead_letters_are_listed_and_sent_back_once(case: Case) -> None:
    case.drain("model.max_features=50", "limits.on_capacity=error")
    good = json.dumps({"x": {"a": 1.0}, "y": "b" * 10}).encode()
    wide = json.dumps({"x": {f"f{i}": 1.0 for i in range(90)}, "y": "b" * 10}).encode()
    send(case.servers, case.events, [good, b"{bad", wide], 2)
    case.drain("model.max_features=50", "limits.on_capacity=error")
    runner = CliRunner()
    listed = runner.invoke(root, ["dlq", "list", str(case.path)])
    assert listed.exit_code == 0, listed.output
    assert "capacity 1" in listed.output
    assert "undecodable 1" in listed.output
    again = runner.invoke(root, ["dlq", "replay", str(case.path), "--reason", "capacity"])
    assert again.output == "1 sent back, 1 left out\n", again.output
    again = runner.invoke(root, ["dlq", "replay", str(case.path), "--reason", "capacity"])
    assert again.output == "0 sent back, 0 left out\n"
    again = runner.invoke(root, ["dlq", "replay", str(case.path)])
    assert again.output == "1 sent back, 0 left out\n"  # the one that was left, not the other again
    again = runner.invoke(root, ["dlq", "replay", str(case.path)])
    assert again.output == "0 sent back, 0 left out\n"
    again = runner.invoke(root, ["dlq", "replay", str(case.path), "--reason", "undecodable"])
    assert again.output == "0 sent back, 0 left out\n"
    case.drain("model.max_features=50", "limits.on_capacity=error")
    assert len(read_output(case.servers, case.name).dead) == 4  # not mended: refused again


def test_messagepack_with_raw_vectors(case: Case) -> None:
    case.drain("events.format=msgpack")
    draw = np.random.default_rng(0)
    sent = []
    for i in range(300):
        vector = draw.normal(i % 3, 1, 768).astype("<f4")
        x: Any = vector.tobytes() if i % 2 else vector.tolist()
        sent.append(msgspec.msgpack.encode({"x": x, "y": i % 3}))
    send(case.servers, case.events, [*sent, b"\xc1", msgspec.msgpack.encode({"x": b"123"})], 1)
    case.drain("events.format=msgpack")
    output = read_output(case.servers, case.name)
    assert (len(output.predictions), len(output.dead)) == (300, 2)


def test_rules_may_change_only_where_nothing_is_left_to_replay(case: Case) -> None:
    case.drain()
    send(case.servers, case.events, events(300), 2)
    case.drain("limits.min_class_events=3")  # after a clean stop: from here on
    (case.folder / "snapshots" / "s-000000000300.safetensors").unlink()
    with pytest.raises(ConfigError, match="min_class_events"), case.open():
        pass


def test_what_is_missing_is_named(case: Case) -> None:
    with pytest.raises(BrokerError, match=r"has no topic .*--create-topics"):
        case.open(create=False).__enter__()
    case.drain()
    send(case.servers, case.events, events(100), 2)
    case.drain()
    for path in (case.folder / "snapshots").glob("s-*"):
        path.unlink()
    with pytest.raises(RecoveryError, match="put the missing file back"), case.open():
        pass


def test_replay_takes_a_topic_as_it_is(case: Case) -> None:
    case.drain()  # makes the topic, with two partitions
    source = RecordedSource.open("bananas", events=20)
    assert replay(case.servers, source, ReplayOptions(case.events, partitions=4)) == 20
    found = read_all(case.servers, case.events)
    assert [len(found[p]) for p in (0, 1)] == [10, 10]
    rest = ReplayOptions(case.events, partitions=2, start=15)
    assert replay(case.servers, source, rest) == 5


def test_a_file_run_and_one_through_a_broker_side_by_side(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")
    pipeline = Path(__file__).parents[2] / "pipelines" / "digits.toml"
    name = f"digits-{uuid.uuid4().hex[:8]}"
    arguments = ["run", str(pipeline), "--quiet", "--set", f"pipeline.name={name}"]
    arguments += ["--set", "metrics.port=0"]
    told = []
    for flags in ([], ["--broker", kafka_broker.servers], ["--broker", kafka_broker.servers]):
        done = CliRunner().invoke(root, [*arguments, *flags])
        assert done.exit_code == 0, done.output
        told.append([line for line in done.stdout.splitlines() if "accuracy" in line])
    assert told[0] == told[1] == told[2]
    accuracy = float(re.findall(r"accuracy\s+([\d.]+) %", told[0][0])[0])
    assert accuracy > 90
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == [name, f"{name}-broker"]
    records = read_all(kafka_broker.servers, f"{name}-broker.predictions")
    predictions = [json.loads(record.value) for record in records[0]]
    new = [p["event"] for p in predictions if p.get("new")]
    assert len(new) == 10  # two classes at the start, another one every 400 events
    assert [event // 400 for event in new] == [0, 0, *range(1, 9)]
