"""Requests: what is answered, what is refused, and with what."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.asgi import Response, ask, with_app

from streamforest.io.kafka.auth.secrets import SecretPlace
from streamforest.runtime.config.serving import ServeTable
from streamforest.serve.app import App
from streamforest.serve.batching import Batcher
from streamforest.serve.fixed import FixedModel

TABLE = ServeTable(max_request_bytes=100_000, max_request_events=50)
ABOUT = {"snapshot": "s-1", "commits": False}
EVENT = {"x": {"a": 0.5, "b": 0.2}, "id": "e-1"}
ONE = json.dumps(EVENT).encode()
MSGPACK = {"content-type": "application/msgpack"}


@pytest.fixture
def app(fixed: FixedModel) -> App:
    return App(fixed, TABLE, ABOUT)


def answered(app: App, *arguments: Any, **named: Any) -> Response:
    return with_app(app, ask(app, *arguments, **named))


def test_one_event_gets_one_answer_and_several_get_several(app: App) -> None:
    one = answered(app, "/predict", ONE)
    assert one.status == 200
    assert one.headers["content-type"] == "application/json"
    told = one.json()
    assert told["label"] in ("odd", "even")
    assert {"label", "probability", "top", "model", "learned", "id"} <= told.keys()
    assert "commit" not in told  # a file is of none
    several = answered(app, "/predict", b" [" + ONE + b"," + ONE + b"]")
    assert several.json() == [told, told]
    assert answered(app, "/predict", b"[]").json() == []
    assert answered(app, "/predict", ONE, chunks=5).json() == told


def test_messagepack_in_and_out(app: App) -> None:
    told = answered(app, "/predict", ONE).json()
    packed = msgspec.msgpack.encode(EVENT)
    assert answered(app, "/predict", packed, headers=MSGPACK).json() == told
    several = msgspec.msgpack.encode([EVENT, EVENT])
    response = answered(
        app, "/predict", several, headers={**MSGPACK, "accept": "application/msgpack"}
    )
    assert response.headers["content-type"] == "application/msgpack"
    assert msgspec.msgpack.decode(response.body) == [told, told]


@pytest.mark.parametrize(
    ("body", "query", "headers", "status", "reason"),
    [
        (b"{", b"", {}, 422, "undecodable"),
        (b"", b"", {}, 422, "empty"),
        (b'{"y": 1}', b"", {}, 422, "invalid"),
        (b"[1,", b"", {}, 400, "undecodable"),
        (b'{"x": ' + b"[" * 90_000, b"", {}, 422, "too_deep"),
        (b"[" * 90_000, b"", {}, 400, "undecodable"),
        (b"\xdd\xff\xff\xff\xff", b"", MSGPACK, 400, "undecodable"),
        (b" " * 100_001, b"", {}, 413, "too_large"),
        (b"[" + b",".join([ONE] * 51) + b"]", b"", {}, 413, "too_many"),
        (ONE, b"", {"content-type": "text/plain"}, 415, "unsupported_format"),
        (ONE, b"", {"content-type": ""}, 415, "unsupported_format"),
        (ONE, b"", {"content-type": "application/octet-stream"}, 415, "unsupported_format"),
        (ONE, b"", {"content-encoding": "gzip"}, 415, "unsupported_format"),
        (ONE, b"tpo=3", {}, 400, "invalid_query"),
        (ONE, b"top=0", {}, 400, "invalid_query"),
        (ONE, b"top=x%FF", {}, 400, "invalid_query"),
        (ONE, b"top=3&top=3", {}, 400, "invalid_query"),
        (ONE, b"at_least=-1", {}, 400, "invalid_query"),
        (ONE, b"at_least=1", {}, 400, "no_commits"),
        (ONE, b"wait_seconds=1", {}, 400, "invalid_query"),
        (ONE, b"", {"host": "evil.example"}, 421, "wrong_host"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    app: App, body: bytes, query: bytes, headers: dict[str, str], status: int, reason: str
) -> None:
    response = answered(app, "/predict", body, query=query, headers=headers)
    assert (response.status, response.reason) == (status, reason), response.body
    assert response.body.count(b"\n") == 1
    assert len(response.body) < 2_000


def test_a_body_that_lies_about_its_length_is_cut_off(app: App) -> None:
    response = answered(
        app, "/predict", b"[" * 100_002, headers={"content-length": "2"}, chunks=100
    )
    assert (response.status, response.reason) == (413, "too_large")


def test_unknown_addresses_and_methods(app: App) -> None:
    assert answered(app, "/").reason == "unknown_path"
    assert answered(app, "/labels", ONE).status == 404  # only where it was asked for
    wrong = answered(app, "/predict")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    head = answered(app, "/model", method="HEAD")
    assert (head.status, head.body) == (200, b"")


def test_the_token_is_asked_for_everywhere_but_by_probes(fixed: FixedModel, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("open sesame\n")
    place = SecretPlace("serve.token_file", file=file)
    app = App(fixed, replace(TABLE, token=place), ABOUT)
    for wrong in ({}, {"authorization": "Bearer open"}, {"authorization": "Basic open sesame"}):
        for path in ("/model", "/metrics", "/openapi.json"):
            response = answered(app, path, headers=wrong)
            assert (response.status, response.reason) == (401, "unauthorized")
        assert answered(app, "/predict", ONE, headers=wrong).status == 401
    right = {"authorization": "Bearer open sesame", "host": "replica.example"}
    assert answered(app, "/predict", ONE, headers=right).status == 200
    assert answered(app, "/livez").status == answered(app, "/readyz").status == 200


def test_more_requests_than_the_rate_are_refused(fixed: FixedModel) -> None:
    app = App(fixed, replace(TABLE, max_requests_per_second=3), ABOUT)

    async def asking() -> list[Response]:
        return [await ask(app, "/model") for _ in range(4)]

    told = with_app(app, asking())
    assert [one.status for one in told] == [200, 200, 200, 429]
    assert told[3].headers["retry-after"] == "1"


def test_a_server_that_stops_is_not_ready_and_still_answers(app: App) -> None:
    app.draining = True
    assert answered(app, "/readyz").reason == "stopping"
    response = answered(app, "/predict", ONE)
    assert (response.status, response.headers["connection"]) == (200, "close")


def test_questions_that_come_together_are_answered_together(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one batch is at work the rest waits, and is the next batch; each gets its own answer."""
    sizes: list[int] = []
    usual = Batcher._answer

    def counting(self: Batcher, questions: list[Any]) -> Any:
        sizes.append(len(questions))
        return usual(self, questions)

    monkeypatch.setattr(Batcher, "_answer", counting)
    bodies = [json.dumps({**EVENT, "id": n, "x": {"a": n / 50}}).encode() for n in range(50)]

    async def asking() -> list[Response]:
        return await asyncio.gather(*(ask(app, "/predict", body) for body in bodies))

    told = with_app(app, asking())
    assert [one.json()["id"] for one in told] == list(range(50))
    assert sum(sizes) == 50
    assert max(sizes) > 1
    assert [answered(app, "/predict", body).body for body in bodies] == [one.body for one in told]


def test_the_model_and_the_metrics_tell_what_there_is(app: App) -> None:
    about = answered(app, "/model").json()
    assert about["kind"] == "ConsistentForestClassifier"
    assert (about["events"], about["learned"], about["classes"], about["features"]) == (
        60,
        60,
        2,
        2,
    )
    answered(app, "/predict", b"[" + ONE + b",1]")
    text = answered(app, "/metrics").body.decode()
    assert 'streamforest_serve_requests_total{path="/predict",status="200"} 1.0' in text
    assert 'streamforest_serve_events_total{outcome="refused"} 1.0' in text
    assert "streamforest_serve_behind_seconds 0.0" in text


def test_every_status_is_in_the_openapi_document(app: App) -> None:
    told = answered(app, "/openapi.json").json()
    assert told["openapi"] == "3.1.0"
    assert set(told["paths"]) == set(app._routes)
    responses = told["paths"]["/predict"]["post"]["responses"]
    assert {"200", "400", "413", "415", "422", "429", "503"} <= set(responses)
    text = json.dumps(told)
    schemas = told["components"]["schemas"]
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in schemas


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
_EVENTS = st.fixed_dictionaries(
    {"x": st.dictionaries(st.sampled_from("abc"), _JSON, max_size=3) | st.lists(_JSON, max_size=3)},
    optional={"y": _JSON, "id": _JSON, "ts": _JSON, "coarse": _JSON, "v": _JSON},
)
_BODIES = st.one_of(
    st.binary(max_size=200),
    st.one_of(_JSON, _EVENTS, st.lists(_EVENTS, max_size=3)).map(
        lambda value: json.dumps(value).encode()
    ),
    st.binary(max_size=40).map(lambda raw: b"\x91\x81\xa1x" + raw),
)
_TYPES = st.sampled_from(
    ["application/json", "application/msgpack", "application/octet-stream", "text/html", ""]
)
_QUERIES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([b"", b"top=2", b"at_least=3", b"top=%00", b"a;b", b"=", b"%", b"top"]),
)
_METHODS = st.sampled_from(["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "X"])
_PATHS = st.sampled_from(
    ["/predict"] * 6 + ["/model", "/metrics", "/livez", "/readyz", "/labels", "/é"]
)


_REQUESTS = st.lists(st.tuples(_PATHS, _METHODS, _BODIES, _TYPES, _QUERIES), min_size=1, max_size=5)
_FUZZ = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_FUZZ
@given(_REQUESTS)
def test_no_request_gets_a_traceback_or_a_500(fixed: FixedModel, several: list[Any]) -> None:
    check_all(fixed, several)


@pytest.mark.slow
@settings(_FUZZ, max_examples=2_000)
@given(_REQUESTS)
def test_no_request_of_many_gets_a_traceback_or_a_500(
    fixed: FixedModel, several: list[Any]
) -> None:
    check_all(fixed, several)


def check_all(fixed: FixedModel, several: list[Any]) -> None:
    """Requests at once: none is answered with a 500, and what is refused says why."""
    app = App(fixed, TABLE, ABOUT)

    async def asking() -> list[Response]:
        return await asyncio.gather(
            *(
                ask(app, path, body, method, {"content-type": kind}, query)
                for path, method, body, kind, query in several
            )
        )

    for (path, method, *_), response in zip(several, with_app(app, asking())):
        assert response.status < 500, (path, method, response.body)
        if response.status != 200 and method != "HEAD":
            told = response.json()["error"]
            assert told["reason"]
            assert "Traceback" not in told["message"]
