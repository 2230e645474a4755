"""What a client asks: its body within limits, its query, its format, and whether it may ask at all."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import parse_qsl

import msgspec

from streamforest.observe.requests import is_known
from streamforest.serve.answering import Decoders, Kind
from streamforest.serve.problems import Problem, refuse
from streamforest.text import nearest, shown

Receive = Callable[[], Awaitable[Any]]

BODY_SECONDS = 10.0
"""For the whole body of a request."""
_MAX_QUERY = 2_000  # bytes
_TYPES: dict[str, Kind] = {
    "application/json": "json",
    "application/msgpack": "msgpack",
    "application/x-msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
    "application/octet-stream": "own",
}
CONTENT_TYPES = {kind: name for name, kind in reversed(_TYPES.items())}
"""The usual content type of each format."""
_SPACE = b" \t\r\n"


class Disconnected(Exception):
    """The client has gone: there is nobody to answer."""


@dataclass
class Request:
    """The head of a request."""

    method: str
    path: str
    query: bytes
    headers: dict[str, str]
    body: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, scope: Mapping[str, Any]) -> Request:
        """From the scope of an ASGI server."""
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        return cls(scope["method"], scope["path"], scope["query_string"], headers)

    def header(self, name: str) -> str:
        """A header; empty where it was not sent."""
        return self.headers.get(name, "")

    @property
    def kind(self) -> Kind:
        """The format of the body; Problem for one that is not read."""
        given = self.header("content-type").partition(";")[0].strip().lower()
        kind = _TYPES.get(given)
        if kind is None:
            what = f"content type {shown(given)}" if given else "no content type"
            _unsupported(
                f"{what}: send application/json or application/msgpack, or application/octet-stream "
                "for the format of the pipeline's topic"
            )
        if self.header("content-encoding").strip().lower() not in ("", "identity"):
            _unsupported("content-encoding: send the body as it is, not compressed")
        return kind

    @property
    def wants_msgpack(self) -> bool:
        """Whether the answer is to be MessagePack."""
        return "msgpack" in self.header("accept").lower()

    async def read_body(self, receive: Receive, max_bytes: int) -> None:
        """Read the body; Problem if it is too large or takes too long."""
        length = self.header("content-length")
        if length.isascii() and length.isdigit() and int(length) > max_bytes:
            _too_large(int(length), max_bytes)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                self.body = await _body(receive, max_bytes)
        except TimeoutError:
            raise Problem(
                408, "timeout", f"the body did not arrive within {BODY_SECONDS:g} s"
            ) from None


async def _body(receive: Receive, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            _too_large(size, max_bytes)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts) if len(parts) > 1 else bytes(part)


def _too_large(size: int, most: int) -> NoReturn:
    raise Problem(
        413,
        "too_large",
        f"a body of {size:,} bytes or more, over serve.max_request_bytes={most:,}: send fewer events",
    )


def _unsupported(message: str) -> NoReturn:
    raise Problem(415, "unsupported_format", message)


# ---- one event, or several


def split(body: bytes, kind: Kind, decoders: Decoders, most: int) -> tuple[list[bytes], bool]:
    """The events in a body, each as its own bytes, and whether they came as an array."""
    if kind == "own":
        if decoders.own is None:
            _unsupported(
                "application/octet-stream: the pipeline's topic has no format of its own; send "
                "application/json or application/msgpack"
            )
        return [body], False
    if not _is_array(body, kind):
        return [body], False
    module: Any = msgspec.json if kind == "json" else msgspec.msgpack
    try:
        events = [bytes(raw) for raw in module.decode(body, type=list[msgspec.Raw])]
    except (ValueError, RecursionError) as error:
        raise Problem(400, "undecodable", f"the body is not {_NAMED[kind]}: {error}") from None
    if len(events) > most:
        raise Problem(
            413,
            "too_many",
            f"{len(events):,} events, over serve.max_request_events={most:,}: send fewer at once",
        )
    return events, True


_NAMED = {"json": "JSON", "msgpack": "MessagePack"}


def _is_array(body: bytes, kind: Kind) -> bool:
    if kind == "json":
        return body.lstrip(_SPACE)[:1] == b"["
    first = body[0] if body else 0
    return 0x90 <= first <= 0x9F or first in (0xDC, 0xDD)


# ---- the query


def query_of(request: Request, known: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """The parameters of a query, each read by its function; Problem names one that is wrong."""
    if len(request.query) > _MAX_QUERY:
        refuse("invalid_query", f"a query of {len(request.query):,} bytes, over {_MAX_QUERY:,}")
    values: dict[str, Any] = {}
    pairs = parse_qsl(request.query.decode("latin-1"), keep_blank_values=True, max_num_fields=None)
    for name, text in pairs:
        if name not in known:
            remedy = nearest(name, list(known)) if known else "this address takes none"
            refuse("invalid_query", f"unknown parameter {shown(name)}; {remedy}")
        if name in values:
            refuse("invalid_query", f"{name} is given twice")
        try:
            values[name] = known[name](text)
        except ValueError as error:
            refuse("invalid_query", f"{name}={shown(text)}: {error}")
    return values


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """A function that reads a whole number within bounds."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise ValueError(f"expected a whole number from {least:,} to {most:,}")
        number = int(text)
        if not least <= number <= most:
            raise ValueError(f"expected a whole number from {least:,} to {most:,}")
        return number

    return read


# ---- who may ask, and how often


class Guard:
    """Lets those ask who know the token; without one, only who asks this very machine by its address."""

    def __init__(self, token: str | None, check_host: bool) -> None:
        self._token = None if token is None else token.encode()
        self._check_host = check_host

    def check(self, request: Request) -> None:
        """Problem if the request may not be answered."""
        if self._token is not None:
            scheme, _, given = request.header("authorization").partition(" ")
            right = hmac.compare_digest(given.strip().encode("latin-1", "replace"), self._token)
            if scheme.lower() != "bearer" or not right:
                raise Problem(
                    401,
                    "unauthorized",
                    "send the token of this server: Authorization: Bearer …",
                    {"www-authenticate": "Bearer"},
                )
        elif self._check_host and not is_known(request.header("host"), ()):
            # a web page may let its own name point here: see observe/requests.py
            raise Problem(
                421,
                "wrong_host",
                f"Host: {shown(request.header('host'))} is no name of this server; ask by address or "
                "localhost, or give the server a token",
            )


class RateLimit:
    """So many requests a second, and as many at once after a rest of a second.

    >>> limit = RateLimit(2)
    >>> [limit.take(at) for at in (10.0, 10.0, 10.0, 10.5, 10.5)]
    [0.0, 0.0, 0.5, 0.0, 0.5]
    """

    def __init__(self, per_second: int | None) -> None:
        self._rate = per_second
        self._left = float(per_second or 0)
        self._at = 0.0

    def take(self, now: float | None = None) -> float:
        """0 if a request may be answered now, else the seconds to wait."""
        if self._rate is None:
            return 0.0
        now = time.monotonic() if now is None else now
        self._left = min(float(self._rate), self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0
