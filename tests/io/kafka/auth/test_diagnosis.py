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


def test_a_broker_that_is_not_there_is_named_once(heard: Heard) -> None:
    with socket.socket() as closed:  # bound and not listening: nobody else can take the port
        closed.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{closed.getsockname()[1]}"
        for _ in range(2):
            trouble = diagnose(Connection(where))
            assert trouble is not None
            assert trouble.text.endswith("or correct kafka.bootstrap_servers")
    assert heard.lines == [f"asking {where} …"]


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
