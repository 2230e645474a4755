"""A pipeline on a broker that asks who is there, for tests."""

from __future__ import annotations

import uuid
from pathlib import Path

from click.testing import CliRunner, Result
from integration.feed import events, send

from streamforest.cli import root
from streamforest.io.kafka.permissions import Need
from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing import SecureBroker

PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
{kafka}
session_timeout_ms = 6000
[model]
kind = "consistent"
n_trees = 3
[run]
batch_size = 100
commit_interval_ms = 100
snapshot_interval_events = 300
folder = "{folder}"
[metrics]
port = 0
"""


def documented(name: str) -> list[Need]:
    """The permissions that the README lists, and no more."""
    return [
        Need("Read", "topic", f"{name}.events"),
        Need("Write", "topic", f"{name}.predictions"),
        Need("Write", "topic", f"{name}.dlq"),
        Need("Read", "topic", f"{name}.journal"),
        Need("Write", "topic", f"{name}.journal"),
        Need("Read", "group", name),
        Need("Write", "transactional id", name),
    ]


class Case:
    """A pipeline of its own on the secured broker, its topics made by the operator."""

    def __init__(self, broker: SecureBroker, folder: Path) -> None:
        self.broker = broker
        self.name = f"secure-{uuid.uuid4().hex[:8]}"
        self.events = f"{self.name}.events"
        self.folder = folder / "run"
        self.path = folder / "p.toml"
        self.write(broker.settings("alice"))
        ensure_topics(broker.servers, Topics.of(self.name), create=True, partitions=2)

    def write(self, kafka: str) -> None:
        text = PIPELINE.format(name=self.name, kafka=kafka, folder=self.folder)
        self.path.write_text(text, encoding="utf-8")

    def run(self, *arguments: str, **environ: str) -> Result:
        return CliRunner().invoke(
            root, ["run", str(self.path), "--drain", "-q", *arguments], env=environ
        )

    def send(self, n: int, first: int = 0) -> None:
        send(self.broker.servers, self.events, events(n, seed=first), 2, first)


def lines(broker: SecureBroker, **changed: str | None) -> str:
    """`[kafka]` of a good login over TLS, with some of it changed or left out."""
    told: dict[str, str | None] = {
        "bootstrap_servers": broker.at("sasl_tls"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(broker.authority.file),
        "sasl_username": "alice",
        "sasl_password_file": str(broker.password_file("alice")),
        **changed,
    }
    text = "".join(f'{key} = "{value}"\n' for key, value in told.items() if value is not None)
    return text + (
        "allow_unencrypted_login = true\n" if told["security_protocol"] == "SASL_PLAINTEXT" else ""
    )


NO_LOGIN: dict[str, str | None] = {"sasl_username": None, "sasl_password_file": None}
NO_TLS: dict[str, str | None] = {"ssl_cafile": None}
