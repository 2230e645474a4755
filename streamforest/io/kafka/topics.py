"""The topics of a pipeline: looked up, named when they are missing, made when asked for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import (
    AuthorizationError,
    InvalidTopicError,
    KafkaError,
    TopicAlreadyExistsError,
)

from streamforest.errors import BrokerError
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.clients import asking, connect
from streamforest.text import shown

DEFAULT_PARTITIONS = 4
__all__ = [
    "DEFAULT_PARTITIONS",
    "Topics",
    "absent",
    "create_topic",
    "ensure_topics",
    "records_there",
]


@dataclass(frozen=True)
class Topics:
    """The names of a pipeline's topics."""

    events: str
    predictions: str
    dead_letters: str
    journal: str
    labels: str | None = None
    """Where late labels come from, if not from among the events."""

    @property
    def inputs(self) -> list[str]:
        """What is read."""
        return [self.events] if self.labels is None else [self.events, self.labels]

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
        own = {key: named.get(key) or name for key, name in usual.items()}
        return cls(**own, labels=named.get("labels"))

    def shared(self) -> dict[str, list[str]]:
        """Names that more than one of them has, with those.

        >>> Topics.of("shop", journal="j", dead_letters="j").shared()
        {'j': ['dead_letters', 'journal']}
        """
        users: dict[str, list[str]] = {}
        for key, name in asdict(self).items():
            if name is not None:
                users.setdefault(name, []).append(key)
        return {name: keys for name, keys in users.items() if len(keys) > 1}


_FOR_EVER = {"retention.ms": "-1"}
_UNKNOWN = 3  # UNKNOWN_TOPIC_OR_PARTITION, as a topic's description says it


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
    except AuthorizationError as error:
        raise BrokerError(
            f"not allowed to make topic {shown(name)}: an administrator makes it, or grants Create on it "
            "with kafka-acls --add --operation Create"
        ) from error
    except InvalidTopicError as error:
        raise BrokerError(
            f"topic {shown(name)} cannot be made: a topic's name has letters, digits, '.', '_' and "
            "'-', at most 249"
        ) from error
    except KafkaError as error:
        raise BrokerError(f"topic {shown(name)} cannot be made: {type(error).__name__}") from error
    return True


def records_there(where: str | Connection, name: str) -> int:
    """How far a topic's partitions reach, added up; 0 where there is no such topic."""
    with asking(where) as client:
        if name not in client.list_topics():
            return 0
    consumer = connect(KafkaConsumer, where, group_id=None)
    try:
        partitions = [TopicPartition(name, n) for n in consumer.partitions_for_topic(name) or ()]
        return sum(consumer.end_offsets(partitions).values())
    except KafkaError as error:
        raise BrokerError(
            f"the ends of topic {shown(name)} cannot be asked for: {type(error).__name__}: {error}"
        ) from error
    finally:
        consumer.close(autocommit=False)


def absent(client: Any, names: Sequence[str]) -> list[str]:
    """Those that the broker does not have."""
    found = client.describe_topics(list(names))
    missing = {topic["name"] for topic in found if topic["error_code"] == _UNKNOWN}
    return [name for name in names if name in missing]


def ensure_topics(
    where: str | Connection,
    topics: Topics,
    create: bool,
    partitions: int,
    each: bool = False,
) -> None:
    """See that all topics are there; make the missing ones if `create`, else name them.

    Where `each` partition has a forest of its own, labels and the journal need as many as the events.
    """
    with asking(where) as client:
        wanted = [*topics.inputs, topics.predictions, topics.dead_letters, topics.journal]
        missing = absent(client, wanted)
        if missing and not create:
            raise BrokerError(
                f"the broker at {Connection.to(where).servers} has no topic {_listed(missing)}: "
                "make them, or run with --create-topics"
            )
        for name in missing:
            several = (*topics.inputs, topics.predictions, *([topics.journal] if each else []))
            count = partitions if name in several else 1
            create_topic(client, name, count, _FOR_EVER if name == topics.journal else None)
        if each:
            _compare_partitions(client, topics)


def _compare_partitions(client: Any, topics: Topics) -> None:
    names = [*topics.inputs, topics.journal]
    deadline = time.monotonic() + 10
    while True:  # a topic that was just made is not described at once
        counts = {t["name"]: len(t["partitions"]) for t in client.describe_topics(names)}
        if all(counts.values()) or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for name in names:
        if counts[name] < counts[topics.events] or (
            name != topics.journal and counts[name] != counts[topics.events]
        ):
            raise BrokerError(
                f"with kafka.model_scope = 'partition' topic {name!r} needs {counts[topics.events]} "
                f"partitions, as many as {topics.events!r} has, and has {counts[name]}"
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
