"""How a pipeline talks to its broker: addresses, time-outs, and the permissions it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from streamforest.errors import BrokerError
from streamforest.io.kafka.auth.connection import Connection, Security
from streamforest.io.kafka.clients import ask
from streamforest.io.kafka.permissions import Need, lacking, needs_of_run, refusal
from streamforest.io.kafka.topics import Topics

_ANY_FRAME = (1 << 31) - 1
"""A broker sends a record whole, however large. A client with a lower limit closes the connection and fetches
the same record again, for ever; but a record over events.max_bytes must become a dead letter."""


@dataclass(frozen=True)
class KafkaSettings:
    """How a pipeline talks to its broker."""

    servers: str
    topics: Topics
    group: str
    exactly_once: bool = True
    auto_offset_reset: str = "earliest"
    """Where a pipeline without a commit begins: `earliest` or `latest`."""
    group_instance_id: str | None = None
    """Name of a static member: it keeps its partitions over a restart within the session time-out."""
    session_timeout_ms: int = 10_000
    max_poll_interval_ms: int = 60_000
    metadata_max_age_ms: int = 10_000
    """How often the client looks for new partitions."""
    stall_seconds: float = 60.0
    retry_seconds: float = 60.0
    fetch_bytes: int = 16 << 20
    order: str = "time"
    """`time`: partitions are merged by record time; `arrival`: records are taken as polls bring them."""
    order_wait_seconds: float = 1.0
    """How long the merge waits for a partition with unread records that came after it began."""
    security: Security = Security()  # noqa: RUF009 - frozen
    partition: int | None = None
    """The one partition that is read, if each has its own model."""

    @property
    def connection(self) -> Connection:
        """The broker and how to reach it."""
        return Connection(self.servers, self.security, self.retry_seconds)

    @property
    def transactional_id(self) -> str:
        """Its latest user fences all earlier ones: one for the topic, or one for each partition."""
        return self.group if self.partition is None else f"{self.group}-{self.partition}"

    @property
    def needs(self) -> list[Need]:
        """The permissions that the broker must grant."""
        return needs_of_run(self.topics, self.group, self.exactly_once, self.transactional_id)

    def client(self) -> dict[str, Any]:
        """Arguments of every client of this pipeline."""
        return {
            **self.connection.arguments(),
            "request_timeout_ms": 10_000,
            "bootstrap_timeout_ms": 10_000,
            "reconnect_backoff_max_ms": 1_000,
            "receive_message_max_bytes": _ANY_FRAME,
        }

    def consumer(self) -> dict[str, Any]:
        """Arguments of every consumer in the group."""
        return {
            **self.client(),
            "group_id": self.group,
            "group_instance_id": self.group_instance_id,
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "session_timeout_ms": self.session_timeout_ms,
            "heartbeat_interval_ms": max(300, self.session_timeout_ms // 4),
            "max_poll_interval_ms": self.max_poll_interval_ms,
            "metadata_max_age_ms": self.metadata_max_age_ms,
            "fetch_max_bytes": self.fetch_bytes,
            "max_partition_fetch_bytes": self.fetch_bytes // 4,
        }

    def producer(self) -> dict[str, Any]:
        """Arguments of the producer."""
        arguments: dict[str, Any] = {
            **self.client(),
            "acks": "all",
            "linger_ms": 2,
            "batch_size": 512 * 1024,
            "max_request_size": 4 << 20,
            "delivery_timeout_ms": 20_000,
            "max_block_ms": 10_000,
        }
        if self.exactly_once:
            arguments |= {
                "transactional_id": self.transactional_id,
                "transaction_timeout_ms": 10_000,
            }
        return arguments


def for_partition(settings: KafkaSettings, number: int) -> KafkaSettings:
    """The settings for one partition that has its own model."""
    return replace(settings, partition=number)


def check_partition_counts(settings: KafkaSettings, partitions: Callable[[str], int]) -> None:
    """BrokerError if a topic lacks the settings' partition: its journal would be mixed with that of
    another model.
    """
    partition, topics = settings.partition, settings.topics
    if partition is None:
        return
    counts = {name: partitions(name) for name in (topics.journal, *topics.inputs)}
    widest = max(topics.inputs, key=lambda name: counts[name])
    for name, count in counts.items():
        if partition >= count:
            raise BrokerError(
                f"with kafka.model_scope = 'partition' topic {name!r} needs {counts[widest]} partitions, as "
                f"many as {widest!r} has, and has {count}: give it as many "
                "(kafka-topics --alter --partitions), then start again"
            )


def check_permissions(settings: KafkaSettings) -> None:
    """BrokerError with all permissions that a pipeline lacks, before it begins to read."""
    missing = ask(settings.connection, lambda client: lacking(client, settings.needs))
    if missing:
        raise refusal(settings.connection, missing)
