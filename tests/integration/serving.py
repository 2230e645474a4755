"""Servers as processes for tests: replicas of a group, asked over HTTP, and judged by the journal."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from pathlib import Path
from typing import Any

from integration.groups import Group
from integration.oracle import answer, journal_order, read_all
from integration.waiting import get

from streamforest import ConsistentForestClassifier
from streamforest.testing.broker.server import free_port
from streamforest.testing.forked import ForkedConsumer

JSON = {"content-type": "application/json"}
PROBES = [
    {"id": n, "x": {f"f{j}": round((n * (j + 1)) % 7 + j / 10, 2) for j in range(10)}}
    for n in range(8)
]


class Served(ForkedConsumer):
    """`streamforest serve` as a child process."""

    command = "serve"

    def __init__(self, target: Path, *arguments: str, tls: ssl.SSLContext | None = None) -> None:
        self.port = free_port()
        super().__init__(target, "--port", str(self.port), *arguments, folder=None)
        self._tls = tls

    def says(self) -> tuple[int, Any]:
        """Whether it is ready."""
        status, text = get(f"http://127.0.0.1:{self.port}/readyz")
        return status, json.loads(text) if text else None

    def connect(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=30, context=self._tls
            )
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and what is said, by a connection of its own."""
        connection = self.connect()
        try:
            return asked(connection, path, body, headers)
        finally:
            connection.close()


def asked(
    connection: http.client.HTTPConnection,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Status and what is said."""
    raw = None if body is None else json.dumps(body).encode()
    sent = {**({} if raw is None else JSON), **(headers or {})}
    connection.request("GET" if raw is None else "POST", path, raw, sent)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


class Answers:
    """What replicas have said of each probe, by commit; and that none of it was too old.

    Every third request is a single event, which a server answers without the making of a batch.
    """

    def __init__(self, bound: float) -> None:
        self.bound = bound
        self.by_commit: dict[int, set[str]] = {}
        self.requests = 0
        self.refused = 0
        self._known: list[tuple[float, int]] = []

    def committed(self, commit: int) -> None:
        """This commit was made by now."""
        self._known.append((time.monotonic(), commit))

    def take(self, connection: http.client.HTTPConnection) -> None:
        """Ask a replica once."""
        begun = time.monotonic()
        one = PROBES[self.requests // 3 % len(PROBES)] if self.requests % 3 == 0 else None
        status, told = asked(connection, "/predict", one or PROBES)
        self.requests += 1
        if status == 503:
            self.refused += 1
            return
        assert status == 200, told
        told = [told] if one else told
        commit = told[0]["commit"]
        assert {one["commit"] for one in told} == {commit}
        old = max((c for at, c in self._known if at < begun - self.bound), default=-1)
        assert commit >= old, f"an answer of commit {commit}, {self.bound} s after commit {old}"
        self.by_commit.setdefault(commit, set()).update(json.dumps(one) for one in told)

    def all_alike(self) -> bool:
        """Whether each probe got one answer for each commit, to the byte, whoever gave it."""
        return all(
            len({json.loads(text)["id"] for text in texts}) == len(texts)
            for texts in self.by_commit.values()
        )

    def judge(self, group: Group) -> None:
        """Every answer is what a forest says that has learned the journal up to its commit."""
        inputs = {
            p: {r.offset: r for r in records}
            for p, records in read_all(group.servers, group.topic).items()
        }
        (records,) = read_all(group.servers, f"{group.name}.journal").values()
        journal = [json.loads(record.value) for record in records]
        order = journal_order(journal, {p: len(found) for p, found in inputs.items()})
        model = ConsistentForestClassifier(n_trees=3, seed=0)
        kinds: dict[Any, bool] = {}
        events = iter([*order, (len(journal), (-1, -1))])
        commit, place = next(events)
        for entry in journal:
            while commit <= entry["commit"]:
                answer(model, inputs[place[0]][place[1]].value, kinds)
                commit, place = next(events)
            for text in self.by_commit.pop(entry["commit"], ()):
                self._compare(model, json.loads(text))
        assert not self.by_commit, f"answers of commits {sorted(self.by_commit)} that never were"

    def _compare(self, model: Any, one: dict[str, Any]) -> None:
        probe = PROBES[one["id"]]
        pairs = list(model.predict_proba_one(probe["x"]).items())
        likely = sorted(
            (p for p in enumerate(pairs) if p[1][1] > 0), key=lambda p: (-p[1][1], p[0])
        )
        assert [tuple(pair) for pair in one["top"]] == [pair for _, pair in likely[:3]]
        assert one["learned"] == model.n_learned
