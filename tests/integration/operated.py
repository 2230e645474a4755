"""A pipeline with a shadow that an operator looks after, for tests."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from integration.feed import events, send
from integration.oracle import Kinds, answer, blocks, committed, read_output
from integration.waiting import until
from kafka.errors import KafkaError

from streamforest import ConsistentForestClassifier, OnlineForestClassifier
from streamforest.cli import root
from streamforest.forests.persistence import snapshot
from streamforest.io.kafka.clients import admin
from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.testing.broker.server import Broker

PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
session_timeout_ms = 2000
[model]
kind = "consistent"
n_trees = 3
[[shadow]]
name = "other"
kind = "online"
n_trees = 2
[run]
commit_interval_ms = 100
commit_interval_events = 100
snapshot_interval_events = 100
keep_snapshots = 20
folder = "{folder}"
[metrics]
port = 0
"""


class Case:
    """A pipeline with a shadow, on one partition."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.servers, self.folder = broker.servers, folder
        self.name = f"operated-{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.name}.events"
        ensure_topics(broker.servers, Topics.of(self.name), create=True, partitions=1)
        self.path = folder / "p.toml"
        text = PIPELINE.format(name=self.name, servers=broker.servers, folder=folder / "run")
        self.path.write_text(text, encoding="utf-8")
        self.sent: list[bytes] = []

    def feed(self, n: int) -> None:
        several = list(events(n, seed=len(self.sent)))
        send(self.servers, self.topic, several, 1)
        self.sent += several

    def drain(self) -> None:
        with opened(load_pipeline(self.path), drain=True) as run:
            assert run.consume() == "finished"

    def call(self, *arguments: str) -> Result:
        return CliRunner().invoke(root, [str(one) for one in arguments])

    def snapshots(self, *arguments: str) -> Result:
        return self.call("snapshots", *arguments)

    def standing(self) -> dict[str, Any]:
        return committed(self.servers, self.name, self.topic)[0][1]

    def last_models(self) -> dict[str, Any]:
        name = self.standing()["snapshot"]
        data = (self.folder / "run" / "snapshots" / f"{name}.safetensors").read_bytes()
        return blocks(data)

    def predictions(self) -> list[dict[str, Any]]:
        """In the order of the events; asserts that each event has exactly one answer."""
        output = read_output(self.servers, self.name)
        assert len(output.predictions) + len(output.dead) == len(self.sent)
        return [output.predictions[place] for place in sorted(output.predictions)]


def learned(*parts: list[bytes]) -> dict[str, Any]:
    """Blocks of both models after these messages."""
    models = {
        "main": ConsistentForestClassifier(n_trees=3, seed=0),
        "other": OnlineForestClassifier(n_trees=2, seed=0),
    }
    kinds: Kinds = {}
    for raw in (raw for part in parts for raw in part):
        for model in models.values():
            answer(model, raw, kinds)
    return blocks(snapshot.encode(models))


def forget_offsets(servers: str, group: str) -> None:
    """What a broker does to a group that was empty for a week."""
    client = admin(servers)

    def deleted() -> bool:
        try:
            client.delete_groups([group])
        except KafkaError:
            return False
        return True

    until(deleted)  # the last member has left, but the broker may not have noticed
    client.close()
