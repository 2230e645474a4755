"""A forest for each partition: one member of the group, and a log for each partition it is given.

The member's consumer joins the group and fetches nothing: it only learns which partitions are ours, and
under which generation. Each partition then has a consumer and a transactional producer of its own, used by
one thread. Whoever gets a partition next uses the same transactional id, so that it fences its predecessor
at once; a zombie's commit is refused besides, since its generation is over.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.errors import AuthorizationError, KafkaError, NoOffsetForPartitionError
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from streamforest.errors import BrokerError
from streamforest.io.kafka.clients import persist
from streamforest.io.kafka.compat.records import use_quick_records
from streamforest.io.kafka.compat.workarounds import (
    JoinWatch,
    answered_ago,
    create_client,
    request_rejoin,
    valid_membership,
)
from streamforest.io.kafka.log import kafka_log
from streamforest.io.kafka.membership import Assignment, silence, subscribed
from streamforest.io.kafka.settings import KafkaSettings
from streamforest.io.kafka.topics import TopicCheck
from streamforest.io.log import Joining, Log, Released

log = logging.getLogger(__name__)

_VERSION = 0
_PAUSE = 0.02


class ByNumberAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """Partitions of one number go together, evenly, and stay where they were as far as that is even."""

    name = "streamforest-by-number"

    def __init__(self) -> None:
        self._told = b"[-1,[]]"

    def metadata(self, topics: Any) -> Any:
        """What this member says when it joins: the generation in which it owned what."""
        return ConsumerProtocolSubscription(_VERSION, sorted(topics), self._told)

    def assign(self, cluster: Any, members: Any) -> dict[str, Any]:
        """The leader's decision."""
        topics = sorted({topic for member in members for topic in member.metadata.topics})
        partitions = {topic: set(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        numbers = sorted(set().union(*partitions.values()))
        given = share_out(numbers, {m.member_id: owned(m.metadata.user_data) for m in members})
        return {
            member: ConsumerProtocolAssignment(
                _VERSION,
                [(topic, [n for n in got if n in partitions[topic]]) for topic in topics],
                b"",
            )
            for member, got in given.items()
        }

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Remember what this member owns."""
        numbers = sorted({tp.partition for tp in assignment.partitions()})
        self._told = json.dumps([generation, numbers]).encode()


def owned(user_data: bytes | None) -> tuple[int, list[int]]:
    """The generation and partitions that a member says it owned last."""
    try:
        generation, numbers = json.loads(user_data or b"[-1,[]]")
        return int(generation), [int(number) for number in numbers]
    except (ValueError, TypeError):
        return -1, []


def share_out(
    numbers: list[int], members: dict[str, tuple[int, list[int]]]
) -> dict[str, list[int]]:
    """Partitions to members: evenly, each where it was last if that is possible.

    >>> share_out([0, 1, 2, 3], {"a": (7, [0, 1, 2, 3]), "b": (-1, [])})
    {'a': [0, 1], 'b': [2, 3]}
    >>> share_out([0, 1, 2], {"b": (3, [2, 0]), "a": (2, [0, 1])})
    {'a': [1], 'b': [0, 2]}
    """
    given: dict[str, list[int]] = {member: [] for member in sorted(members)}
    least, more = divmod(len(numbers), len(given))
    left = set(numbers)
    for member in sorted(
        given, key=lambda m: (-members[m][0], m)
    ):  # the latest owner's word counts
        room = least + (more > 0)
        kept = [n for n in sorted(members[member][1]) if n in left][:room]
        more -= len(kept) > least
        given[member] += kept
        left -= set(kept)
    for number in sorted(left):
        given[min(given, key=lambda m: (len(given[m]), m))].append(number)
    return {member: sorted(got) for member, got in given.items()}


@dataclass(frozen=True)
class Given:
    """Partitions that are ours, and the membership under which they are."""

    membership: Any
    numbers: frozenset[int]


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Runs on the consumer's own thread: notes, and nothing else."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.given = None

    def on_partitions_lost(self, lost: Any) -> None:
        self._member.given = None

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.note(list(assigned))


class GroupMember:
    """This process as a member of the group. `look` is called by one thread, `given` read by all."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.given: Given | None = None
        self.rejoins = False
        self._consumer: Any = None
        self._watch: JoinWatch | None = None
        self._topic_check = TopicCheck(settings)

    def join(self) -> None:
        """Subscribe; the first `look` joins."""
        settings = self.settings
        what = f"the group cannot be joined at {settings.servers}"
        try:
            self._consumer = persist(
                settings.connection,
                what,
                lambda: subscribed(settings, ByNumberAssignor(), _Listener(self)),
            )
        except AuthorizationError as error:
            raise BrokerError(f"{what}: {error}") from error
        self._watch = JoinWatch(self._consumer)

    def note(self, assigned: list[TopicPartition]) -> None:
        """Called inside a poll, when partitions are given out."""
        if assigned:
            self._consumer.pause(*assigned)
        membership = valid_membership(self._consumer.group_metadata())
        numbers = frozenset(tp.partition for tp in assigned)
        self.given = None if membership is None else Given(membership, numbers)

    def look(self, timeout: float) -> None:
        """Stay in the group, and hear of changes."""
        assert self._watch is not None
        if self.rejoins:
            self.rejoins = False
            request_rejoin(self._consumer)
        try:
            with suppress(NoOffsetForPartitionError):
                self._consumer.poll(timeout_ms=int(timeout * 1000), max_records=1)
        except AuthorizationError as error:
            raise BrokerError(f"the group cannot be joined: {error}") from error
        except KafkaError as error:
            log.warning("a poll failed (%s: %s)", type(error).__name__, error)
            time.sleep(0.2)
        self._watch.look()
        if self._watch.in_vain:
            self._replace_consumer()
        if self.given is not None and not self.given.numbers:
            self._topic_check.look(self._consumer)

    def _replace_consumer(self) -> None:
        """Start over with a new consumer; the old one stays if the broker cannot be reached now."""
        try:
            consumer = subscribed(self.settings, ByNumberAssignor(), _Listener(self))
        except (KafkaError, BrokerError) as error:
            log.info("no other consumer can be had now (%s: %s)", type(error).__name__, error)
            return
        log.warning("joining the group fails again and again: starting over with a new consumer")
        self.close()
        self.given = None
        self._consumer, self._watch = consumer, JoinWatch(consumer)

    def trouble(self) -> str | None:
        """Why nothing can be committed now."""
        if self._consumer is None or self.given is None:
            return "no partitions are assigned"
        return silence(self.silent_for(), self.settings)

    def silent_for(self) -> float:
        """Seconds since the group's coordinator last answered."""
        consumer = self._consumer
        return 0.0 if consumer is None else answered_ago(consumer)

    def close(self) -> None:
        """Leave the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(KafkaError):
                consumer.close(autocommit=False, timeout_ms=5_000)


class PartitionAssignment(Assignment):
    """One partition, for as long as it is ours."""

    def __init__(self, settings: KafkaSettings, member: GroupMember, number: int) -> None:
        super().__init__(settings)
        self._member = member
        self._number = number
        self._under: Given | None = None

    def is_ours(self) -> bool:
        """Whether the group has settled, and the partition is ours."""
        return super().is_ours() and self._member.given is self._under

    def refused(self) -> None:
        """Another has taken over: wait for a new assignment, or it would be fenced in turn."""
        self.detach()
        if self._member.given is self._under:
            self._member.given = None
            self._member.rejoins = True

    def join(self) -> None:
        """Create the consumer, if there is none; it is no member of the group."""
        if self.consumer is not None:
            return
        consumer = create_client(
            KafkaConsumer, **{**self.settings.consumer(), "group_instance_id": None}
        )
        use_quick_records(consumer)
        self.partitions = [TopicPartition(t, self._number) for t in self.settings.topics.inputs]
        consumer.assign(self.partitions)
        consumer.pause(*self.partitions)
        self.consumer = consumer

    def await_partitions(self) -> Joining | Released | None:
        """Whether the group has settled and the partition is ours; another process's is given up."""
        self.detach()
        given = self._member.given
        if given is None:
            time.sleep(_PAUSE)
            return Joining()
        if self._number not in given.numbers:
            return Released(f"partition {self._number} is another process's now")
        self._under, self.membership = given, given.membership
        return None

    def silent_for(self) -> float:
        """Seconds since the group's coordinator last answered the member."""
        return self._member.silent_for()

    def trouble(self) -> str | None:
        """Why nothing can be committed now."""
        return self._member.trouble()


def partition_log(settings: KafkaSettings, member: GroupMember, number: int) -> Log:
    """The log of one partition, for as long as it is ours."""
    settings = replace(settings, partition=number, group_instance_id=None)
    return kafka_log(settings, PartitionAssignment(settings, member, number))
