"""The metrics server and clients that do not behave."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from integration.waiting import until
from prometheus_client import CollectorRegistry, Gauge

from streamforest.observe import server
from streamforest.observe.server import MOST, MetricsServer

ASK = b"GET /livez HTTP/1.0\r\n\r\n"


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        Gauge("one", "One.", registry=self.registry).set(1)

    def why_not_ready(self) -> str | None:
        return None

    def why_not_alive(self) -> str | None:
        return None

    def stands(self) -> str:
        return ""


@pytest.fixture
def serving() -> Iterator[MetricsServer]:
    with MetricsServer(Metrics(), "127.0.0.1", 0) as serving:
        yield serving


def connected(serving: MetricsServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", serving.port), timeout=30)


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other side ends it."""
    found = b""
    try:
        while more := connection.recv(65_536):
            found += more
    except ConnectionResetError:
        pass
    return found


def asked(serving: MetricsServer, request: bytes) -> bytes:
    with closing(connected(serving)) as connection:
        connection.sendall(request)
        return rest(connection)


def test_so_many_at_once_are_answered(
    serving: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SECONDS", 600.0)
    with ExitStack() as stack:
        silent = [stack.enter_context(closing(connected(serving))) for _ in range(MOST)]
        with closing(connected(serving)) as another:  # says nothing: it is turned away unasked
            assert rest(another).startswith(b"HTTP/1.0 503")
        silent[3].sendall(ASK)
        assert rest(silent[3]).endswith(b"alive\n")
        until(lambda: asked(serving, ASK).endswith(b"alive\n"))
    until(lambda: asked(serving, ASK).endswith(b"alive\n"))


def test_a_request_has_an_end_however_slowly_it_is_said(
    serving: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SECONDS", 0.5)
    with closing(connected(serving)) as slow:
        slow.sendall(b"GET /livez HTTP/1.0\r\nX: ")
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
    with caplog.at_level(logging.ERROR):
        for said in (b"", b"GET /met", b"GET /metrics HTTP/1.0\r\n\r\n"):
            connection = connected(serving)
            connection.sendall(said)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()  # a reset, not an end
        assert asked(serving, ASK).endswith(b"alive\n")
        until(lambda: serving._server._places._value == MOST)  # all of them are done with
    assert capfd.readouterr().err == ""
    assert not caplog.records
