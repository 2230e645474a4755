"""The permissions that a pipeline needs on a broker with ACLs, and which of them are missing.

The broker is asked before anything is read, so that one error names all that is missing and nothing stops
half-way. Only the permission for a transactional id cannot be asked for: the first transaction shows it.

    topic  events        Read
    topic  labels        Read             (where late labels have a topic of their own)
    topic  predictions   Write
    topic  dead letters  Write
    topic  journal       Read, Write      (recovery reads it)
    group                Read
    transactional id     Write, Describe  (its name is the group's, with -0, -1 … for each partition
                                           where scope = "partition"; exactly-once only)

Read and Write imply Describe, Write on a transactional id does as well. `--create-topics` needs Create on
the topics (or on the cluster), only for those that are missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from kafka.errors import (
    AuthorizationError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    KafkaError,
)

from streamforest.errors import BrokerError
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.topics import Topics

_DENIED = 29  # the error code TOPIC_AUTHORIZATION_FAILED in a topic's description
_OPTION = {"topic": "--topic", "group": "--group", "transactional id": "--transactional-id"}
_WAIT_SECONDS = 10.0


class Need(NamedTuple):
    """One permission: an ACL of the broker."""

    operation: str
    resource: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} '{self.name}'"


def needs_of_run(
    topics: Topics, group: str, exactly_once: bool, transactional_id: str | None = None
) -> list[Need]:
    """All that `streamforest run` needs."""
    needs = [
        *(Need("Read", "topic", name) for name in topics.inputs),
        Need("Write", "topic", topics.predictions),
        Need("Write", "topic", topics.dead_letters),
        Need("Write", "topic", topics.journal),
        Need("Read", "topic", topics.journal),
        Need("Read", "group", group),
    ]
    if exactly_once:
        needs.append(Need("Write", "transactional id", transactional_id or group))
    return needs


def needs_of_dlq_replay(topics: Topics) -> list[Need]:
    """What `streamforest dlq replay` needs."""
    own = f"{topics.dead_letters}.replay"
    return [
        Need("Read", "topic", topics.dead_letters),
        *(Need(what, "topic", name) for name in topics.inputs for what in ("Read", "Write")),
        Need("Read", "group", own),
        Need("Write", "transactional id", own),
    ]


def lacking(client: Any, needs: Iterable[Need]) -> list[Need]:
    """The needs that the broker does not grant to this client, as far as it says."""
    wanted = list(needs)
    names = sorted({need.name for need in wanted if need.resource == "topic"})
    granted = {topic["name"]: _operations(topic) for topic in client.describe_topics(names)}
    missing = [
        need
        for need in wanted
        if need.resource == "topic" and not _grants(granted.get(need.name), need)
    ]
    groups = [need for need in wanted if need.resource == "group"]
    return missing + [need for need in groups if not _grants(_of_group(client, need.name), need)]


def _operations(topic: dict[str, Any]) -> set[str] | None:
    if topic["error_code"] == _DENIED:
        return set()
    operations = topic.get("authorized_operations")
    return None if operations is None else set(operations)


def _of_group(client: Any, group: str) -> set[str] | None:
    """Operations granted on a group. A new broker first creates its offsets topic: that is waited for."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            operations = client.describe_groups([group])[group].get("authorized_operations")
            return None if operations is None else set(operations)
        except GroupAuthorizationFailedError:
            return set()
        except CoordinatorNotAvailableError:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.1)


def _grants(granted: set[str] | None, need: Need) -> bool:
    """Whether a need is granted; a broker that does not say (an old one) counts as granting it."""
    return granted is None or need.operation.upper() in granted


def refusal(connection: Connection, missing: Iterable[Need]) -> BrokerError:
    """The error that names every missing permission and how to grant it."""
    missing = list(missing)
    first = missing[0]
    return BrokerError(
        f"{connection.security.principal} is not allowed {', '.join(map(str, missing))} at "
        f"{connection.servers}: an administrator grants {'it' if len(missing) == 1 else 'the first'} "
        f"with kafka-acls --add --allow-principal '{connection.security.principal}' --operation "
        f"{first.operation} {_OPTION[first.resource]} '{first.name}'"
    )


def explain(
    client: Any, connection: Connection, needs: Iterable[Need], error: AuthorizationError
) -> BrokerError:
    """Which permission a refused request lacked: by asking the broker, or else by the kind of error."""
    needs = list(needs)
    missing: list[Need] = []
    with suppress(KafkaError):
        missing = lacking(client, needs)
    kind = type(error).__name__.lower()
    if not missing:
        missing = [need for need in needs if kind.startswith(need.resource.split()[0])]
    if not missing:
        return BrokerError(f"{connection.security.principal} is not allowed something: {error}")
    return refusal(connection, missing)
