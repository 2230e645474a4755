"""Avro in a schema registry's wire format, with a real HTTP server that answers as a registry does."""

from __future__ import annotations

import datetime as dt
import io
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from integration.oracle import read_output
from integration.test_kinds_of_topics import Case

from streamforest.errors import ConfigError, EventError, RecoveryError, StreamForestError
from streamforest.io.codec import registry
from streamforest.io.codec.events import Bounds
from streamforest.io.codec.registry import SchemaStore, avro_decoder
from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.loop import Run
from streamforest.testing.broker.server import Broker

fastavro = pytest.importorskip("fastavro")

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "colour", "type": ["null", "string"], "default": None},
        {"name": "label", "type": ["null", "string"]},
    ],
}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "days", "type": "int"}]}  # type: ignore[misc]


class Handler(BaseHTTPRequestHandler):
    schemas: ClassVar[dict[int, dict[str, Any]]] = {
        1: {"schema": json.dumps(FIRST)},
        2: {"schema": json.dumps(SECOND), "schemaType": "AVRO"},
        3: {"schema": "{}", "schemaType": "PROTOBUF"},
        4: {"schema": json.dumps(FIRST), "references": [{"name": "other"}]},
        5: {"schema": '{"type": "nonsense"}'},
    }
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        number = int(self.path.rsplit("/", 1)[1])
        found = self.schemas.get(number)
        told = found or {"error_code": 40403, "message": "Schema not found"}
        body = json.dumps(told).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is printed."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Handler.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def url(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def framed(number: int, record: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    schema = {1: FIRST, 2: SECOND}[number]
    fastavro.schemaless_writer(body, fastavro.parse_schema(dict(schema)), record)
    return b"\0" + number.to_bytes(4, "big") + body.getvalue()


def order(i: int) -> dict[str, Any]:
    return {
        "amount": Decimal(i % 2 * 500 + i % 7) / 100,
        "placed": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=i),
        "colour": [None, "red", "blue"][i % 3],
        "label": "big" if i % 2 else "small",
        "days": i,
    }


def messages(n: int) -> list[bytes]:
    found = [framed(1 if i < n // 2 else 2, order(i)) for i in range(n)]
    found[7] = b"\0\0\0\0\x63" + found[7][5:]  # a schema that nobody knows
    found[8] = b"not framed"
    found[9] = found[9][:8]
    return found


def test_avro_is_read_and_recovery_needs_no_registry(
    server: ThreadingHTTPServer, kafka_broker: Broker, tmp_path: Path
) -> None:
    case = Case(kafka_broker, tmp_path)
    ensure_topics(case.servers, Topics.of(case.name), create=True, partitions=1)
    case.send((value, []) for value in messages(600))
    settings = [
        "events.format=avro",
        f"events.registry={url(server)}",
        "features.label=label",
        "run.batch_size=20",
        "run.commit_interval_events=40",
        "run.snapshot_interval_seconds=3600",
    ]

    def end(run: Run) -> None:
        if run.events >= 400:
            raise InterruptedError

    pipeline = load_pipeline(case.path, {}, settings)
    with opened(pipeline, drain=True) as run, pytest.raises(InterruptedError):
        run.consume(watch=end)
    assert sorted(Handler.asked) == ["/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/99"]
    kept = sorted(path.name for path in (tmp_path / "run" / "schemas").iterdir())
    assert kept == ["1.json", "2.json", "99.unknown"]
    server.shutdown()
    server.server_close()
    with opened(load_pipeline(case.path, {}, settings), drain=True) as run:
        assert run.consume() == "finished"
        state = run.state
    assert len(Handler.asked) == 3
    assert {column.name: column.type for column in state.reader.describe()} == {
        "amount": "number",
        "placed": "date",
        "colour": "category",
        "days": "number",
    }
    output = read_output(case.servers, case.name)
    assert len(output.predictions) == 597
    reasons = [output.dead[0, i]["__streamforest.errors.reason"] for i in (7, 8, 9)]
    assert reasons == [b"version", b"undecodable", b"undecodable"]
    assert state.models["main"].n_learned == 597
    case.send([(framed(1, order(0))[:4] + b"\x08" + framed(1, order(0))[5:], [])])
    with (
        pytest.raises(
            StreamForestError, match=r"schema 8 cannot be read \(URLError: .*start again"
        ),
        opened(load_pipeline(case.path, {}, settings), drain=True) as run,
    ):
        run.consume()


def test_schemas_that_cannot_be_used_are_named(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    store = SchemaStore(url(server), tmp_path / "schemas")
    decode = avro_decoder(store, Bounds())
    for number, told in (
        (3, "schema 3 is 'PROTOBUF', but events.format = 'avro'"),
        (4, "schema 4 refers to other schemas; use events.decoder"),
        (5, "schema 5 is not valid"),
        (6, "the registry knows no schema 6"),
    ):
        for _ in range(2):
            with pytest.raises(EventError, match=told) as caught:
                decode(b"\0" + number.to_bytes(4, "big") + b"body")
            assert caught.value.reason == "version"
    assert len(Handler.asked) == 4
    with pytest.raises(EventError, match="bytes are left over"):
        decode(framed(1, order(1)) + b"more")
    (tmp_path / "schemas" / "1.json").write_bytes(b"[")
    with pytest.raises(RecoveryError, match=r"1\.json: cannot be read"):
        SchemaStore(url(server), tmp_path / "schemas").schema(1)


def test_unknown_schemas_are_bounded(
    server: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_MAX_UNKNOWN", 3)
    store = SchemaStore(url(server), tmp_path / "schemas")
    for number in range(50, 60):
        with pytest.raises(EventError, match=f"schema {number}"):
            store.schema(number)
    assert len(Handler.asked) == 3


def test_a_registry_that_fails_is_asked_again(tmp_path: Path) -> None:
    waits: list[float] = []
    store = SchemaStore("http://127.0.0.1:9", tmp_path / "schemas", sleep=waits.append)
    with pytest.raises(
        StreamForestError, match=r"events.registry = 'http://127.0.0.1:9': schema 1"
    ):
        store.schema(1)
    assert waits == [0.5, 1.0, 2.0, 4.0]
    assert not (tmp_path / "schemas").exists()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["events.format=avro"], "events.registry: missing; give the address"),
        (["events.registry=http://a:1"], "has no effect with format = 'json'"),
        (["events.format=avro", "events.registry=ftp://a"], "the address of a schema registry"),
        (
            ["events.format=avro", "events.registry=http://u:p@a"],
            "the address of a schema registry",
        ),
    ],
)
def test_what_is_wrong_with_the_settings_is_said(
    tmp_path: Path, settings: list[str], told: str
) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[pipeline]\nname = "p"\n[kafka]\nbootstrap_servers = "a:1"\n')
    with pytest.raises(ConfigError, match=told):
        load_pipeline(path, {}, settings)
