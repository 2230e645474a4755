"""A broker in memory with events, a process, and one that owns the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.memory_log import MemoryBroker
from support.owner_process import (
    EVENTS,
    Process,
    some_events,
)


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    made.add(some_events(0, EVENTS))
    return made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    broker = MemoryBroker()
    broker.add(some_events(0, EVENTS))
    process = Process(broker, tmp_path_factory.mktemp("undisturbed"))
    process.run.recover()
    assert process.run.consume() == "finished"
    assert len(broker.predictions) == EVENTS
    return broker.predictions


@pytest.fixture
def process(broker: MemoryBroker, tmp_path: Path) -> Process:
    return Process(broker, tmp_path)


@pytest.fixture
def owner(process: Process) -> Process:
    """A process that has committed 20 events."""
    process.run.recover()
    process.run.consume(max_events=20)
    return process
