"""The server as an ASGI application: seven addresses, every answer one line of JSON (or MessagePack).

It is written against ASGI itself: with so few addresses there is nothing for a framework to do, and a layer
in between costs each request time. What a client does wrong is a `Problem` with a status and a reason, and
never a traceback.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from streamforest.runtime.config.serving import ServeTable
from streamforest.serve import metrics, openapi
from streamforest.serve.answering import Answer, Question, Refusal
from streamforest.serve.batching import Batcher, Model
from streamforest.serve.labels import LabelPublisher
from streamforest.serve.problems import Problem, refuse, unavailable
from streamforest.serve.requests import (
    CONTENT_TYPES,
    Disconnected,
    Guard,
    RateLimit,
    Receive,
    Request,
    query_of,
    split,
    whole_number,
)
from streamforest.text import shown

log = logging.getLogger(__name__)

Send = Callable[[Any], Awaitable[None]]
Body = tuple[bytes, str]
"""The bytes of an answer and their content type."""

_JSON, _MSGPACK = "application/json", "application/msgpack"
_MAX_WAITERS = 1_000  # requests that wait for a commit
_WAIT_SECONDS = 5
_OPEN = ("/livez", "/readyz")
"""Answered to anybody, whatever the load: probes have no token."""
_PREDICT: Mapping[str, Callable[[str], Any]] = {
    "at_least": whole_number(0, 2**63 - 1),
    "wait_seconds": whole_number(0, 30),
    "top": whole_number(1, 1_000),
}


class App:
    """Answers requests about one model."""

    def __init__(
        self,
        model: Model,
        settings: ServeTable,
        about: Mapping[str, Any],
        labels: LabelPublisher | None = None,
    ) -> None:
        """`about` is said of the model at `/model`."""
        self.model, self.settings = model, settings
        self.draining = False
        self.metrics = metrics.ServeMetrics(model)
        self._about, self._labels = dict(about), labels
        self._batcher: Batcher | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        token = None if settings.token is None else settings.token.read().reveal()
        self._guard = Guard(token, check_host=settings.tls_client_cafile is None)
        self._limit = RateLimit(settings.max_requests_per_second)
        self._routes: dict[str, dict[str, Callable[[Request, Receive], Awaitable[Body]]]] = {
            "/predict": {"POST": self._predict},
            "/model": {"GET": self._model},
            "/metrics": {"GET": self._metrics},
            "/openapi.json": {"GET": self._openapi},
            "/livez": {"GET": self._livez},
            "/readyz": {"GET": self._readyz},
        }
        if labels is not None:
            self._routes["/labels"] = {"POST": self._publish}

    def start(self) -> None:
        """Begin to answer, in the running event loop."""
        loop = asyncio.get_running_loop()
        self._batcher = Batcher(self.model, loop)
        self._batcher.start()

        def reached(commit: int) -> None:
            loop.call_soon_threadsafe(self._reached, commit)

        self.model.on_commit = reached

    def close(self) -> None:
        """End, after what waits was answered."""
        self.model.on_commit = lambda commit: None
        if self._batcher is not None:
            self._batcher.close()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        begun = time.perf_counter()
        request = Request.of(scope)
        headers: Mapping[str, str] = {}
        try:
            body, kind = await self._respond(request, receive)
            status = 200
        except Disconnected:
            return
        except Problem as problem:
            status, headers = problem.status, problem.headers
            body, kind = encoded(problem.body), _JSON
        except Exception as error:  # a bug; the client is told no more than that
            log.exception("a request could not be answered: %s", type(error).__name__)
            wrong = Problem(500, "internal", "internal error: the server's log says more")
            status, body, kind = wrong.status, encoded(wrong.body), _JSON
        fields = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        fields += [(name.encode(), value.encode()) for name, value in headers.items()]
        if self.draining:
            fields.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send(
            {"type": "http.response.body", "body": b"" if request.method == "HEAD" else body}
        )
        path = request.path if request.path in self._routes else "other"
        self.metrics.answered(path, status, time.perf_counter() - begun)

    async def _respond(self, request: Request, receive: Receive) -> Body:
        methods = self._routes.get(request.path)
        if methods is None:
            known = ", ".join(self._routes)
            raise Problem(404, "unknown_path", f"no {shown(request.path)} here; there is {known}")
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allowed = ", ".join(methods)
            raise Problem(
                405, "wrong_method", f"{request.path} takes {allowed}", {"allow": allowed}
            )
        if request.path not in _OPEN:
            self._guard.check(request)
            seconds = self._limit.take()
            if seconds:
                raise Problem(
                    429,
                    "too_many_requests",
                    f"over serve.max_requests_per_second={self.settings.max_requests_per_second}",
                    {"retry-after": str(math.ceil(seconds))},
                )
        return await handler(request, receive)

    # ---- predictions

    async def _predict(self, request: Request, receive: Receive) -> Body:
        query = query_of(request, _PREDICT)
        kind = request.kind
        await request.read_body(receive, self.settings.max_request_bytes)
        events, several = split(
            request.body, kind, self.model.decoders, self.settings.max_request_events
        )
        self._check_age()
        if "at_least" in query:
            await self._await_commit(query["at_least"], query.get("wait_seconds", _WAIT_SECONDS))
        elif "wait_seconds" in query:
            refuse("invalid_query", "wait_seconds: has no effect without at_least")
        assert self._batcher is not None
        told: list[Answer | Refusal] = []
        if events:
            question = Question(events, kind, query.get("top", self.model.top))
            told = await self._batcher.ask(question)
            self._check_age()
            if any(_is_before(query.get("at_least", -1), one) for one in told):
                # it was loaded again meanwhile
                raise unavailable("not_yet", "the model was loaded again, and is not there yet")
        refused = sum(isinstance(one, Refusal) for one in told)
        self.metrics.events(len(told) - refused, refused)
        return self._told(request, told, several)

    def _told(self, request: Request, told: list[Any], several: bool) -> Body:
        if not several and isinstance(told[0], Refusal):
            raise Problem(422, told[0].error.reason, told[0].error.message)
        if request.wants_msgpack:
            return msgspec.msgpack.encode(told if several else told[0], enc_hook=str), _MSGPACK
        return encoded(told if several else told[0]), _JSON

    def _check_age(self) -> None:
        """Problem if answers may be older than the bound."""
        behind, most = self.model.behind_seconds(), self.settings.max_behind_seconds
        why = self.model.trouble()
        because = "" if why is None else f" ({why})"
        if behind is None:
            raise unavailable("not_ready", f"the model is being loaded{because}")
        if behind > most:
            raise unavailable(
                "too_far_behind",
                f"commits of the last {behind:.1f} s may be missing, over "
                f"serve.max_behind_seconds={most}{because}",
            )

    async def _await_commit(self, wanted: int, seconds: int) -> None:
        """Until answers are of this commit or a later one; Problem if that takes longer."""
        if self.model.commit >= wanted:
            return
        if self._about.get("commits") is False:
            refuse("no_commits", "at_least: a model from a snapshot file is of no commit")
        if len(self._waiters) >= _MAX_WAITERS:
            raise unavailable("busy", f"{_MAX_WAITERS:,} requests wait for a commit already")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = wanted, future
        self._waiters.append(waiter)
        try:
            if self.model.commit < wanted:  # asked again: it may have come in between
                await asyncio.wait_for(future, seconds)
        except TimeoutError:
            raise unavailable(
                "not_yet", f"answers are of commit {self.model.commit}, before at_least={wanted}"
            ) from None
        finally:
            self._waiters.remove(waiter)

    def _reached(self, commit: int) -> None:
        for wanted, future in self._waiters:
            if wanted <= commit and not future.done():
                future.set_result(None)

    # ---- labels

    async def _publish(self, request: Request, receive: Receive) -> Body:
        assert self._labels is not None
        query_of(request, {})
        kind = request.kind
        if kind != self._labels.kind:
            raise Problem(
                415,
                "unsupported_format",
                "labels are published as they come: send them in the format of the topic, "
                f"{CONTENT_TYPES[self._labels.kind]}",
            )
        await request.read_body(receive, self.settings.max_request_bytes)
        values, several = split(
            request.body, kind, self.model.decoders, self.settings.max_request_events
        )
        told = await self._labels.publish(self.model, values)
        return self._told(request, told, several)

    # ---- what it is, and how it is

    async def _model(self, request: Request, receive: Receive) -> Body:
        query_of(request, {})

        def described() -> dict[str, Any]:
            with self.model.reading() as view:
                model = view.state.models[view.main]
                parameters = {name: str(v) for name, v in model.parameters().items()}
                return {
                    **{key: value for key, value in self._about.items() if key != "commits"},
                    "model": view.main,
                    "kind": parameters.pop("kind"),
                    "commit": view.commit,
                    "events": view.state.events,
                    "learned": model.n_learned,
                    "classes": len(model.classes_),
                    "features": len(view.state.gate.features),
                    "parameters": parameters,
                }

        return encoded(await asyncio.to_thread(described)), _JSON

    async def _metrics(self, request: Request, receive: Receive) -> Body:
        query_of(request, {})
        return self.metrics.exposition(), metrics.CONTENT_TYPE

    async def _openapi(self, request: Request, receive: Receive) -> Body:
        query_of(request, {})
        settings = self.settings
        guarded = settings.token is not None
        made = openapi.document(settings.max_request_events, self._labels is not None, guarded)
        return encoded(made), _JSON

    async def _livez(self, request: Request, receive: Receive) -> Body:
        if self._batcher is None or not self._batcher.is_alive():
            raise unavailable("dead", "the thread that answers has ended")
        if not self.model.alive():
            raise unavailable("dead", f"the replica follows no longer ({self.model.trouble()})")
        return encoded({"alive": True}), _JSON

    async def _readyz(self, request: Request, receive: Receive) -> Body:
        if self.draining:
            raise unavailable("stopping", "the server is about to stop")
        self._check_age()
        behind = self.model.behind_seconds()
        return encoded(
            {"ready": True, "commit": self.model.commit, "behind_seconds": behind}
        ), _JSON


def _is_before(commit: int, told: Answer | Refusal) -> bool:
    """Whether an answer is of an earlier commit; a snapshot's is of none, and nobody can ask it for one."""
    return isinstance(told, Answer) and told.commit is not None and told.commit < commit


def encoded(told: Any) -> bytes:
    """One line of JSON."""
    return msgspec.json.encode(told, enc_hook=str) + b"\n"
