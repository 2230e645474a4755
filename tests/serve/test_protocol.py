"""The bound on the head of a request: for a head without end, and for nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from streamforest.serve.protocol import MAX_HEAD, BoundedProtocol


class Written(asyncio.Transport):
    """A connection of which only what was written is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Nothing is read."""

    def resume_reading(self) -> None:
        """Nothing is read."""


async def empty(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


async def told(*pieces: bytes) -> tuple[bytes, bool]:
    """What a client that sends this gets, and whether the connection is closed then."""
    config = uvicorn.Config(empty, log_config=None, lifespan="off")
    config.load()
    protocol = BoundedProtocol(config=config, server_state=ServerState(), app_state={})
    transport = Written()
    protocol.connection_made(transport)
    for piece in pieces:
        protocol.data_received(piece)
    for _ in range(100):
        await asyncio.sleep(0)
    closed = transport.closed
    protocol.connection_lost(None)
    return transport.written, closed


HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_what_came_before_a_head_is_no_part_of_it(cut: int) -> None:
    body = b"x" * (MAX_HEAD + 1)
    first = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    second = HEAD + b"Content-Length: 0\r\n\r\n"
    half = len(body) // 2
    for pieces in (
        (first + body + second[:cut], second[cut:]),
        (first + body[:half], body[half:] + second[:cut], second[cut:]),
    ):
        written, closed = asyncio.run(told(*pieces))
        assert written.count(b"HTTP/1.1 204") == 2
        assert not closed


@pytest.mark.parametrize("before", [b"", HEAD + b"Content-Length: 0\r\n\r\n"])
def test_a_head_without_end_is_cut_off(before: bytes) -> None:
    line = b"a: " + b"b" * 1_000 + b"\r\n"
    written, closed = asyncio.run(told(before + HEAD, *[line] * (MAX_HEAD // len(line) + 1)))
    assert b"HTTP/1.1 431" in written
    assert closed
