"""`decoder = "module:function"` through a real broker: the shipped example, killed and recovered."""

from __future__ import annotations

import runpy
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from integration.oracle import blocks, committed, read_output
from kafka import KafkaProducer

from streamforest.cli import root
from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing.broker.server import Broker
from streamforest.testing.forked import ForkedConsumer

PIPELINES = Path(__file__).parents[2] / "pipelines"
EXAMPLE = runpy.run_path(str(PIPELINES / "avro_orders.py"))
PLAIN = """
import json

def decode(message):
    told = json.loads(message.value)
    assert isinstance(told, dict)
    x = {{"a": told["a"] * {factor}, "n": len(message.headers)}}
    return {{"x": x, "y": told["y"], "id": message.topic}}

decode.version = {version}
"""
TEXT = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
[events]
decoder = "{module}:decode"
[model]
kind = "consistent"
n_trees = 2
[run]
commit_interval_ms = 50
batch_size = 50
snapshot_interval_events = 100000
folder = "run"
[metrics]
port = 0
"""


def feed(servers: str, topic: str, values: Iterable[bytes]) -> int:
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=20)
    futures = [producer.send(topic, value, partition=0) for value in values]
    producer.flush(timeout=60)
    for future in futures:
        future.get(timeout=10)
    producer.close()
    return len(futures)


def damaged() -> list[bytes]:
    """What a decoder of framed Avro meets in the wild."""
    good = next(EXAMPLE["orders"](1))
    return [
        good[:-3],
        good + b"more",
        b"\0" + (99).to_bytes(4, "big") + good[5:],
        b'{"x": {"a": 1}}',
        b"",
        b"\0\0\0\0\1" + b"\xff" * 40,
        b"x" * 70_000,
    ]


@pytest.mark.slow
def test_the_example_survives_kills_to_the_last_bit(kafka_broker: Broker, tmp_path: Path) -> None:
    """Two pipelines on one topic: one is killed again and again, one is not. Nobody can tell."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    bad = damaged()
    orders = list(EXAMPLE["orders"](3_000, seed=3))
    values = [v for i, order in enumerate(orders) for v in (order, *bad[i % 100 : i % 100 + 1])]
    ways = [
        ("before-commit", 3),
        ("after-produce", 2),
        ("after-commit", 2),
        ("after-snapshot-rename", 2),
    ]
    told = {}
    for name, kills in ((f"calm-{topic}", []), (f"killed-{topic}", ways)):
        names = Topics.of(name, events=topic)
        ensure_topics(kafka_broker.servers, names, create=True, partitions=1)
        if not told:
            feed(kafka_broker.servers, topic, values)
        folder = tmp_path / name
        folder.mkdir()
        settings = [
            *("--set", f"pipeline.name={name}", "--set", f"topics.events={topic}"),
            *(
                "--set",
                f"kafka.bootstrap_servers={kafka_broker.servers}",
                "--set",
                "kafka.session_timeout_ms=2000",
            ),
            *(
                "--set",
                "run.batch_size=100",
                "--set",
                "run.commit_interval_events=200",
                "--set",
                "metrics.port=0",
            ),
            *("--set", "run.snapshot_interval_events=700", "--drain"),
        ]
        for failpoint, passes in kills:
            with ForkedConsumer(
                PIPELINES / "avro.toml",
                *settings,
                failpoint=failpoint,
                passes=passes,
                folder=folder,
            ) as consumer:
                consumer.expect_exit(-9, 200)
        with ForkedConsumer(PIPELINES / "avro.toml", *settings, folder=folder) as consumer:
            consumer.expect_exit(0, 200)
        output = read_output(kafka_broker.servers, name)
        ((_, standing),) = committed(kafka_broker.servers, name, topic).values()
        assert standing["events"] == len(values)
        snapshot = folder / "runs" / name / "snapshots" / f"{standing['snapshot']}.safetensors"
        for one in output.predictions.values():
            one.pop("commit")
        dead = {
            place: (letter["__streamforest.errors.reason"], letter["__streams.errors.message"])
            for place, letter in output.dead.items()
        }
        told[name] = output.predictions, dead, blocks(snapshot.read_bytes())
    calm, killed = told.values()
    assert calm == killed
    predictions, dead, _ = calm
    assert len(predictions) == len(orders)
    assert len(predictions) + len(dead) == len(values)
    reasons = {reason for reason, _ in dead.values()}
    assert reasons == {b"decoder", b"invalid", b"version", b"undecodable", b"too_large", b"empty"}
    assert any(b"avro_orders:decode: EOFError" in message for _, message in dead.values())
    labelled = [one for one in predictions.values() if one["truth"] is not None]
    right = sum(one["label"] == one["truth"] for one in labelled) / len(labelled)
    assert right > 0.9, right
    assert predictions[(0, 0)]["id"] == "order-0"


class Case:
    """A pipeline with a small decoder of its own."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.servers, self.folder = broker.servers, folder
        self.name = f"own-{uuid.uuid4().hex[:8]}"
        self.module = f"decoder_{uuid.uuid4().hex[:8]}"
        self.path = folder / "p.toml"
        self.path.write_text(
            TEXT.format(name=self.name, servers=self.servers, module=self.module), encoding="utf-8"
        )
        ensure_topics(self.servers, Topics.of(self.name), create=True, partitions=1)

    def decoder(self, version: Any = 1, factor: int = 1) -> None:
        sys.modules.pop(self.module, None)
        text = PLAIN.format(version=version, factor=factor)
        (self.folder / f"{self.module}.py").write_text(text)

    def feed(self, n: int) -> None:
        values = (b'{"a": %d, "y": "%d"}' % (i, i % 3) for i in range(n))
        feed(self.servers, f"{self.name}.events", values)

    def run(self, *arguments: str, failpoint: str | None = None) -> tuple[int, str]:
        with ForkedConsumer(
            self.path, "--drain", *arguments, failpoint=failpoint, folder=self.folder
        ) as consumer:
            return consumer.wait_or_fail(120), consumer.log()


@pytest.fixture
def case(kafka_broker: Broker, tmp_path: Path) -> Case:
    return Case(kafka_broker, tmp_path)


def test_another_version_does_not_decode_again_what_one_has_decoded(case: Case) -> None:
    case.decoder(version=1)
    assert case.run()[0] == 0
    case.feed(300)
    assert case.run(failpoint="after-commit")[0] == -9  # events are committed, no snapshot has them
    case.decoder(version=2, factor=5)
    code, log = case.run()
    assert code == 2
    last = log.splitlines()[-1]
    assert f"decoder={case.module}:decode@1" in last
    assert f"decoder={case.module}:decode@2" in last
    assert "run once more with the old settings and stop it cleanly" in last
    case.decoder(version=1)
    assert case.run()[0] == 0  # a clean stop: nothing is left to decode again
    case.decoder(version=2, factor=5)
    case.feed(30)
    assert case.run()[0] == 0
    output = read_output(case.servers, case.name)
    assert len(output.predictions) == 330
    assert {one["id"] for one in output.predictions.values()} == {f"{case.name}.events"}


def test_a_codec_is_not_followed_by_a_decoder(case: Case) -> None:
    case.decoder()
    case.feed(30)  # a run that has read nothing may be changed in any way
    assert case.run()[0] == 0
    text = case.path.read_text()
    case.path.write_text(text.replace(f'decoder = "{case.module}:decode"', 'format = "json"'))
    code, log = case.run()
    assert code == 2
    assert "source.format is 'json' and was 'decoder'" in log


def check(tmp_path: Path, text: str) -> Result:
    path = tmp_path / "c.toml"
    path.write_text('[pipeline]\nname = "p"\n' + text, encoding="utf-8")
    return CliRunner().invoke(root, ["check", str(path)])


def test_check_knows_decoders(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def decode(message):\n    return {}\n")
    kafka = '[kafka]\nbootstrap_servers = "h:1"\n'
    done = check(tmp_path, kafka + '[events]\ndecoder = "mine:decode"\n')
    assert done.exit_code == 0, done.stderr
    assert "mine:decode" in done.stdout
    done = check(
        tmp_path, kafka + '[events]\ndecoder = "nobody:f"\nmax_text_length = 0\nmax_depth = 1\n'
    )
    for part in (
        "events.decoder = 'nobody:f': ModuleNotFoundError: No module named 'nobody'",
        "events.max_text_length = 0: expected a whole number from 1",
        "events.max_depth = 1: expected a whole number from 2",
    ):
        assert part in done.stderr
    done = check(tmp_path, kafka + '[events]\ndecoder = "mine:decode"\nformat = "json"\n')
    assert "format is set too; remove one of the two" in done.stderr
    done = check(tmp_path, '[source]\ndataset = "digits"\n[events]\ndecoder = "mine:decode"\n')
    assert "a data set or table has no messages to decode" in done.stderr


def test_lines_of_a_file_are_decoded_too(tmp_path: Path) -> None:
    (tmp_path / "lines.py").write_text(
        "def decode(message):\n"
        "    a, y = message.value.decode().split()\n"
        "    return {'x': {'a': float(a)}, 'y': y, 'id': message.topic}\n"
    )
    (tmp_path / "e.jsonl").write_text("1 a\n2 b\nnonsense\n3 a\n")
    path = tmp_path / "p.toml"
    path.write_text(
        f'[pipeline]\nname = "p"\n[source]\nfile = "{tmp_path / "e.jsonl"}"\n'
        f'[events]\ndecoder = "lines:decode"\n[run]\nfolder = "{tmp_path / "run"}"\n'
    )
    done = CliRunner().invoke(root, ["run", str(path), "-q"])
    assert done.exit_code == 0, done.stderr
    assert len((tmp_path / "run" / "predictions.jsonl").read_text().splitlines()) == 3
    letter = (tmp_path / "run" / "dead_letters.jsonl").read_text()
    assert "lines:decode: ValueError: not enough values to unpack" in letter
