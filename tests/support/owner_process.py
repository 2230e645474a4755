"""A run over a log in memory, and what tests of owner and standby do with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamforest import ConsistentForestClassifier
from streamforest.io.codec.decoders import by_value
from streamforest.io.codec.events import decoder, fields_decoder
from streamforest.observe.telemetry import (
    TelemetryEvent,
)
from streamforest.runtime.checkpoint.journal import read_commit_metadata
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.processing.adapters import wrap_model
from streamforest.runtime.processing.loop import Run
from streamforest.runtime.processing.models import limits_of
from streamforest.runtime.processing.schedule import Settings
from streamforest.runtime.recovery.ownership import Phase
from support.memory_log import MemoryBroker, MemoryMember

EVENTS = 60
BATCH = 10


class Heard(list[TelemetryEvent]):
    """A listener that remembers everything."""

    on_event = list.append

    def of(self, kind: type) -> list[Any]:
        return [event for event in self if isinstance(event, kind)]


class Process:
    """A run with its member of the log."""

    def __init__(self, broker: MemoryBroker, folder: Path, **settings: Any) -> None:
        self.member = MemoryMember(broker)
        self.heard = Heard()
        self.stop = False
        models = {"main": wrap_model(ConsistentForestClassifier(n_trees=1, seed=0))}
        settings = {
            "batch": BATCH,
            "commit_events": BATCH,
            "commit_seconds": None,
            "snapshot_seconds": None,
            "drain": True,
            **settings,
        }
        self.run = Run(
            self.member.log,
            by_value(decoder(), fields_decoder()),
            models,
            limits_of(list(models.values()), 1, 100, ""),
            SnapshotFolder(folder),
            Settings(**settings),
            {"topic": "events"},
            self.heard,
            lambda: self.stop,
        )

    @property
    def phase(self) -> Phase:
        return self.run.ownership.phase

    def die(self) -> None:
        """As after kill -9: nothing is said to anybody, and the log is free."""
        self.member.broker.owner = None

    def in_memory(self) -> bytes:
        """The models and positions, to be compared."""
        state = self.run.state
        model = state.models["main"]
        posteriors = model.forest.predict_proba_many([{"a": 1.0, "b": 0.5}])
        return json.dumps([state.jsonable({}), model.n_learned, str(posteriors)]).encode()


def some_events(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"x": {"a": i % 7 / 7, "b": i % 5 / 5}, "y": "odd" if i % 7 % 2 else "even"}
        for i in range(first, first + count)
    ]


def finish(process: Process, expected: list[bytes]) -> None:
    assert process.run.consume() == "finished"
    assert process.phase is Phase.OWNING
    assert process.member.broker.predictions == expected


def metadata(broker: MemoryBroker) -> Any:
    assert broker.metadata is not None
    return read_commit_metadata(broker.metadata)


def grown(owner: Process, events: int = 40) -> None:
    """Commit more, and let no snapshot name it."""
    while owner.run.events < events:
        owner.run._step(None)
        owner.run._commit()
    owner.die()


def follow(owner: Process, standby: Process, steps: list[Callable[[], None]]) -> None:
    """Let the standby recover while the owner does these steps."""
    standby.member.answers = list(steps)  # type: ignore[arg-type]
    standby.run.recover()


def advance(process: Process) -> Callable[[], None]:
    def step() -> None:
        process.run._step(None)
        process.run._commit()

    return step
