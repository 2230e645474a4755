"""The HTTP side: `/metrics`, `/livez`, `/readyz`. On 127.0.0.1 unless told otherwise.

Anybody who can connect can ask: so many at once are answered, each has so long for all it says, and what a
client does wrong is no traceback.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, exposition

from streamforest.errors import ConfigError

log = logging.getLogger(__name__)

MOST = 16
"""Connections at a time; more are turned away."""
_SECONDS = 10.0  # for a whole request and its answer
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


class Observed(Protocol):
    """What the server needs of metrics."""

    registry: CollectorRegistry

    def why_not_ready(self) -> str | None:
        """None while it is at work."""

    def why_not_alive(self) -> str | None:
        """None unless only a new start helps."""

    def stands(self) -> str:
        """What it is, in a few words; empty where nobody knows."""


class MetricsServer:
    """Serves the metrics of a run from a thread of its own."""

    def __init__(self, metrics: Observed, host: str, port: int) -> None:
        handler = type("Handler", (_Handler,), {"metrics": metrics})
        try:
            self._server = _Server((host, port), handler)
        except OSError as error:
            raise ConfigError(
                f"metrics.port = {port}: cannot listen on {host} ({error.strerror}); "
                "choose another with --set metrics.port=…, or 0 for none"
            ) from error
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> MetricsServer:
        threading.Thread(target=self._server.serve_forever, daemon=True, name="metrics").start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        self._places = threading.BoundedSemaphore(MOST)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for a connection, while there are places."""
        if not self._places.acquire(blocking=False):
            with contextlib.suppress(OSError):  # gone already
                request.send(_BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In that thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or was too slow, is nothing to speak of."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            log.error("a request for metrics could not be answered", exc_info=error)


class _InTime(io.RawIOBase):
    """What a client says until a moment; TimeoutError after that, however little it says at a time."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self._until = connection, until

    def readable(self) -> bool:
        """For the buffer around it."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Some bytes."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    metrics: Observed
    wbufsize = -1  # an answer leaves in one piece: whoever dies in between has not said half of it
    server_version = "streamforest"
    sys_version = ""

    def setup(self) -> None:
        """One deadline for everything."""
        self._until = time.monotonic() + _SECONDS
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_InTime(self.connection, self._until))

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, *_encoded(self.metrics.registry, self.headers.get("Accept", "")))
        elif path == "/livez":
            self._tell("alive", self.metrics.why_not_alive())
        elif path == "/readyz":
            self._tell("ready", self.metrics.why_not_ready(), self.metrics.stands())
        else:
            self._answer(404, b"there are /metrics, /livez and /readyz\n")

    def _tell(self, what: str, why_not: str | None, more: str = "") -> None:
        if why_not is None:
            self._answer(200, f"{what}: {more}\n".encode() if more else f"{what}\n".encode())
        else:
            told = f"{why_not} ({more})" if more else why_not
            self._answer(503, f"not {what}: {told}\n".encode())

    def _answer(self, code: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.connection.settimeout(max(1.0, self._until - time.monotonic()))
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


def _encoded(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The metrics in the form that a client asks for; plain text where nobody understands what it says."""
    try:
        encoder, kind = exposition.choose_encoder(accept)
        return encoder(registry), kind
    except (ValueError, TypeError, KeyError, IndexError):
        encoder, kind = exposition.choose_encoder("")
        return encoder(registry), kind
