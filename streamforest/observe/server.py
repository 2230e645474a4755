"""The HTTP side: the live page, `/metrics`, `/livez`, `/readyz`. On 127.0.0.1 unless set otherwise.

Anybody who can connect can ask, and what a client does wrong is no traceback. All connections are served by
one thread, which never waits for any of them; what takes time is worked out by two others. So a connection
costs next to nothing, and probes are always answered:

- Whoever has not yet asked holds one of `MAX_WAITING` places; the oldest is dropped for the newest.
- `/livez` and `/readyz` are answered at once, whatever else is asked for. Anything else has one of
  `MAX_ANSWERS` places, and is asked to come back where there is none.
- A first line has 2 s, a whole request and its answer 10 s.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from types import TracebackType
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, exposition

from streamforest.errors import ConfigError
from streamforest.observe.page.site import HEADERS, Site
from streamforest.observe.requests import Refused, Request, check_host, parse, plain_name

log = logging.getLogger(__name__)

MAX_WAITING = 128
"""Connections at a time that have not asked, or are asked to leave."""
MAX_ANSWERS = 16
"""Answers at a time, beside those to probes."""
_LINE_SECONDS = 2.0  # for the first line
_SECONDS = 10.0  # for a whole request and its answer
_PARTING_SECONDS = 1.0  # for a client to hang up; for answers under way when the server stops
_LONGEST = 8_192  # bytes of a line
_LARGEST = 16_384  # bytes of a head
_AT_ONCE = (
    16  # accepted in one turn of the loop: few enough that none is dropped before it was read
)
_QUEUE = 1_024  # connections that the system holds until they are accepted; a fuller one costs a client 1 s
_WARN_EVERY = 60.0  # seconds
_TEXT = "text/plain; charset=utf-8"


class Observed(Protocol):
    """What the server needs of metrics."""

    registry: CollectorRegistry

    def why_not_ready(self) -> str | None:
        """None while it is at work."""

    def why_not_alive(self) -> str | None:
        """None unless only a new start helps."""

    def status(self) -> str:
        """What it is, in a few words; empty where nobody knows."""


@dataclass(frozen=True)
class _Answer:
    """What is said to a request."""

    status: HTTPStatus
    body: bytes
    kind: str = _TEXT
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self, with_body: bool = True) -> bytes:
        """In one piece: whoever dies in between has not said half of it."""
        fields = {
            "Server": "streamforest",
            "Date": formatdate(usegmt=True),
            "Content-Type": self.kind,
            "Content-Length": str(len(self.body)),
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.0 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return head + self.body if with_body else head


class MetricsServer:
    """Serves the metrics of a run from a thread of its own.

    `allowed` are the names, beside addresses and localhost, by which clients may ask for it.
    """

    def __init__(
        self,
        metrics: Observed,
        host: str,
        port: int,
        allowed: Collection[str] = (),
        site: Site | None = None,
    ) -> None:
        self._metrics = metrics
        self._site = site
        self._allowed = {plain_name(name) for name in (host, *allowed)}
        try:
            self._socket = _listening(host, port)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "no such host"
            raise ConfigError(
                f"metrics.port = {port}: cannot listen on {host} ({reason}); "
                "choose another with --set metrics.port=…, or 0 for none"
            ) from error
        self.port = int(self._socket.getsockname()[1])
        self._probes: dict[str, Callable[[], _Answer]] = {
            "/livez": lambda: _health("alive", metrics.why_not_alive()),
            "/readyz": lambda: _health("ready", metrics.why_not_ready(), metrics.status()),
        }
        self._pages: dict[str, Callable[[Request], Awaitable[_Answer]]] = {
            "/metrics": self._everything,
        }
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="metrics")
        self._waiting: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._answering: set[asyncio.Task[Any]] = set()
        self._dropped, self._warned = 0, -_WARN_EVERY
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="metrics")

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(3 * _PARTING_SECONDS)
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._socket.close()

    # ---- in the thread of its own

    def _serve(self) -> None:
        try:
            asyncio.run(self._until_stopped())
        except Exception as error:
            log.error("metrics are no longer served", exc_info=error)
        finally:
            self._started.set()

    async def _until_stopped(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(_unexpected)
        server = await asyncio.start_server(
            self._connected, sock=self._socket, limit=_LONGEST, backlog=_AT_ONCE
        )
        self._socket.listen(_QUEUE)  # the loop takes the backlog for how many it accepts in a turn
        self._started.set()
        await self._stopping.wait()
        server.close()
        for writer in self._waiting:
            writer.transport.abort()
        if self._answering:
            await asyncio.wait(self._answering, timeout=_PARTING_SECONDS)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection from its beginning to its end; nothing that happens leaves it."""
        until = self._loop.time() + _SECONDS
        try:
            async with asyncio.timeout_at(until):
                self._wait(writer)
                request = await _asked(reader)
                self._waiting.pop(writer, None)
                if request is not None:
                    await self._converse(request, writer)
            if self._stopping.is_set():
                return
            async with asyncio.timeout(_PARTING_SECONDS):
                self._wait(writer)
                if writer.can_write_eof():
                    writer.write_eof()
                # closed with something unread, the connection would be reset and the answer lost
                while await reader.read(_LARGEST):
                    pass
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # gone, too slow, or the server stops: nothing to speak of
        except Exception as error:
            log.error("a request for metrics could not be answered", exc_info=error)
        finally:
            self._waiting.pop(writer, None)
            writer.transport.abort()  # all that was to be sent is with the system by now

    def _wait(self, writer: asyncio.StreamWriter) -> None:
        """Give a connection a place among those from which nothing is known; the oldest has to go."""
        self._waiting[writer] = None
        if len(self._waiting) <= MAX_WAITING:
            return
        oldest = next(iter(self._waiting))
        del self._waiting[oldest]
        oldest.transport.abort()
        self._dropped += 1
        now = time.monotonic()
        if now - self._warned >= _WARN_EVERY:
            log.warning(
                "metrics: more than %d connections ask nothing; the oldest are dropped, %d so far",
                MAX_WAITING,
                self._dropped,
            )
            self._warned = now

    async def _converse(self, request: Request | Refused, writer: asyncio.StreamWriter) -> None:
        """Answer, and wait until the system has all of it."""
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            if isinstance(request, Refused):
                answer, with_body = _refusal(request), True
            else:
                answer, with_body = await self._answer(request), request.method != "HEAD"
            writer.transport.set_write_buffer_limits(0)
            writer.write(answer.encoded(with_body))
            await writer.drain()
        finally:
            self._answering.discard(task)

    async def _answer(self, request: Request) -> _Answer:
        try:
            if request.path not in self._probes:
                check_host(request, self._allowed)
            if request.method not in ("GET", "HEAD"):
                raise Refused(
                    HTTPStatus.METHOD_NOT_ALLOWED, "use GET or HEAD", {"Allow": "GET, HEAD"}
                )
            if request.path in self._probes:
                return self._probes[request.path]()
            if len(self._answering) > MAX_ANSWERS:  # this one is among them
                reason = f"{MAX_ANSWERS} answers are under way; try again"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, reason, {"Retry-After": "1"})
            return await self._pages.get(request.path, self._page)(request)
        except Refused as refused:
            return _refusal(refused)
        except Exception as error:
            log.error("a request for metrics could not be answered", exc_info=error)
            return _Answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"failed; the log says why\n")

    async def _everything(self, request: Request) -> _Answer:
        """`/metrics`, worked out beside the loop: with many classes it takes a while."""
        accept = request.field("accept")
        body, kind = await self._loop.run_in_executor(
            self._workers, _encoded, self._metrics.registry, accept
        )
        return _Answer(HTTPStatus.OK, body, kind)

    async def _page(self, request: Request) -> _Answer:
        """The live page, its files and its numbers."""
        found = None
        if self._site is not None:
            found = await self._loop.run_in_executor(self._workers, self._site.answer, request.path)
        if found is None:
            there = "/, /metrics" if self._site is not None else "/metrics"
            raise Refused(HTTPStatus.NOT_FOUND, f"there are {there}, /livez and /readyz")
        body, kind = found
        return _Answer(HTTPStatus.OK, body, kind, HEADERS)


async def _asked(reader: asyncio.StreamReader) -> Request | Refused | None:
    """The request of a connection, or why it is none; None if the client left before it was whole."""
    fields: list[bytes] = []
    try:
        async with asyncio.timeout(_LINE_SECONDS):
            line = await reader.readline()
        if not line.endswith(b"\n"):
            return None
        size = len(line)
        parse(line, ())  # what is no request has no fields to wait for
        while (more := await reader.readline()).strip(b"\r\n"):
            size += len(more)
            if size > _LARGEST:
                raise ValueError
            fields.append(more)
        return parse(line, fields) if more else None
    except ValueError:
        return Refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"lines up to {_LONGEST:,} bytes and {_LARGEST:,} bytes in all are read",
        )
    except Refused as refused:
        return refused


def _refusal(refused: Refused) -> _Answer:
    return _Answer(refused.status, f"{refused.why}\n".encode(), headers=refused.headers)


def _health(what: str, why_not: str | None, more: str = "") -> _Answer:
    if why_not is None:
        return _Answer(HTTPStatus.OK, (f"{what}: {more}\n" if more else f"{what}\n").encode())
    reason = f"{why_not} ({more})" if more else why_not
    return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"not {what}: {reason}\n".encode())


def _encoded(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The metrics in the form that a client asks for; plain text where nobody understands what it says."""
    try:
        encoder, kind = exposition.choose_encoder(accept)
        return encoder(registry), kind
    except (ValueError, TypeError, KeyError, IndexError):
        encoder, kind = exposition.choose_encoder("")
        return encoder(registry), kind


def _listening(host: str, port: int) -> socket.socket:
    """A socket at the first address of a host; at one of IPv4 where it has both."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    listening = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there it would let two servers share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_QUEUE)
    except OSError:
        listening.close()
        raise
    return listening


def _unexpected(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the loop itself complains of; a client that went away is nothing to speak of."""
    error = context.get("exception")
    if error is None or not isinstance(error, ConnectionError):
        log.warning("metrics server: %s (%s)", context.get("message"), error)
