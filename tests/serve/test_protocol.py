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
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

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


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = (await receive())["body"]
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    if body == b"slow":
        await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": body})


async def told(*pieces: bytes, app: Any = empty) -> tuple[list[bytes], bool]:
    """What a client that sends this gets, and whether the connection is closed then."""
    config = uvicorn.Config(app, log_config=None, lifespan="off")
    config.load()
    protocol = BoundedProtocol(config=config, server_state=ServerState(), app_state={})
    transport = Written()
    protocol.connection_made(transport)
    for piece in pieces:
        protocol.data_received(piece)
    for _ in range(100):
        await asyncio.sleep(0.001 if app is echo else 0)
    closed = transport.closed
    protocol.connection_lost(None)
    return transport.writes, closed


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
        writes, closed = asyncio.run(told(*pieces))
        assert b"".join(writes).count(b"HTTP/1.1 204") == 2
        assert not closed


@pytest.mark.parametrize("before", [b"", HEAD + b"Content-Length: 0\r\n\r\n"])
def test_a_head_without_end_is_cut_off(before: bytes) -> None:
    line = b"a: " + b"b" * 1_000 + b"\r\n"
    writes, closed = asyncio.run(told(before + HEAD, *[line] * (MAX_HEAD // len(line) + 1)))
    assert b"HTTP/1.1 431" in b"".join(writes)
    assert closed


@pytest.mark.parametrize(("body", "parts"), [(b"quick", 1), (b"slow", 2), (b"", 1)])
def test_a_response_is_one_write_unless_its_body_comes_later(body: bytes, parts: int) -> None:
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for several in (1, 2):
        writes, closed = asyncio.run(told(*[request] * several, app=echo))
        sent = [one for one in writes if one]
        assert len(sent) == parts * several
        assert b"".join(sent).count(b"HTTP/1.1 200") == several
        assert b"".join(sent).endswith(b"\r\n\r\n" + body)
        assert not closed


def test_a_head_alone_is_sent_too() -> None:
    """The answer to HEAD has no body, and who asks for 100 Continue waits for it."""
    writes, _ = asyncio.run(told(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n", app=echo))
    assert b"".join(writes).startswith(b"HTTP/1.1 200")
    asks = HEAD + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    writes, _ = asyncio.run(told(asks, app=echo))
    assert writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]
