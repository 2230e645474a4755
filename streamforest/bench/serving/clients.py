"""Clients that ask as fast as they get answers, or at a given rate, over connections that stay open."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from streamforest.errors import StreamForestError


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


async def at_rate(
    port: int, requests: Sequence[bytes], rate: float, seconds: float, connections: int
) -> list[float]:
    """Seconds from the moment each request was due to its answer, at a steady rate. A server that is late
    with one answer is late with those behind it: nothing is left out.
    """
    begun = time.perf_counter() + 0.1
    took: list[float] = []

    async def client(number: int) -> None:
        connection = await Connection.open(port)
        for turn in range(number, int(rate * seconds), connections):
            due = begun + turn / rate
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            await connection.ask(requests[turn % len(requests)])
            took.append(time.perf_counter() - due)
        connection.close()

    await asyncio.gather(*(client(number) for number in range(connections)))
    return took
