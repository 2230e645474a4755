"""How many modules one has to read to follow an event to its prediction, and a kill to its recovery."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.test_pipeline import Case, events, send
from support.modules_entered import ROOT, modules_entered

from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import log_of, new_run
from streamforest.runtime.processing.loop import Run
from streamforest.testing.broker.server import Broker

FIRST = 1_200
"""Events before the one that is followed: of the first 1,000 the columns are looked at, too."""


@pytest.fixture
def case(kafka_broker: Broker, tmp_path: Path) -> Case:
    return Case(kafka_broker, tmp_path)


def a_run(case: Case) -> Run:
    pipeline = load_pipeline(case.path, {}, ())
    return new_run(pipeline, log_of(pipeline), SnapshotFolder(case.folder / "snapshots"), True)


def of_the_way(modules: set[str]) -> set[str]:
    """Those of the run and of its log. What a model does inside its one call, what the bytes of a snapshot
    mean and what is measured on the side are ways of their own.
    """
    return {name for name in modules if name.startswith(("runtime/", "io/"))}


def test_the_modules_of_each_way(case: Case) -> None:
    """Recovery takes the event's way once more: beyond it, so many modules lead to ownership.

    The bounds only go down: who needs another module on the way puts two together or finds a shorter one.
    """
    case.drain()
    send(case.servers, case.events, events(FIRST), 2)
    run = a_run(case)
    try:
        run.recover()
        while run.events < FIRST:
            run._step(None)
        run._commit()
        send(case.servers, case.events, events(300, bad=0), 2)
        with modules_entered() as to_commit:
            while not run.context.pending.predictions:
                run._step(None)
            run._commit()
        run.snapshots.wait()
    finally:
        run.log.close()
    again = a_run(case)
    try:
        with modules_entered() as to_ownership:
            again.recover()
        assert again.events == run.events > 0
    finally:
        again.log.close()
    event, recovery = of_the_way(to_commit), of_the_way(to_ownership)
    waits = {
        "io/kafka/compat/fetches.py"
    }  # entered if a partition is waited for, which only timing decides
    recovery = (recovery | waits) - (event - waits)
    event -= waits
    assert len(event) <= 24, sorted(event)
    # where snapshots are kept, and how a broker is found, have come to the 18 of before
    assert len(recovery) <= 20, sorted(recovery)


def test_no_module_is_too_long() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in ROOT.rglob("runtime/**/*.py")}
    assert not {path.name: count for path, count in lines.items() if count > 400}
