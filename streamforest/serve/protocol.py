"""uvicorn's protocol with bounds on the head of a request, which it does not have itself.

A client could otherwise send a head without end, or none at all, and hold memory and a connection for ever.

And with one write for each response: uvicorn sends the head by itself, which wakes the client twice.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 << 10
"""Bytes of the head of a request."""
HEAD_SECONDS = 10.0
"""From the first byte of a connection, or of a further request, to the end of its head."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class OneWrite:
    """A transport that sends the head of a response together with what follows it."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send, unless it is a head: that waits for its body, no longer than this turn of the loop."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Send what is held, and hang up."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        data, self._head = self._head, b""
        if data and not self._transport.is_closing():
            self._transport.write(data)


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    _in_head = True
    _head = 0
    _ended = False
    """Whether a head has ended within the bytes at hand."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """A client has gone."""
        self._disarm()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """The first byte of a head."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The last byte of a head."""
        self._in_head, self._head, self._ended = False, 0, True
        self._disarm()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request, or of several."""
        whole, self._ended = self._in_head, False
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        if whole and not self._ended:  # else a part of it is of requests before
            self._head += len(data)
        if self._head > MAX_HEAD:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._deadline is None:
            self._arm()

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()
