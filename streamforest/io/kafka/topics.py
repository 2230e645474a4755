"""The topics of a pipeline: their names, whether they exist, and how they are created."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

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
from streamforest.io.kafka.clients import ask, connect, may_pass, persist
from streamforest.io.kafka.compat.workarounds import known_partitions
from streamforest.text import shown

if TYPE_CHECKING:  # its module imports this one
    from streamforest.io.kafka.settings import KafkaSettings

DEFAULT_PARTITIONS = 4
__all__ = [
    "DEFAULT_PARTITIONS",
    "TopicCheck",
    "Topics",
    "absent",
    "create_topic",
    "end_offset_sum",
    "ensure_topics",
]


@dataclass(frozen=True)
class Topics:
    """The names of a pipeline's topics."""

    events: str
    predictions: str
    dead_letters: str
    journal: str
    labels: str | None = None
    """The topic of late labels, if they do not come with the events."""

    @property
    def inputs(self) -> list[str]:
        """The topics that the pipeline reads."""
        return [self.events] if self.labels is None else [self.events, self.labels]

    @classmethod
    def of(cls, pipeline: str, **named: str | None) -> Topics:
        """The topics of a pipeline, with default names for those that are not given.

        >>> Topics.of("shop", journal="j").predictions
        'shop.predictions'
        """
        defaults = {
            "events": f"{pipeline}.events",
            "predictions": f"{pipeline}.predictions",
            "dead_letters": f"{pipeline}.dlq",
            "journal": f"{pipeline}.journal",
        }
        own = {key: named.get(key) or name for key, name in defaults.items()}
        return cls(**own, labels=named.get("labels"))

    def shared(self) -> dict[str, list[str]]:
        """Names that several of the topics have, and which topics have them.

        >>> Topics.of("shop", journal="j", dead_letters="j").shared()
        {'j': ['dead_letters', 'journal']}
        """
        users: dict[str, list[str]] = {}
        for key, name in asdict(self).items():
            if name is not None:
                users.setdefault(name, []).append(key)
        return {name: keys for name, keys in users.items() if len(keys) > 1}


_FOR_EVER = {"retention.ms": "-1"}
_UNKNOWN = 3  # the error code UNKNOWN_TOPIC_OR_PARTITION in a topic's description


def create_topic(
    client: Any, name: str, partitions: int, config: Mapping[str, str] | None = None
) -> bool:
    """Create a topic; False if it exists already."""
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
            f"not allowed to create topic {shown(name)}: an administrator creates it, or grants Create on it "
            "with kafka-acls --add --operation Create"
        ) from error
    except InvalidTopicError as error:
        raise BrokerError(
            f"topic {shown(name)} cannot be created: a topic's name has letters, digits, '.', '_' and "
            "'-', at most 249"
        ) from error
    except KafkaError as error:
        if may_pass(error):
            raise
        raise BrokerError(
            f"topic {shown(name)} cannot be created: {type(error).__name__}"
        ) from error
    return True


def end_offset_sum(address: str | Connection, name: str) -> int:
    """The sum of the end offsets of a topic's partitions; 0 if the topic does not exist."""
    if name not in ask(address, lambda client: client.list_topics()):
        return 0

    def attempt() -> int:
        consumer = connect(KafkaConsumer, address, group_id=None)
        try:
            numbers = consumer.partitions_for_topic(name) or ()
            return sum(consumer.end_offsets([TopicPartition(name, n) for n in numbers]).values())
        finally:
            consumer.close(autocommit=False)

    return persist(address, f"the end offsets of topic {shown(name)} cannot be read", attempt)


def absent(client: Any, names: Sequence[str]) -> list[str]:
    """Those of the topics that the broker does not have."""
    described = client.describe_topics(list(names))
    missing = {topic["name"] for topic in described if topic["error_code"] == _UNKNOWN}
    return [name for name in names if name in missing]


def ensure_topics(
    address: str | Connection,
    topics: Topics,
    create: bool,
    partitions: int,
    each: bool = False,
) -> list[str]:
    """Check that all topics exist; create the missing ones if `create`, else raise BrokerError.
    Those that were created are returned.

    If `each` partition has its own model, labels and journal need as many partitions as the events.
    """
    created: list[str] = []
    several = (*topics.inputs, topics.predictions, *([topics.journal] if each else []))

    def ensure(client: Any) -> None:
        wanted = [*topics.inputs, topics.predictions, topics.dead_letters, topics.journal]
        missing = absent(client, wanted)
        if missing and not create:
            raise BrokerError(
                f"the broker at {Connection.to(address).servers} has no topic {_listed(missing)}: "
                "create them, or run with --create-topics"
            )
        for name in missing:
            count = partitions if name in several else 1
            config = _FOR_EVER if name == topics.journal else None
            if create_topic(client, name, count, config):
                created.append(name)
        if each:
            _compare_partitions(client, topics)

    ask(address, ensure)
    return created


def _compare_partitions(client: Any, topics: Topics) -> None:
    names = [*topics.inputs, topics.journal]
    deadline = time.monotonic() + 10
    while True:  # a topic that was just created is not described at once
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


class TopicCheck:
    """Tells partitions that another member owns from those that are gone with their topic."""

    def __init__(self, settings: KafkaSettings, grace_seconds: float = 20.0) -> None:
        self._settings = settings
        self._grace_seconds = grace_seconds  # a broker that starts up may not know its topics yet
        self._since: float | None = None

    def look(self, consumer: Any) -> None:
        """Call it while nothing is assigned; BrokerError once a topic has been away for a while."""
        now = time.monotonic()
        inputs = self._settings.topics.inputs
        gone = [topic for topic in inputs if not known_partitions(consumer, topic)]
        if not gone:
            self._since = None
            return
        self._since = now if self._since is None else self._since
        if now - self._since >= self._grace_seconds:
            raise BrokerError(
                f"the broker at {self._settings.servers} has no topic {gone[0]!r} any more: put it "
                "back, or start the pipeline under another name with a new one"
            )
