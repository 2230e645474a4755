"""The HTTP side: `/metrics`, `/livez`, `/readyz`. On 127.0.0.1 unless told otherwise."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Protocol

from prometheus_client import CollectorRegistry, exposition

from streamforest.errors import ConfigError


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
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise ConfigError(
                f"metrics.port = {port}: cannot listen on {host} ({error.strerror}); "
                "choose another with --set metrics.port=…, or 0 for none"
            ) from error
        self._server.daemon_threads = True
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


class _Handler(BaseHTTPRequestHandler):
    metrics: Observed
    timeout = 10
    server_version = "streamforest"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encoder, content_type = exposition.choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, encoder(self.metrics.registry), content_type)
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
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""
