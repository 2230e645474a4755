"""A replica over a log in memory: what it answers, of which commit, and when it refuses."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.waiting import until
from support.asgi import Response, ask, with_app
from support.memory_log import MemoryBroker, MemoryTail
from support.owner_process import Process, advance, some_events

from streamforest.errors import VersionChangeError
from streamforest.io.codec.events import BOUNDS
from streamforest.io.features.rules import FeatureRules
from streamforest.io.kafka.permissions import Need
from streamforest.io.log import LogUnavailable
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.config.serving import ServeTable
from streamforest.runtime.factory import kafka_settings
from streamforest.runtime.recovery.replayer import Replayer
from streamforest.serve import replica as replica_module
from streamforest.serve.answering import Decoders
from streamforest.serve.app import App
from streamforest.serve.replica import Replica

DECODERS = Decoders.of(FeatureRules(), BOUNDS, late=False)
TABLE = ServeTable()
PROBES = json.dumps([{"x": {"a": a / 9, "b": a % 4 / 4}} for a in range(12)]).encode()

Make = Callable[..., Replica]


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    made.add(some_events(0, 400))
    return made


@pytest.fixture
def owner(broker: MemoryBroker, tmp_path: Path) -> Process:
    process = Process(broker, tmp_path / "owner")
    process.run.recover()
    return process


@pytest.fixture
def make(broker: MemoryBroker, tmp_path: Path) -> Iterator[Make]:
    made: list[Replica] = []

    def replica(copies: int = 2, folder: str = "owner") -> Replica:
        def run() -> Any:
            return Process(broker, tmp_path / folder).run

        made.append(Replica(run, copies, DECODERS, 3))
        made[-1].start()
        return made[-1]

    yield replica
    for one in made:
        one.close()


def offline(broker: MemoryBroker, folder: Path) -> dict[int, list[Any]]:
    """What a model that replays the journal says of the probes after each commit."""
    from streamforest.serve.answering import Question, View, answer

    told: dict[int, list[Any]] = {}
    from streamforest.runtime.recovery.standby import Follower

    run = Process(broker, folder).run

    def note(place: int) -> None:
        assert follower.state is not None
        view = View(follower.state, follower.commit + 1, "main")
        values = [json.dumps(one).encode() for one in json.loads(PROBES)]
        (said,) = answer(view, [Question(values, "json", 3)], DECODERS)
        told[place] = [(one.label, one.top, one.learned) for one in said]  # type: ignore[union-attr]

    follower = Follower(run.log, run.replayer, note)
    while not told or not follower.at_end():
        follower.step()
    return told


@pytest.mark.parametrize("copies", [1, 2])
def test_every_answer_is_that_of_its_commit_whichever_replica_gives_it(
    copies: int, broker: MemoryBroker, owner: Process, make: Make, tmp_path: Path
) -> None:
    """Two replicas are asked while the owner commits; one of them begins at the journal's beginning."""
    replicas = [make(copies), make(copies, "elsewhere")]
    apps = [App(replica, TABLE, {}) for replica in replicas]
    answers: dict[int, set[bytes]] = {}

    async def asking() -> None:
        for app in apps:
            app.start()
        step = advance(owner)
        while owner.run.events < 400:
            step()
            at = owner.run.context.last_commit
            assert at is not None
            query = f"at_least={at.commit}&wait_seconds=30".encode() if at.commit % 3 else b""
            for app, replica in zip(apps, replicas):
                while replica.behind_seconds() is None:
                    await asyncio.sleep(0.01)
                for response in await asyncio.gather(
                    *(ask(app, "/predict", PROBES, query=query) for _ in range(3))
                ):
                    assert response.status == 200, response.body
                    commit = response.json()[0]["commit"]
                    assert not query or commit >= at.commit
                    answers.setdefault(commit, set()).add(response.body)
        for app in apps:
            app.close()

    asyncio.run(asking())
    assert len(answers) > 20
    assert all(len(bodies) == 1 for bodies in answers.values())
    expected = offline(broker, tmp_path / "elsewhere")
    for commit, (body,) in answers.items():
        told = [
            (one["label"], [tuple(pair) for pair in one["top"]], one["learned"])
            for one in json.loads(body)
        ]
        assert told == expected[commit]


def test_a_replica_waits_for_a_commit_or_refuses(owner: Process, make: Make) -> None:
    advance(owner)()
    replica = make()
    until(lambda: replica.commit >= 1)
    until(lambda: replica.behind_seconds() is not None)
    app = App(replica, TABLE, {})

    async def asking() -> tuple[Response, Response]:
        early = await ask(app, "/predict", PROBES, query=b"at_least=2&wait_seconds=0")
        waiting = asyncio.create_task(
            ask(app, "/predict", PROBES, query=b"at_least=2&wait_seconds=30")
        )
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await asyncio.to_thread(advance(owner))
        return early, await waiting

    early, late = with_app(app, asking())
    assert (early.status, early.reason) == (503, "not_yet")
    assert early.headers["retry-after"] == "1"
    assert late.json()[0]["commit"] == 2


def test_no_answer_is_of_an_earlier_commit_than_was_asked_for(
    owner: Process, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is the commit of the answer itself: the model may be loaded again while it is made."""
    advance(owner)()
    replica = make()
    until(lambda: replica.commit >= 1 and replica.behind_seconds() is not None)
    app = App(replica, TABLE, {})
    monkeypatch.setattr(Replica, "commit", property(lambda self: 9))
    response = with_app(app, ask(app, "/predict", PROBES, query=b"at_least=9"))
    assert (response.status, response.reason) == (503, "not_yet")
    assert with_app(app, ask(app, "/predict", PROBES, query=b"at_least=1")).status == 200


def test_a_replica_of_another_version_says_so(
    owner: Process, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: Any) -> None:
        raise VersionChangeError("learned by another rule")

    advance(owner)()
    monkeypatch.setattr(Replayer, "apply", refused)
    replica = make(1, "elsewhere")
    app = App(replica, TABLE, {})
    until(lambda: replica.trouble() is not None)
    told = with_app(app, ask(app, "/readyz"))
    assert (told.status, told.reason) == (503, "not_ready")
    assert "learned by another rule" in told.json()["error"]["message"]


def test_before_the_first_commit_nothing_is_answered(broker: MemoryBroker, make: Make) -> None:
    replica = make()
    app = App(replica, TABLE, {})
    for path, body in (("/readyz", None), ("/predict", PROBES), ("/model", None)):
        response = with_app(app, ask(app, path, body))
        assert (response.status, response.reason) == (503, "not_ready")
    assert with_app(app, ask(app, "/livez")).status == 200


def test_before_the_first_commit_the_broker_is_left_in_peace(
    broker: MemoryBroker, tmp_path: Path
) -> None:
    """Each look for a commit to begin at takes connections of its own."""

    class Waits(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            self.seconds: list[float | None] = []

        def wait(self, timeout: float | None = None) -> bool:
            self.seconds.append(timeout)
            return super().wait(timeout)

    replica = Replica(lambda: Process(broker, tmp_path / "none").run, 1, DECODERS, 3)
    replica.closing = waits = Waits()
    replica.start()
    until(lambda: len(waits.seconds) >= 2)
    replica.close()
    assert set(waits.seconds) == {0.5}


def test_beyond_its_bound_a_replica_refuses_and_comes_back(
    owner: Process, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the log cannot be read it goes on answering, as old as the bound allows."""
    advance(owner)()
    replica = make()
    until(lambda: replica.commit >= 1 and replica.behind_seconds() is not None)
    app = App(replica, TABLE, {})
    strict = App(replica, replace(TABLE, max_behind_seconds=1), {})
    assert with_app(app, ask(app, "/readyz")).status == 200

    def away(self: MemoryTail) -> bool:
        raise LogUnavailable("the broker is away")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryTail, "at_end", away)
        until(lambda: (replica.behind_seconds() or 0.0) > 1)
        for path, body in (("/readyz", None), ("/predict", PROBES)):
            response = with_app(strict, ask(strict, path, body))
            assert (response.status, response.reason) == (503, "too_far_behind")
        assert with_app(app, ask(app, "/predict", PROBES)).status == 200
    until(lambda: with_app(strict, ask(strict, "/readyz")).status == 200)


def test_a_replica_that_can_never_follow_again_is_to_be_restarted(
    owner: Process, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: MemoryTail) -> bool:
        raise NameError("a bug")

    advance(owner)()
    monkeypatch.setattr(MemoryTail, "at_end", broken)
    replica = make()
    app = App(replica, TABLE, {})
    until(lambda: with_app(app, ask(app, "/livez")).status == 503)
    assert "a bug" in with_app(app, ask(app, "/livez")).json()["error"]["message"]


@pytest.mark.parametrize("copies", [1, 2])
def test_a_replica_that_lost_its_place_loads_again(
    copies: int, owner: Process, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was at work when it failed may be half done: it is never answered from."""
    from streamforest.runtime.recovery import standby

    monkeypatch.setattr(standby, "_RETRY_AFTER", 0.05)
    step = advance(owner)
    step()
    replica = make(copies)
    until(lambda: replica.commit >= 1)
    usual = MemoryTail.poll
    failures = iter([True] * 3)

    def failing(self: MemoryTail) -> Any:
        if next(failures, False):
            raise LogUnavailable("the broker is away")
        return usual(self)

    monkeypatch.setattr(MemoryTail, "poll", failing)
    for _ in range(5):
        step()
    until(lambda: replica.commit >= 6 and replica.trouble() is None)
    with replica.reading() as view:
        assert view.commit == replica.commit
        assert view.state.events == owner.run.events


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", []),
        ("[serve]\naccept_labels = true\n", ["p.events"]),
        ("[serve]\naccept_labels = true\n[labels]\n[topics]\nlabels = 'told'\n", ["told"]),
    ],
)
def test_who_publishes_labels_is_asked_for_the_permission_at_the_start(
    text: str, written: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "[pipeline]\nname = 'p'\n[kafka]\nbootstrap_servers = '127.0.0.1:9092'\n"
    (tmp_path / "p.toml").write_text(head + text, encoding="utf-8")
    asked: list[Need] = []
    monkeypatch.setattr(replica_module, "ask", lambda connection, question: question(None))
    monkeypatch.setattr(replica_module, "lacking", lambda client, needs: asked.extend(needs))
    monkeypatch.setattr(replica_module, "absent", lambda client, topics: [])
    pipeline = load_pipeline(tmp_path / "p.toml", {})
    replica_module._check(pipeline, kafka_settings(pipeline))
    assert [need.name for need in asked if need.operation == "Write"] == written
