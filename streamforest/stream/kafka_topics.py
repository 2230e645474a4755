"""The topics of a pipeline: looked up, named when they are missing, made when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError

from streamforest.errors import BrokerError

DEFAULT_PARTITIONS = 4


@dataclass(frozen=True)
class Topics:
    """The names of a pipeline's topics."""

    events: str
    predictions: str
    dead_letters: str
    journal: str

    @classmethod
    def of(cls, pipeline: str, **named: str | None) -> Topics:
        """Those of a pipeline, where not named otherwise.

        >>> Topics.of("shop", journal="j").predictions
        'shop.predictions'
        """
        usual = {
            "events": f"{pipeline}.events",
            "predictions": f"{pipeline}.predictions",
            "dead_letters": f"{pipeline}.dlq",
            "journal": f"{pipeline}.journal",
        }
        return cls(**{key: named.get(key) or name for key, name in usual.items()})


_FOR_EVER = {"retention.ms": "-1"}


def admin(servers: str) -> Any:
    """A client for looking after topics; BrokerError if nobody answers."""
    try:
        return KafkaAdminClient(
            bootstrap_servers=servers, bootstrap_timeout_ms=10_000, request_timeout_ms=10_000
        )
    except KafkaError as error:
        raise BrokerError(
            f"no broker answers at {servers} ({type(error).__name__}): start one with "
            "'streamforest broker start', or mend kafka.servers"
        ) from error


def create_topic(
    client: Any, name: str, partitions: int, config: Mapping[str, str] | None = None
) -> bool:
    """Make a topic; False if it is there already."""
    topic = NewTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        topic_configs=dict(config or {}),
    )
    try:
        client.create_topics([topic])
    except TopicAlreadyExistsError:
        return False
    return True


def topic_is_there(servers: str, name: str) -> bool:
    """Whether the broker has a topic."""
    client = admin(servers)
    try:
        return name in client.list_topics()
    finally:
        client.close()


def ensure_topics(servers: str, topics: Topics, create: bool, partitions: int) -> None:
    """See that all topics are there; make the missing ones if `create`, else name them."""
    client = admin(servers)
    try:
        there = set(client.list_topics())
        wanted = [topics.events, topics.predictions, topics.dead_letters, topics.journal]
        missing = [name for name in wanted if name not in there]
        if missing and not create:
            raise BrokerError(
                f"the broker at {servers} has no topic {_listed(missing)}: "
                "make them, or run with --create-topics"
            )
        for name in missing:
            count = partitions if name in (topics.events, topics.predictions) else 1
            create_topic(client, name, count, _FOR_EVER if name == topics.journal else None)
    finally:
        client.close()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
