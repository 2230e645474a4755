"""Who owns the partitions: this process, another one, or nobody yet.

An `Assignment` has the consumer that reads and knows which partitions the group gave it. `TopicAssignment` is
that of a process that owns all partitions or is standby; where each partition has a forest of its own, see
`partition_membership`. `KafkaMembership` makes ownership of an assignment: it fences the owner before and
reads the last commit.
"""

from __future__ import annotations

import abc
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import (
    IllegalStateError,
    InconsistentGroupProtocolError,
    KafkaError,
    NoOffsetForPartitionError,
)

from streamforest.errors import BrokerError, RecordsGoneError, StreamForestError
from streamforest.io.kafka.assignors import OneOwnerAssignor
from streamforest.io.kafka.compat.records import use_quick_records
from streamforest.io.kafka.compat.workarounds import (
    JoinWatch,
    answered_ago,
    committed_now,
    create_client,
    request_rejoin,
    valid_membership,
)
from streamforest.io.kafka.reader import commit_number
from streamforest.io.kafka.retry import RetryPolicy
from streamforest.io.kafka.settings import KafkaSettings, check_partition_counts
from streamforest.io.kafka.topics import TopicCheck
from streamforest.io.log import (
    Acquisition,
    Commit,
    Joining,
    Membership,
    Owned,
    Partition,
    Released,
    Standby,
)

if TYPE_CHECKING:  # its module imports this one
    from streamforest.io.kafka.producer import TransactionalProducer

log = logging.getLogger(__name__)

_RECREATE_AFTER = 3  # failures in a row after which a new consumer takes the place of the old


class Assignment(abc.ABC):
    """The partitions that the group gave this process. All of it but `trouble` is called from one thread."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.consumer: Any = None
        self.partitions: list[TopicPartition] = []
        self.membership: Any = None
        """The group metadata as of the assignment: nothing else is ever committed with (workaround A)."""
        self.is_standby = False
        """Whether another member owns everything."""
        self._attached = False

    @abc.abstractmethod
    def join(self) -> None:
        """Create the consumer, if there is none."""

    @abc.abstractmethod
    def await_partitions(self) -> Joining | Standby | Released | None:
        """Wait a moment for partitions; None once there are some."""

    def is_ours(self) -> bool:
        """Whether the partitions are this process's, as far as it knows."""
        return self._attached

    def attach(self) -> None:
        """The partitions are ours, and their last commit was read."""
        self._attached = True

    def detach(self) -> None:
        """The partitions have to be acquired again before anything else."""
        self._attached = False

    @abc.abstractmethod
    def refused(self) -> None:
        """A commit was refused: nothing is ours until partitions are assigned again."""

    def silent_for(self) -> float:
        """Seconds since the group's coordinator last answered."""
        return answered_ago(self.consumer)

    def watch(self) -> None:
        """Check the membership; call it after each poll."""

    def trouble(self) -> str | None:
        """Why nothing can be committed now: no partitions, or a broker that does not answer."""
        consumer = self.consumer  # another thread asks, and `leave` may come in between
        if consumer is None or not (self._attached or self.is_standby):
            return "no partitions are assigned"
        return silence(answered_ago(consumer), self.settings)

    def refuse_gone(self, positions: Mapping[Partition, int]) -> None:
        """RecordsGoneError where the pipeline has a position in a partition that it is no longer given."""
        gone = sorted(set(positions) - {tuple(tp) for tp in self.partitions})
        if gone and self.is_ours():
            topic, number = gone[0]
            raise RecordsGoneError(
                f"the pipeline stands at offset {positions[gone[0]]} of {topic}-{number}, which is not "
                "among the partitions that it reads: the topic is gone, was recreated with fewer, or "
                "is not read any more"
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
        self.is_standby = False
        self.membership, self.partitions = None, []
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            try:
                consumer.close(autocommit=False, timeout_ms=5_000)
            except KafkaError as error:
                log.info("the consumer did not close cleanly: %s", error)


def silence(seconds: float, settings: KafkaSettings) -> str | None:
    """What to say of a broker that last answered so many seconds ago."""
    if seconds > max(3.0, settings.session_timeout_ms / 2000):
        return f"the broker at {settings.servers} has not answered for {seconds:.0f} s"
    return None


def subscribed(settings: KafkaSettings, assignor: Any, listener: Any) -> Any:
    """A consumer in the group; the first poll joins. BrokerError if a topic is not there."""
    consumer = create_client(
        KafkaConsumer, **settings.consumer(), partition_assignment_strategy=[assignor]
    )
    try:
        topics = settings.topics.inputs
        consumer.subscribe(topics, listener=listener)
        for topic in topics:
            if not consumer.partitions_for_topic(topic):  # before the first poll: workaround D
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
    """Notes changes of the assignment; it runs on the consumer's own thread."""

    def __init__(self, assignment: TopicAssignment) -> None:
        self._assignment = assignment

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._assignment.note_loss()

    def on_partitions_lost(self, lost: Any) -> None:  # the default would call `revoked`
        self._assignment.note_loss()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._assignment.note_assignment(list(assigned))


class TopicAssignment(Assignment):
    """All partitions or none."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(settings)
        self._watch: JoinWatch | None = None
        self._topic_check = TopicCheck(settings)

    def note_assignment(self, assigned: list[TopicPartition]) -> None:
        """Called inside a poll: capture who we are; everything else waits until after it."""
        own = self.settings.partition
        assigned = [tp for tp in assigned if own is None or tp.partition == own]
        self.detach()
        self.partitions = sorted(assigned)
        self.is_standby = not assigned
        if assigned:
            self.consumer.pause(*assigned)
            self.membership = valid_membership(self.consumer.group_metadata())

    def note_loss(self) -> None:
        """Called inside a poll: nothing is ours until partitions are assigned again."""
        self.detach()
        self.is_standby = False
        self.membership, self.partitions = None, []

    def join(self) -> None:
        """Create the consumer, if there is none."""
        if self.consumer is None:
            consumer = subscribed(self.settings, OneOwnerAssignor(), _Listener(self))
            use_quick_records(consumer)
            self.consumer, self._watch = consumer, JoinWatch(consumer)

    def await_partitions(self) -> Joining | Standby | Released | None:
        """Poll once, unless partitions are there already."""
        if not self._has_partitions():
            self.quiet_poll(100 if self.is_standby else 200)
            self.watch()
        if self._has_partitions():
            return None
        if self.is_standby:
            self._topic_check.look(self.consumer)
            return Standby()
        return Joining()

    def _has_partitions(self) -> bool:
        return bool(self.partitions) and self.membership is not None

    def watch(self) -> None:
        """Join again where joining has got stuck, in the end with another consumer."""
        if self._watch is None:
            return
        self._watch.look()
        if self._watch.in_vain:
            log.warning(
                "joining the group fails again and again: starting over with a new consumer"
            )
            self.leave()
            self._watch = None

    def refused(self) -> None:
        """Nothing is ours until partitions are assigned again."""
        self.note_loss()
        request_rejoin(self.consumer)


class OnlyMember(TopicAssignment):
    """All partitions of a pipeline that does not run: an operator acts for it, as the only member."""

    def await_partitions(self) -> Joining | Standby | Released | None:
        """Refuse a group whose members share the partitions out in another way: it is at work."""
        try:
            return super().await_partitions()
        except InconsistentGroupProtocolError as error:
            raise _running() from error


def acquire_alone(membership: Membership) -> Commit:
    """The last commit of a log that nobody else owns; StreamForestError if another process does.

    BrokerError if the cluster does not let us: after `retry_seconds`, and the time that members which were
    killed stay in the group.
    """
    deadline = math.inf
    if isinstance(membership, KafkaMembership):
        settings = membership.settings
        deadline = time.monotonic() + settings.retry_seconds + settings.session_timeout_ms / 500
    while not isinstance(answer := membership.try_acquire(), Owned):
        if isinstance(answer, Standby | Released):
            raise _running()
        if time.monotonic() > deadline:
            raise BrokerError(
                "the log cannot be owned (kafka.retry_seconds): "
                f"{membership.trouble() or 'the group gives out no partitions'}"
            )
    return answer.commit


def _running() -> StreamForestError:
    return StreamForestError("the pipeline is running: stop it first, all its processes")


class KafkaMembership:
    """Ownership of the partitions of an assignment."""

    def __init__(
        self,
        settings: KafkaSettings,
        assignment: Assignment,
        producer: TransactionalProducer,
        retry: RetryPolicy,
    ) -> None:
        self.settings = settings
        self.assignment = assignment
        self.retry = retry
        self.paused: set[TopicPartition] = set()
        """Partitions that the source does not want records of for now."""
        self.upstream: str | None = None
        """What the source cannot read because of whoever writes it."""
        self._producer = producer

    def try_acquire(self) -> Acquisition:
        """Join the group, await partitions, fence the owner before, read the last commit."""
        assignment, retry = self.assignment, self.retry
        try:
            assignment.join()
            waiting = assignment.await_partitions()
            if waiting is not None:
                if isinstance(waiting, Standby):
                    retry.recovered()
                    retry.committed()  # what was pending is another's to do
                return waiting
            membership = assignment.membership
            self._producer.replace()
            check_partition_counts(self.settings, self._producer.partitions)
            commit = self._read_commit()
        except KafkaError as error:
            retry.back_off("attach", error)
            if retry.failures % _RECREATE_AFTER == 0:
                assignment.leave()  # it may wait for an answer that was lost, and would for ever
            return Joining()
        if membership is None or assignment.membership is not membership:
            return Joining()  # partitions were assigned again in the meantime
        assignment.attach()
        retry.recovered()
        retry.found(commit.metadata)
        return Owned(commit)

    def _read_commit(self) -> Commit:
        best: tuple[int, str] | None = None
        positions: dict[Partition, int] = {}
        without: list[TopicPartition] = []
        for tp in self.assignment.partitions:
            found = committed_now(self.assignment.consumer, tp)
            if found is None or not found.metadata:
                without.append(tp)
                continue
            positions[tuple(tp)] = found.offset
            number = commit_number(found.metadata)
            if best is None or number > best[0]:
                best = number, found.metadata
        return Commit(
            metadata=None if best is None else best[1],
            positions=positions,
            new_partitions=self._beginnings(without, grown=best is not None),
        )

    def _beginnings(self, partitions: list[TopicPartition], grown: bool) -> dict[Partition, int]:
        """Where partitions without a commit begin; those added later always at their beginning."""
        if not partitions:
            return {}
        consumer = self.assignment.consumer
        at_end = self.settings.auto_offset_reset == "latest" and not grown
        ask = consumer.end_offsets if at_end else consumer.beginning_offsets
        return {tuple(tp): offset for tp, offset in ask(partitions).items()}

    def keep_alive(self) -> None:
        """Keep the membership alive without reading on."""
        assignment = self.assignment
        if not assignment.is_ours():
            return
        with assignment.while_ours():
            assignment.consumer.pause(*assignment.partitions)
        try:
            assignment.quiet_poll(0)
        except KafkaError as error:
            log.info("a poll failed: %s", error)
        if assignment.is_ours():
            with assignment.while_ours():
                assignment.consumer.resume(*(set(assignment.partitions) - self.paused))

    def trouble(self) -> str | None:
        """Why nothing can be committed now: no partitions, or a broker that does not answer."""
        retry = self.retry
        return retry.failing or retry.uncommitted or self.assignment.trouble() or self.upstream

    def release(self) -> None:
        """Leave the group and close both clients."""
        self._producer.close()
        self.assignment.leave()
