"""A model that does not change, as a server has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.memory_log import MemoryBroker
from support.owner_process import Process, some_events

from streamforest.runtime.operate.model import open_snapshot
from streamforest.serve.fixed import FixedModel


@pytest.fixture(scope="session")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of snapshots after 60 events of two features."""
    folder = tmp_path_factory.mktemp("served")
    broker = MemoryBroker()
    broker.add(some_events(0, 60))
    process = Process(broker, folder)
    process.run.recover()
    process.run.consume()
    return folder


@pytest.fixture(scope="session")
def fixed(snapshots: Path) -> FixedModel:
    newest = max(snapshots.glob("s-*.safetensors"))
    return FixedModel(open_snapshot(newest))
