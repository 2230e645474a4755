"""Asks an ASGI application directly: requests as a server would hand them over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """The reason of a problem."""
        return str(self.json()["error"]["reason"])


async def ask(
    app: Any,
    path: str,
    body: bytes | None = None,
    method: str | None = None,
    headers: Mapping[str, str] | None = None,
    query: bytes = b"",
    chunks: int = 1,
) -> Response:
    """The answer to one request; a body makes it a POST of JSON."""
    sent = {"host": "localhost", **({} if body is None else {"content-type": "application/json"})}
    sent.update(headers or {})
    raw = body or b""
    size = max(1, -(-len(raw) // chunks))
    parts = [raw[i : i + size] for i in range(0, len(raw), size)] or [b""]
    messages = [
        {"type": "http.request", "body": part, "more_body": n + 1 < len(parts)}
        for n, part in enumerate(parts)
    ]
    scope = {
        "type": "http",
        "method": method or ("GET" if body is None else "POST"),
        "path": path,
        "query_string": query,
        "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in sent.items()],
    }
    told: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    await app(scope, receive, send)
    fields = {k.decode(): v.decode() for k, v in told[0]["headers"]}
    return Response(told[0]["status"], fields, told[1]["body"])


def with_app(app: Any, asking: Coroutine[Any, Any, T]) -> T:
    """Run some requests against a started application."""

    async def run() -> T:
        app.start()
        try:
            return await asking
        finally:
            app.close()

    return asyncio.run(run())
