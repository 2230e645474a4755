"""Whoever may write to a topic chooses labels, ids, names, keys and headers. To us they are only text."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import subprocess
import sys
import urllib.request
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from integration.oracle import read_all, read_output
from kafka import KafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from streamforest import StreamForestClassifier
from streamforest.cli import root
from streamforest.io.codec.dead_letters import REASONS
from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.observe.logs import JsonLines, Lines
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.server import MetricsServer
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.loop import Run
from streamforest.testing.broker.server import Broker
from streamforest.text import printable

NASTY = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "c1": "\x9b31mred",
    "clear": "\x1b[2J\x1b[H",
    "markup": "[bold red]x[/bold red][link=http://evil.example]y[/link]",
    "unbalanced": "[/red]",
    "lines": 'a\nError: forged\r{"level": "error"}',
    "nul": "a\0b",
    "bidi": "invoice\u202efdp.exe\u2066",
    "invisible": "pay\u200bpal\ufeff",
    "separators": "a\u2028b\u2029c\x85d",
    "erase": "safe\x08\x08\x08\x08evil",
    "quotes": "\"'\\{}=,`$(id)",
    "percent": "%s%n%(message)s{0.__class__}",
    "long": "L" * 256,
    "combining": "Z\u0351\u036b\u0343\u036a" * 30,
}
MAIN = "from streamforest.__main__ import main; main()"
PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
[model]
kind = "consistent"
n_trees = 2
[dead_letters]
policy = "{policy}"
[run]
commit_interval_ms = 100
folder = "{folder}"
[metrics]
port = 0
"""


def harmless(text: str, lines: int | None = None) -> None:
    """No character but printable ones and line ends, and no more of those than we wrote."""
    assert all(c.isprintable() or c == "\n" for c in text), ascii(text)
    if lines is not None:
        assert text.count("\n") == lines, ascii(text)


class Case:
    """A pipeline of its own."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.servers = broker.servers
        self.name = f"strange-{uuid.uuid4().hex[:8]}"
        self.events = f"{self.name}.events"
        self.folder, self.path = folder / "run", folder / "p.toml"
        self.write()
        ensure_topics(self.servers, Topics.of(self.name), create=True, partitions=1)

    def write(self, policy: str = "dead-letter") -> None:
        told = {"name": self.name, "servers": self.servers, "folder": self.folder}
        self.path.write_text(PIPELINE.format(policy=policy, **told), encoding="utf-8")

    def send(self, *messages: dict[str, Any], topic: str | None = None) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers)
        for message in messages:
            producer.send(topic or self.events, **message).get(timeout=20)
        producer.close()

    def open(self, **arguments: Any) -> AbstractContextManager[Run]:
        return opened(load_pipeline(self.path), drain=True, **arguments)

    def invoke(self, *arguments: str, **environ: str) -> Result:
        return CliRunner().invoke(root, list(arguments), env=environ)


@pytest.fixture
def case(kafka_broker: Broker, tmp_path: Path) -> Case:
    return Case(kafka_broker, tmp_path)


def event(text: str) -> bytes:
    """An event with the text in every place that has one."""
    return json.dumps({"id": text, "ts": text, "x": {text: 1.0, "c": text}, "y": text}).encode()


def refused(text: str) -> bytes:
    """An event that is refused for a name that is too long, in words that quote the text."""
    return json.dumps({"x": {(text * 300)[:300]: 1.0}, "y": "fine"}).encode()


def all_of_them() -> list[dict[str, Any]]:
    """Every text as label, id, name, category, key, header and header name, good and bad events."""
    messages = []
    for text in NASTY.values():
        headers = [(text, text.encode()), ("traceparent", text.encode())]
        messages += [{"value": event(text), "key": text.encode(), "headers": headers}] * 3
        messages.append({"value": refused(text), "headers": headers})
    return messages


def test_metrics_are_parsed_and_their_labels_are_text(case: Case) -> None:
    case.send(*all_of_them())
    metrics = PipelineMetrics(case.name, REASONS)
    with (
        MetricsServer(metrics, "127.0.0.1", 0) as server,
        case.open(telemetry=metrics) as run,
    ):
        assert run.consume() == "finished"
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as got:
            text = got.read().decode()
    harmless(text)
    families = list(text_string_to_metric_families(text))
    labels = [v for f in families for s in f.samples for v in s.labels.values()]
    assert len(labels) > 50
    for label in labels:
        harmless(label, lines=0)
        assert len(label) <= 700, "64 characters, each an escape at the worst"
    classes = {s.labels["class"] for f in families for s in f.samples if "class" in s.labels}
    assert r"\x1b[31mred\x1b[0m" in classes
    output = read_output(case.servers, case.name)
    assert len(output.predictions) == 3 * len(NASTY)
    assert len(output.dead) == len(NASTY)
    truths = {one["truth"] for one in output.predictions.values()}
    assert truths == set(NASTY.values()), "what is published is the text as it came"


def test_dead_letters_are_listed_as_text(case: Case) -> None:
    case.send(*all_of_them())
    with case.open() as run:
        run.consume()
    listed = case.invoke("dlq", "list", str(case.path))
    assert listed.exit_code == 0
    harmless(listed.stdout, lines=len(NASTY) + 1)
    told = case.invoke("dlq", "list", str(case.path), "--json").stdout.splitlines()
    assert len(told) == len(NASTY)
    for line in told:
        harmless(line)
        assert json.loads(line)["reason"] == "too_long"


def test_forged_dead_letters_are_text_too_and_go_nowhere(case: Case, kafka_broker: Broker) -> None:
    """Who may write dead letters may say anything of where they came from."""
    other = f"secret-{uuid.uuid4().hex[:8]}"
    ensure_topics(kafka_broker.servers, Topics.of(other), create=True, partitions=1)

    def letter(**said: str) -> dict[str, Any]:
        headers = {"topic": case.events, "partition": "0", "offset": "0", "message": "m", **said}
        told = [(f"__streams.errors.{key}", text.encode()) for key, text in headers.items()]
        return {"value": b"forged", "headers": told}

    forged = [letter(topic=text, exception=text, message=text) for text in NASTY.values()]
    forged += [
        letter(topic=f"{other}.events"),
        letter(partition="7"),
        letter(partition="-1"),
        letter(offset="-5"),
        letter(offset="9" * 30),
    ]
    case.send(*forged, topic=f"{case.name}.dlq")
    listed = case.invoke("dlq", "list", str(case.path))
    assert listed.exit_code == 0, listed.output
    harmless(listed.stdout, lines=len(forged) + 1)
    again = case.invoke("dlq", "replay", str(case.path))
    assert again.exit_code == 0, again.output
    assert (
        again.stdout == f"1 sent back, {len(forged) - 1} left out\n"
    )  # a huge offset harms nobody
    assert read_all(kafka_broker.servers, f"{other}.events") == {0: []}


@pytest.mark.parametrize("kind", NASTY)
def test_an_error_that_quotes_them_is_one_line(case: Case, kind: str) -> None:
    case.write(policy="stop")
    case.send({"value": event(NASTY[kind])}, {"value": refused(NASTY[kind])})
    done = case.invoke("run", str(case.path), "--drain", "-q")
    assert done.exit_code == 1
    harmless(done.stderr, lines=1)
    assert json.loads(done.stderr)["level"] == "error"
    assert len(done.stderr) < 4_500


def test_a_terminal_shows_only_our_own_control_characters(case: Case) -> None:
    """The whole command on a terminal of its own: progress bar, log lines, report."""
    case.send(*all_of_them(), *[{"value": event(f"\x1b[3{i % 8}mlabel {i}")} for i in range(200)])
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "run", str(case.path), "--drain"],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "STREAMFOREST_QUIET": "1"},
    )
    os.close(theirs)
    seen = bytearray()
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the last one at the other end has left
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait(60) == 0, seen
    assert b"ready at event" in seen, "log lines were on this terminal"
    for kind in (
        "colour",
        "title",
        "c1",
        "clear",
        "nul",
        "bidi",
        "invisible",
        "separators",
        "erase",
    ):
        assert NASTY[kind].encode() not in seen, kind
    assert b"\x1b]0;" not in seen
    assert b"mlabel" not in seen


@pytest.mark.parametrize("formatter", [Lines(), JsonLines()], ids=["text", "json"])
def test_a_log_line_is_one_line(formatter: logging.Formatter) -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    for text in [*NASTY.values(), "\ud800 lone", "x" * 100_000]:
        record = logging.LogRecord("a.b", logging.WARNING, "f", 1, "label %s", (text,), None)
        handler.handle(record)
    lines = out.getvalue().splitlines()
    assert len(lines) == len(NASTY) + 2
    for line in lines:
        harmless(line)
        assert len(line) < 1_300
        if isinstance(formatter, JsonLines):
            assert set(json.loads(line)) == {"time", "level", "logger", "message"}


def test_an_explanation_of_a_prediction_is_text() -> None:
    model = StreamForestClassifier(n_trees=2, seed=1)
    texts = [*NASTY.values(), "h" * 10_000]
    for i in range(300):
        text = texts[i % len(texts)]
        model.learn_one({"n": float(i % len(texts)), text: text}, text)
    for text in texts:
        told = model.debug_one({"n": 1.0, text: text})
        harmless(told)
        assert max(map(len, told.splitlines())) < 500


def test_a_file_with_a_strange_name_is_replayed_or_refused_as_text(
    case: Case, tmp_path: Path, kafka_broker: Broker
) -> None:
    for name in ("[bold]x[red].jsonl", "a\x1b[31m.jsonl", "b\nc.jsonl", "[nope.jsonl"):
        file = tmp_path / name
        file.write_bytes(event("x") + b"\n")
        sending = [
            "replay",
            str(file),
            "--bootstrap-servers",
            kafka_broker.servers,
            "--partitions",
            "1",
        ]
        done = case.invoke(*sending)
        assert done.exit_code == 1  # no name for a topic
        harmless(done.stderr, lines=1)
        assert "cannot be created: a topic's name has letters" in done.stderr
        drawn = case.invoke(*sending, FORCE_COLOR="1", TTY_COMPATIBLE="1", COLUMNS="200").stderr
        assert printable(name) in drawn, "the bar shows it as text"
        assert name.isprintable() or name not in drawn
        done = case.invoke(*sending, "--topic", case.events)
        assert done.exit_code == 0, done.output


def test_header_names_that_are_no_text_stop_nothing(case: Case) -> None:
    """kafka-python calls the partition corrupt, at this record, for ever."""

    class Raw(str):
        """A header's name as bytes that are no UTF-8."""

        def encode(self, *args: Any, **kwargs: Any) -> bytes:
            return b"\xff\xfe\x1b[31m"

    good = {"value": b'{"x": {"a": 1}, "y": "b"}'}
    bad = {**good, "headers": [(Raw("x"), b"1"), ("traceparent", b"2")]}
    case.send(good, bad, bad, good, {**bad, "value": b"{"})
    with case.open() as run:
        assert run.consume() == "finished"
        assert run.events == 5
    output = read_output(case.servers, case.name)
    assert (len(output.predictions), len(output.dead)) == (4, 1)
    (records,) = read_all(case.servers, f"{case.name}.predictions").values()
    assert dict(records[1].headers) == {"\\xff\\xfe\x1b[31m": b"1", "traceparent": b"2"}


def test_each_limit_has_its_own_dead_letters(case: Case) -> None:
    with case.path.open("a") as file:
        file.write("[events]\nmax_bytes = 2000\nmax_text_length = 20\nmax_depth = 4\n")
    messages: list[tuple[bytes, bytes]] = [
        (b'{"x": {"a": 1}, "y": "b", "more": [[[1]]]}', b""),
        (b'{"x": {"a": 1}, "y": "b", "more": [[[[1]]]]}', b"too_deep"),
        (b'{"x": {"a": 1}, "y": "%s"}' % (b"l" * 21), b"too_long"),
        (b'{"x": {"%s": 1}, "y": "b"}' % (b"n" * 21), b"too_long"),
        (b'{"x": {"a": 1}, "y": "b", "id": "%s"}' % (b"i" * 21), b"too_long"),
        (b'{"x": {"a": 1}, "y": "b", "pad": "%s"}' % (b"p" * 2000), b"too_large"),
    ]
    case.send(*({"value": value} for value, _ in messages))
    with case.open() as run:
        run.consume()
    dead = read_output(case.servers, case.name).dead
    for offset, (value, reason) in enumerate(messages):
        letter = dead.get((0, offset), {"__streamforest.errors.reason": b"", "value": value})
        assert (letter["__streamforest.errors.reason"], letter["value"]) == (reason, value)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_compressed_messages_are_read(case: Case, codec: str) -> None:
    producer = KafkaProducer(bootstrap_servers=case.servers, compression_type=codec, linger_ms=50)
    for i in range(20):
        producer.send(case.events, json.dumps({"x": {"a": i}, "y": i % 2}).encode())
    producer.close()
    with case.open() as run:
        run.consume()
        assert run.events == 20
