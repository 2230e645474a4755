"""Clients that ask as fast as they get answers, or at a given rate, over connections that stay open."""

from __future__ import annotations

import asyncio
import gc
import json
import selectors
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from streamforest.errors import StreamForestError

_T = TypeVar("_T")


def requests_of(events: Sequence[dict[str, float]], port: int) -> list[bytes]:
    """A request for each event, ready to be sent."""
    made = []
    for x in events:
        body = json.dumps({"x": x}).encode()
        head = (
            f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


def run(asking: Coroutine[Any, Any, _T]) -> _T:
    """Run clients in an event loop that wakes up when it should: that of epoll is up to a millisecond late,
    and a collection of garbage takes many, which would count as the server's time.
    """
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(asking)
    finally:
        gc.enable()


class Connection:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> None:
        """Send a request and read its answer; StreamForestError unless it is a success."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
        body = await self._reader.readexactly(length)
        if b" 200 " not in head[:20]:
            raise StreamForestError(f"the server answered {head[:40]!r}: {body[:200]!r}")

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def saturated(
    port: int, requests: Sequence[bytes], seconds: float, connections: int
) -> float:
    """Answers a second to clients that ask again as soon as they have an answer."""
    count = 0
    until = time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal count
        connection = await Connection.open(port)
        turn = number
        while time.perf_counter() < until:
            await connection.ask(requests[turn % len(requests)])
            turn += connections
            count += 1
        connection.close()

    begun = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(connections)))
    return count / (time.perf_counter() - begun)


@dataclass
class Timed:
    """Seconds of each request."""

    took: list[float] = field(default_factory=list)
    """From the moment it was due to its answer."""
    late: list[float] = field(default_factory=list)
    """From the moment it was due until it was sent, where the connection was free: the clients' own fault."""


async def at_rate(
    port: int, requests: Sequence[bytes], rate: float, seconds: float, connections: int
) -> Timed:
    """The times of requests at a steady rate. A server that is late with one answer is late with those
    behind it on the connection: nothing is left out.
    """
    begun = time.perf_counter() + 0.1
    timed = Timed()

    async def client(number: int) -> None:
        connection = await Connection.open(port)
        for turn in range(number, int(rate * seconds), connections):
            due = begun + turn / rate
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
                timed.late.append(time.perf_counter() - due)
            await connection.ask(requests[turn % len(requests)])
            timed.took.append(time.perf_counter() - due)
        connection.close()

    await asyncio.gather(*(client(number) for number in range(connections)))
    return timed
