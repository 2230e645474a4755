"""Who is asked is said when no answer comes, once."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator

import pytest

from streamforest.io.kafka.auth import diagnosis
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.auth.diagnosis import Trouble, diagnose


class Heard(logging.Handler):
    """Keeps what is said, and can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.any = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.any.set()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    monkeypatch.setattr(diagnosis, "_announced", set())
    handler = Heard()
    diagnosis.log.addHandler(handler)
    yield handler
    diagnosis.log.removeHandler(handler)


def test_all_servers_that_are_not_there_are_named() -> None:
    with socket.socket() as one, socket.socket() as two:
        for closed in (one, two):  # bound and not listening: nobody else can take the port
            closed.bind(("127.0.0.1", 0))
        where = [f"127.0.0.1:{closed.getsockname()[1]}" for closed in (one, two)]
        trouble = diagnose(Connection(",".join(where)))
        mixed = diagnose(Connection(f"{where[0]},none.invalid:9092"))
    assert trouble is not None
    assert trouble.text.startswith(
        f"no broker at {where[0]}, {where[1]}: connection refused; start"
    )
    port = where[0].partition(":")[2]
    assert trouble.text.endswith(
        f"(for trying out: streamforest broker start --port {port}), or correct kafka.bootstrap_servers"
    )
    assert mixed is not None
    assert f"{where[0]} (connection refused), none.invalid:9092 (no such host)" in mixed.text


def test_an_address_that_is_given_twice_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, int]] = []

    def away(host: str, port: int, security: object) -> Trouble:
        tried.append((host, port))
        return Trouble("away", lasting=False)

    monkeypatch.setattr(diagnosis, "_try", away)
    trouble = diagnose(Connection("one:9092,one:9092"))
    assert trouble is not None
    assert (trouble.text, tried) == ("away", [("one", 9092)])


def test_a_server_that_hangs_does_not_keep_from_one_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hung = threading.Event()
    monkeypatch.setattr(
        diagnosis,
        "_try",
        lambda host, *_: None if host == "works" else hung.wait(30) and Trouble("it hangs"),
    )
    assert diagnose(Connection("hangs:1,works:2")) is None
    hung.set()


def test_a_trouble_that_lasts_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers that are away may come back; whoever comes then has the wrong password."""
    troubles = {"away": Trouble("it is away", lasting=False), "wrong": Trouble("wrong password")}
    monkeypatch.setattr(diagnosis, "_try", lambda host, *_: troubles[host])
    assert diagnose(Connection("away:1,wrong:2")) == Trouble("wrong password")
    troubles["wrong"] = Trouble("it is starting", lasting=False)
    told = diagnose(Connection("away:1,wrong:2"))
    assert told == Trouble("it is away (also tried without success: wrong:2)", lasting=False)


def test_a_slow_answer_is_announced_while_it_is_waited_for(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "QUIET", 0.0)
    monkeypatch.setattr(diagnosis, "_try", lambda *_: None if heard.any.wait(30) else Trouble("no"))
    assert diagnose(Connection("h:1")) is None
    assert heard.lines == ["asking h:1 …"]
    heard.any.clear()
    assert diagnose(Connection("h:1")) is None  # it had answered: a new wait is announced again
    assert heard.lines == 2 * ["asking h:1 …"]


def test_an_answer_in_time_says_nothing(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "QUIET", 3_600.0)
    monkeypatch.setattr(diagnosis, "_try", lambda *_: None)
    assert diagnose(Connection("h:1")) is None
    monkeypatch.setattr(diagnosis, "_try", lambda *_: Trouble("wrong password"))
    assert diagnose(Connection("h:1")) == Trouble("wrong password")
    assert heard.lines == []
