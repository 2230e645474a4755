"""Which partitions are ours, and under which membership of the group.

A `Hold` has the consumer that reads. The one here is of a process that owns the whole topic, or stands by
until it does; where each partition has a forest of its own, see `partition_membership`.
"""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import IllegalStateError, KafkaError, NoOffsetForPartitionError

from streamforest.errors import BrokerError
from streamforest.io.kafka.assignors import OneOwnerAssignor
from streamforest.io.kafka.compat.records import use_quick_records
from streamforest.io.kafka.compat.workarounds import (
    JoinWatch,
    answered_ago,
    create_client,
    known_partitions,
    request_rejoin,
    valid_membership,
)
from streamforest.io.kafka.retry import Patience
from streamforest.io.kafka.settings import KafkaSettings
from streamforest.io.log import Partition

log = logging.getLogger(__name__)


class Hold(abc.ABC):
    """What both ways of holding partitions have in common. All of it is called from one thread."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.consumer: Any = None
        self.assigned: list[TopicPartition] = []
        self.membership: Any = None
        self.stands_by = False
        """Whether another member owns everything."""
        self.owned = False
        """Whether anything was ever ours."""
        self._attached = False

    @abc.abstractmethod
    def join(self) -> None:
        """Make the consumer, if there is none."""

    @abc.abstractmethod
    def settle(self, patience: Patience, meanwhile: Callable[[], None]) -> None:
        """Until partitions are ours. While another member owns them, `meanwhile` is called."""

    def is_ours(self) -> bool:
        """Whether the partitions are this process's, as far as it knows."""
        return self._attached

    def attach(self) -> None:
        """They are ours, and their last commit was read."""
        self._attached = self.owned = True

    def detach(self) -> None:
        """They are to be attached anew before anything else."""
        self._attached = False

    @abc.abstractmethod
    def refused(self) -> None:
        """A commit was refused: nothing is ours until partitions are assigned anew."""

    def silent_for(self) -> float:
        """Seconds since the group's coordinator last answered."""
        return answered_ago(self.consumer)

    def watch(self) -> None:
        """Look after the membership; call it after each poll."""

    def trouble(self) -> str | None:
        """Why nothing can be committed now: no partitions, or a broker that has stopped answering."""
        consumer = self.consumer  # another thread asks, and `leave` may come in between
        if consumer is None or not (self._attached or self.stands_by):
            return "no partitions are assigned"
        return silence(answered_ago(consumer), self.settings)

    def refuse_gone(self, positions: Mapping[Partition, int]) -> None:
        """BrokerError where the pipeline stands in a partition that it is not given any more."""
        gone = sorted(set(positions) - {tuple(tp) for tp in self.assigned})
        if gone and self.is_ours():
            topic, number = gone[0]
            raise BrokerError(
                f"the pipeline stands at offset {positions[gone[0]]} of {topic}-{number}, which is not "
                "among the partitions that it reads: the topic is gone, was made anew with fewer, or "
                "is not read any more. Start the pipeline under another name"
            )

    @contextmanager
    def while_ours(self) -> Iterator[None]:
        """Calls that fail only because the assignment has changed under them."""
        try:
            yield
        except (AssertionError, KeyError, ValueError, IllegalStateError) as error:
            log.info("the assignment has changed: %r", error)
            self.detach()

    def quiet_poll(self, timeout_ms: int) -> None:
        """A poll that must not bring records: every partition is paused."""
        with suppress(NoOffsetForPartitionError):  # nothing committed yet: `seek` sets positions
            self.consumer.poll(timeout_ms=timeout_ms, max_records=1)

    def leave(self) -> None:
        """Leave the group and close the consumer."""
        self.detach()
        self.stands_by = False
        self.membership, self.assigned = None, []
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            try:
                consumer.close(autocommit=False, timeout_ms=5_000)
            except KafkaError as error:
                log.info("the consumer did not close cleanly: %s", error)


def silence(seconds: float, settings: KafkaSettings) -> str | None:
    """What is to be said of a broker that last answered so long ago."""
    if seconds > max(3.0, settings.session_ms / 2000):
        return f"the broker at {settings.servers} has not answered for {seconds:.0f} s"
    return None


class Absence:
    """Tells partitions that another member owns from those that are gone with their topic."""

    def __init__(self, settings: KafkaSettings, patience: float = 20.0) -> None:
        self._settings = settings
        self._patience = patience  # seconds; a broker that starts up may not know its topics yet
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
        if now - self._since >= self._patience:
            raise BrokerError(
                f"the broker at {self._settings.servers} has no topic {gone[0]!r} any more: put it "
                "back, or start the pipeline under another name with a new one"
            )


def subscribed(settings: KafkaSettings, assignor: Any, listener: Any) -> Any:
    """A consumer in the group; the first poll joins. BrokerError if a topic is not there."""
    consumer = create_client(
        KafkaConsumer, **settings.consumer(), partition_assignment_strategy=[assignor]
    )
    try:
        topics = settings.topics.inputs
        consumer.subscribe(topics, listener=listener)
        for topic in topics:
            if not consumer.partitions_for_topic(topic):  # before the first poll: trap D
                raise BrokerError(
                    f"the broker at {settings.servers} has no topic {topic!r}: "
                    "make it, or run with --create-topics"
                )
    except BaseException:
        with suppress(KafkaError):
            consumer.close(autocommit=False, timeout_ms=1_000)
        raise
    return consumer


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes what happens to the assignment; it runs on the consumer's own thread."""

    def __init__(self, hold: TopicHold) -> None:
        self._hold = hold

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._hold.note_loss()

    def on_partitions_lost(self, lost: Any) -> None:  # the default would call `revoked`
        self._hold.note_loss()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._hold.note_assignment(list(assigned))


class TopicHold(Hold):
    """All partitions or none."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(settings)
        self._watch: JoinWatch | None = None
        self._absence = Absence(settings)

    def note_assignment(self, assigned: list[TopicPartition]) -> None:
        """Called inside a poll: capture who we are; everything else waits until after it."""
        lane = self.settings.lane
        assigned = [tp for tp in assigned if lane is None or tp.partition == lane]
        self.detach()
        self.assigned = sorted(assigned)
        self.stands_by = not assigned
        if assigned:
            self.consumer.pause(*assigned)
            self.membership = valid_membership(self.consumer.group_metadata())

    def note_loss(self) -> None:
        """Called inside a poll: nothing is ours until partitions are assigned again."""
        self.detach()
        self.stands_by = False
        self.membership, self.assigned = None, []

    def join(self) -> None:
        """Make the consumer, if there is none."""
        if self.consumer is None:
            consumer = subscribed(self.settings, OneOwnerAssignor(), _Listener(self))
            use_quick_records(consumer)
            self.consumer, self._watch = consumer, JoinWatch(consumer)

    def settle(self, patience: Patience, meanwhile: Callable[[], None]) -> None:
        """Poll until the group has settled and the partitions are ours."""
        told = time.monotonic()
        while not (self.assigned and self.membership is not None):
            patience.heed_stop()
            self.quiet_poll(100 if self.stands_by else 200)
            self.watch()
            if self.stands_by:
                self._absence.look(self.consumer)
                patience.recovered()
                patience.committed()  # what was pending is another's to do
                meanwhile()
            elif time.monotonic() - told > 30:
                told = time.monotonic()
                log.info("waiting for partitions")

    def watch(self) -> None:
        """Join anew where that has got stuck."""
        if self._watch is not None:
            self._watch.look()

    def refused(self) -> None:
        """Nothing is ours until partitions are assigned anew."""
        self.note_loss()
        request_rejoin(self.consumer)
