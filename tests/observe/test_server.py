"""The metrics server and clients that do not behave."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from integration.waiting import until
from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.registry import Collector

from streamforest.errors import ConfigError
from streamforest.observe import server
from streamforest.observe.server import MAX_ANSWERS, MAX_WAITING, MetricsServer

ASK = b"GET /livez HTTP/1.0\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.0\r\n\r\n"
PROBES = {"/livez": b"alive\n", "/readyz": b"ready\n"}


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        Gauge("one", "One.", registry=self.registry).set(1)

    def why_not_ready(self) -> str | None:
        return None

    def why_not_alive(self) -> str | None:
        return None

    def status(self) -> str:
        return ""


class Slow(Collector):
    """A metric that is not worked out before it may be; and a large one."""

    def __init__(self, size: int = 0) -> None:
        self.asked, self.may = threading.Semaphore(0), threading.Event()
        self._text = "x" * size

    def collect(self) -> Iterable[Metric]:
        self.asked.release()
        self.may.wait(60)
        yield Metric("slow", self._text, "gauge")

    def describe(self) -> Iterable[Metric]:
        return []


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def serving(metrics: Metrics) -> Iterator[MetricsServer]:
    with MetricsServer(metrics, "127.0.0.1", 0, ["consumer", "Metrics.Example.org."]) as serving:
        yield serving


def connected(serving: MetricsServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", serving.port), timeout=30)


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other side ends it."""
    found = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(65_536):
            found += more
    return found


def asked(serving: MetricsServer, request: bytes) -> bytes:
    with closing(connected(serving)) as connection:
        with suppress(ConnectionError):  # it may have heard enough
            connection.sendall(request)
        return rest(connection)


def probed(serving: MetricsServer, times: int = 20) -> None:
    """Every probe is answered, and soon."""
    for _ in range(times):
        for path, answer in PROBES.items():
            begun = time.monotonic()
            told = asked(serving, f"GET {path} HTTP/1.1\r\nHost: any.name\r\n\r\n".encode())
            assert told.startswith(b"HTTP/1.0 200 OK\r\n")
            assert told.endswith(answer)
            assert time.monotonic() - begun < 1


def code(told: bytes) -> int:
    return int(told.split()[1])


@pytest.mark.parametrize("count", [16, 200])
@pytest.mark.parametrize(
    "said",
    [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: consumer\r\nX: "],
    ids=["nothing", "half a line", "half a head"],
)
def test_probes_are_answered_whoever_else_is_connected(
    serving: MetricsServer, monkeypatch: pytest.MonkeyPatch, count: int, said: bytes
) -> None:
    monkeypatch.setattr(server, "_LINE_SECONDS", 600.0)
    monkeypatch.setattr(server, "_SECONDS", 600.0)
    before = threading.active_count()
    with ExitStack() as stack:
        idle = []
        for _ in range(count):
            idle.append(stack.enter_context(closing(connected(serving))))
            idle[-1].sendall(said)
        probed(serving)
        assert threading.active_count() <= before + 2
        dropped = count + 1 - MAX_WAITING
        for connection in idle[: max(0, dropped)]:  # the oldest, and only they
            assert rest(connection) == b""
        if said == b"":
            idle[-1].sendall(ASK)
            assert rest(idle[-1]).endswith(b"alive\n")
        if dropped <= 0:
            idle[0].sendall(b"\r\n\r\n" if said else METRICS)
            assert code(rest(idle[0])) == (400 if said.endswith(b"met") else 200)
    until(lambda: not serving._waiting)


def test_dropped_connections_are_told_of(
    serving: MetricsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "MAX_WAITING", 2)
    with caplog.at_level(logging.WARNING), ExitStack() as stack:
        idle = [stack.enter_context(closing(connected(serving))) for _ in range(6)]
        for connection in idle[:4]:
            assert rest(connection) == b""
    (record,) = caplog.records
    assert "more than 2 connections ask nothing; the oldest are dropped" in record.getMessage()


@pytest.mark.parametrize(
    ("said", "limit"),
    [(b"GET /livez", "_LINE_SECONDS"), (b"GET /livez HTTP/1.0\r\nX: ", "_SECONDS")],
    ids=["line", "head"],
)
def test_a_request_has_an_end_however_slowly_it_is_said(
    serving: MetricsServer, monkeypatch: pytest.MonkeyPatch, said: bytes, limit: str
) -> None:
    assert (server._LINE_SECONDS, server._SECONDS) == (2.0, 10.0)
    monkeypatch.setattr(server, limit, 0.5)
    with closing(connected(serving)) as slow:
        slow.sendall(said)
        slow.settimeout(0.05)
        for _ in range(600):  # each word comes well in time
            try:
                slow.sendall(b"x")
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("still listened to after 30 s")


def test_so_many_at_once_are_answered_beside_probes(
    serving: MetricsServer, metrics: Metrics
) -> None:
    slow = Slow()
    metrics.registry.register(slow)
    with ExitStack() as stack:
        held = [stack.enter_context(closing(connected(serving))) for _ in range(MAX_ANSWERS)]
        for connection in held:
            connection.sendall(METRICS)
        until(lambda: len(serving._answering) == MAX_ANSWERS)
        more = asked(serving, METRICS)
        assert code(more) == 503
        assert b"\r\nRetry-After: 1\r\n" in more
        probed(serving, 5)
        slow.may.set()
        for connection in held:
            assert b"\none 1.0\n" in rest(connection)
    assert code(asked(serving, METRICS)) == 200


def test_whoever_does_not_read_holds_nobody_up(
    serving: MetricsServer, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SECONDS", 1.0)
    large = Slow(20_000_000)
    large.may.set()
    metrics.registry.register(large)
    with closing(connected(serving)) as silent:
        silent.sendall(METRICS)
        until(lambda: len(serving._answering) == 1)
        probed(serving, 5)
        until(lambda: not serving._answering, 30)
        assert len(rest(silent)) < 20_000_000, "it ended in the middle"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:9108", 200),
        ("10.1.2.3:80", 200),
        ("[::1]", 200),
        ("[::1]:9108", 200),
        ("[fe80::1]:9108", 200),
        ("localhost", 200),
        ("LOCALHOST:9108", 200),
        ("localhost.:9108", 200),
        ("consumer", 200),
        ("consumer:9108", 200),
        ("metrics.example.org", 200),
        ("METRICS.example.org.:1", 200),
        ("evil.example", 421),
        ("evil.example:9108", 421),
        ("consumer.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("[evil.example]:9108", 421),
        ("127.1", 421),
        ("", 421),
        (":9108", 421),
        ("a b\x1b[31m", 421),
        ("\xff" * 300, 421),
    ],
)
def test_a_page_of_a_strangers_cannot_ask(serving: MetricsServer, host: str, expected: int) -> None:
    head = f"HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1")
    told = asked(serving, b"GET /metrics " + head)
    assert code(told) == expected
    if expected == 421:
        _, _, body = told.partition(b"\r\n\r\n")
        assert b"metrics.allowed_hosts" in body
        assert body.decode().rstrip("\n").isprintable()
        assert b"one 1.0" not in told
    assert code(asked(serving, b"GET /other " + head)) == (404 if expected == 200 else 421)
    for path in PROBES:
        assert code(asked(serving, f"GET {path} ".encode() + head)) == 200


def test_a_request_of_http_1_1_has_one_host(serving: MetricsServer) -> None:
    for head, expected in (
        (b"HTTP/1.0\r\n\r\n", 200),
        (b"HTTP/1.1\r\n\r\n", 400),
        (b"HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
    ):
        assert code(asked(serving, b"GET /metrics " + head)) == expected
        assert code(asked(serving, b"GET /livez " + head)) == 200


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/livez?verbose", "/other"])
def test_head_is_get_without_the_body(serving: MetricsServer, path: str) -> None:
    def parts(method: str) -> tuple[list[bytes], bytes]:
        request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        head, _, body = asked(serving, request).partition(b"\r\n\r\n")
        return [line for line in head.split(b"\r\n") if not line.startswith(b"Date: ")], body

    (lines, body), (same, nothing) = parts("GET"), parts("HEAD")
    assert lines == same
    assert f"Content-Length: {len(body)}".encode() in lines
    assert body
    assert nothing == b""


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /livez\r\n", 400),
        (b"GET /livez HTTP/1.0 more\r\n\r\n", 400),
        (b"GET /livez HTTP/x.y\r\n\r\n", 400),
        (b"GET /livez HTTP/2.0\r\n\r\n", 505),
        (b"G\x00T /livez HTTP/1.0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", 400),
        (b"GET http://evil/metrics HTTP/1.0\r\n\r\n", 404),
        (b"GET /\xff HTTP/1.0\r\n\r\n", 404),
        (b"GET /../metrics HTTP/1.0\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE /livez HTTP/1.0\r\n\r\n", 405),
        (b"GET /metrics HTTP/1.0\r\nno field\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.0\r\n : x\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.0\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET /" + b"x" * 10_000 + b" HTTP/1.0\r\n\r\n", 431),
        (b"x" * 1_000_000, 431),
        (b"GET /livez HTTP/1.0\r\nX: " + b"x" * 10_000 + b"\r\n\r\n", 431),
        (b"GET /livez HTTP/1.0\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"GET /livez HTTP/1.0\r\n" + (b"X: " + b"y" * 4_000 + b"\r\n") * 5 + b"\r\n", 431),
        (b"GET /livez HTTP/1.0\n\n", 200),
        (b"GET /livez HTTP/1.1\r\n\r\nGET /livez HTTP/1.1\r\n\r\n", 200),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else None,
)
def test_bad_requests_are_told_so(
    serving: MetricsServer, caplog: pytest.LogCaptureFixture, request_: bytes, expected: int
) -> None:
    told = asked(serving, request_)
    assert code(told) == expected
    assert told.count(b"\r\nDate: ") == 1
    assert (b"\r\nAllow: GET, HEAD\r\n" in told) is (expected == 405)
    assert not caplog.records


@pytest.mark.parametrize(
    "accept", ["text/plain;version=abc", "a/b;q=x", ";;,=", "text/plain;version="]
)
def test_what_nobody_understands_is_answered_in_plain_text(
    serving: MetricsServer, accept: str
) -> None:
    told = asked(serving, f"GET /metrics HTTP/1.0\r\nAccept: {accept}\r\n\r\n".encode())
    assert told.startswith(b"HTTP/1.0 200")
    assert b"\none 1.0\n" in told


def test_a_client_that_goes_away_is_no_traceback(
    serving: MetricsServer, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for said in (b"", b"GET /met", METRICS):
            connection = connected(serving)
            connection.sendall(said)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()  # a reset, not an end
        assert asked(serving, ASK).endswith(b"alive\n")
        until(lambda: not serving._waiting and not serving._answering)
    assert capfd.readouterr().err == ""
    assert not caplog.records


def test_what_fails_here_is_logged_and_said_in_one_line(
    serving: MetricsServer,
    metrics: Metrics,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing() -> str | None:
        raise RuntimeError("secret")

    monkeypatch.setattr(metrics, "why_not_ready", failing)
    told = asked(serving, b"GET /readyz HTTP/1.0\r\n\r\n")
    assert code(told) == 500
    assert b"secret" not in told
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert code(asked(serving, ASK)) == 200


def test_it_stops_with_the_answers_that_are_under_way(metrics: Metrics) -> None:
    slow = Slow()
    metrics.registry.register(slow)
    with ExitStack() as stack:
        with MetricsServer(metrics, "127.0.0.1", 0) as serving:
            idle = stack.enter_context(closing(connected(serving)))
            busy = stack.enter_context(closing(connected(serving)))
            busy.sendall(METRICS)
            assert slow.asked.acquire(timeout=30)
            threading.Timer(0.1, slow.may.set).start()
        assert b"\none 1.0\n" in rest(busy)
        assert rest(idle) == b""
        with pytest.raises(ConnectionRefusedError):
            connected(serving)
    until(lambda: not any(t.name.startswith("metrics") for t in threading.enumerate()))


def test_it_listens_where_it_is_told_to(metrics: Metrics) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with (
        MetricsServer(metrics, "::1", 0) as serving,
        closing(socket.create_connection(("::1", serving.port), timeout=30)) as connection,
    ):
        connection.sendall(ASK)
        assert rest(connection).endswith(b"alive\n")


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b", "x" * 300])
def test_a_host_that_is_none_is_named(metrics: Metrics, host: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on .* choose another"):
        MetricsServer(metrics, host, 0)
