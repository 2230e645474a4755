"""A Kafka topic as the log of a pipeline: read in a group, answered in transactions.

Written against kafka-python; what it gets wrong is dealt with in `kafka_guard`. Everything here is
called from one thread, except the two methods of `_Listener`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import (
    AuthorizationError,
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)

from streamforest.errors import BrokerError, RecoveryError
from streamforest.stream.aligned import Alignment
from streamforest.stream.decoders import RecordDecoder
from streamforest.stream.diagnosis import diagnose
from streamforest.stream.failpoints import failpoint
from streamforest.stream.kafka_clients import admin
from streamforest.stream.kafka_guard import (
    JoinWatch,
    TransactionalProducer,
    answered_ago,
    captured,
    committed_now,
    unpark,
)
from streamforest.stream.kafka_permissions import explain
from streamforest.stream.kafka_reader import (
    JournalTail,
    KafkaReader,
    commit_number,
    read_journal,
)
from streamforest.stream.kafka_records import use_quick_records
from streamforest.stream.kafka_settings import KafkaSettings
from streamforest.stream.kafka_topics import Topics
from streamforest.stream.ownership import OneOwnerAssignor
from streamforest.stream.records import (
    CommitInDoubt,
    Committed,
    Outgoing,
    Partition,
    Reassigned,
    Stopped,
    Stretch,
    Transaction,
)

log = logging.getLogger(__name__)

_NOT_OURS = (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    ProducerFencedError,
    UnknownMemberIdError,
)
_METADATA_LIMIT = 4096
_STOP_GRACE = 20.0  # seconds a stop waits for a broker that is away, to commit what is pending
_ASK_AFTER = 5  # failures in a row between two looks at why the broker cannot be reached
_ALIGNED_POLL = 0.05  # seconds a poll may take while records are in hand
_RENEW_AFTER = 3  # failures in a row after which a new consumer takes the place of the old
_BACK_OFF = (0.1, 0.2, 0.5, 1.0, 2.0)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes what happens to the assignment; it runs on the consumer's own thread."""

    def __init__(self, owner: KafkaLog) -> None:
        self._owner = owner

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._owner.note_loss()

    def on_partitions_lost(self, lost: Any) -> None:  # the default would call `revoked`
        self._owner.note_loss()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._owner.note_assignment(list(assigned))


class KafkaLog:
    """The log of a pipeline on a broker. `stopping` is asked whenever it has to wait."""

    def __init__(
        self,
        settings: KafkaSettings,
        decode: RecordDecoder,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.settings = settings
        self.exactly_once = settings.exactly_once
        self.numbers_commits = True
        self.membership: Any = None
        self.decode = decode
        self._stopping = stopping
        self._assigned: list[TopicPartition] = []
        self._attached = False
        self._consumer: Any = None
        self._watch: JoinWatch | None = None
        self._progress: dict[TopicPartition, tuple[int, float]] = {}
        self._failures = 0
        self._owned = self._stands_by = False
        self._stop_seen = 0.0
        self._failing: str | None = None
        self._failed_at = 0.0
        self._aligned: Alignment | None = None
        if settings.align_seconds is not None:
            self._aligned = Alignment(settings.align_seconds)
        self._full: set[TopicPartition] = set()
        self._producer = TransactionalProducer(settings.producer())

    # ---- becoming the owner

    def note_assignment(self, assigned: list[TopicPartition]) -> None:
        """Called inside a poll: capture who we are; everything else waits until after it."""
        lane = self.settings.lane
        assigned = [tp for tp in assigned if lane is None or tp.partition == lane]
        self._attached = False
        self._assigned = sorted(assigned)
        self._stands_by = not assigned
        if assigned:
            self._consumer.pause(*assigned)
            self.membership = captured(self._consumer.group_metadata())

    def note_loss(self) -> None:
        """Called inside a poll: nothing is ours until partitions are assigned again."""
        self._attached = self._stands_by = False
        self.membership, self._assigned = None, []

    def _is_ours(self) -> bool:
        """Whether the partitions are this process's, as far as it knows."""
        return self._attached

    def _refused(self) -> None:
        """A commit was refused: nothing is ours until partitions are assigned anew."""
        self.note_loss()
        self._consumer._coordinator.request_rejoin()

    def attach(self, meanwhile: Callable[[], None] = lambda: None) -> Committed:
        """Join the group, wait for the partitions, fence any predecessor, read the last commit.

        While another member owns them, `meanwhile` is called between two polls.
        """
        while True:
            try:
                self._join()
                self._await_partitions(meanwhile)
                membership = self.membership
                self._producer.replace()
                found = self._read_commit()
            except KafkaError as error:
                self._wait_out("attach", error)
                if self._failures % _RENEW_AFTER == 0:
                    self._leave()  # it may wait for an answer that was lost, and would for ever
                continue
            if membership is None or self.membership is not membership:
                continue  # given out anew in the meantime
            self._attached = self._owned = True
            self._recovered()
            self._progress.clear()
            return found

    def _join(self) -> None:
        if self._consumer is not None:
            return
        topics = self.settings.topics.inputs
        consumer = KafkaConsumer(
            **self.settings.consumer(), partition_assignment_strategy=[OneOwnerAssignor()]
        )
        use_quick_records(consumer)
        consumer.subscribe(topics, listener=_Listener(self))
        for topic in topics:
            if not consumer.partitions_for_topic(topic):  # before the first poll: trap D
                consumer.close(autocommit=False)
                raise BrokerError(
                    f"the broker at {self.settings.servers} has no topic {topic!r}: "
                    "make it, or run with --create-topics"
                )
        self._consumer = consumer
        self._watch = JoinWatch(consumer)

    def _await_partitions(self, meanwhile: Callable[[], None]) -> None:
        """Poll until the group has settled and the partitions are ours."""
        assert self._watch is not None
        told = time.monotonic()
        while not (self._assigned and self.membership is not None):
            self._heed_stop()
            self._quiet_poll(100 if self._stands_by else 200)
            self._watch.look()
            if self._stands_by:
                self._recovered()
                meanwhile()
            elif time.monotonic() - told > 30:
                told = time.monotonic()
                log.info("waiting for partitions")

    def _quiet_poll(self, timeout_ms: int) -> None:
        """A poll that must not bring records: every partition is paused."""
        with suppress(NoOffsetForPartitionError):  # nothing committed yet: `seek` sets positions
            self._consumer.poll(timeout_ms=timeout_ms, max_records=1)

    def _read_commit(self) -> Committed:
        best: tuple[int, str] | None = None
        positions: dict[Partition, int] = {}
        started: list[TopicPartition] = []
        for tp in self._assigned:
            found = committed_now(self._consumer, tp)
            if found is None or not found.metadata:
                started.append(tp)
                continue
            positions[tuple(tp)] = found.offset
            number = commit_number(found.metadata)
            if best is None or number > best[0]:
                best = number, found.metadata
        return Committed(
            metadata=None if best is None else best[1],
            positions=positions,
            started=self._beginnings(started, grown=best is not None),
        )

    def _beginnings(self, partitions: list[TopicPartition], grown: bool) -> dict[Partition, int]:
        """Where partitions without a commit begin; those added later always at their beginning."""
        if not partitions:
            return {}
        at_end = self.settings.start == "latest" and not grown
        ask = self._consumer.end_offsets if at_end else self._consumer.beginning_offsets
        return {tuple(tp): offset for tp, offset in ask(partitions).items()}

    # ---- reading

    def seek(self, positions: Mapping[Partition, int]) -> None:
        """Go on from here, with everything resumed; nothing if it was all taken away meanwhile."""
        if not self._is_ours():
            return
        with self._while_ours():
            for partition, offset in positions.items():
                self._consumer.seek(TopicPartition(*partition), offset)
            self._consumer.resume(*self._assigned)
        if self._aligned is not None:
            self._aligned.begin([tuple(tp) for tp in self._assigned])
            self._full = set()

    @contextmanager
    def _while_ours(self) -> Iterator[None]:
        """Calls that fail only because the assignment has changed under them."""
        try:
            yield
        except (AssertionError, KeyError, IllegalStateError) as error:
            log.info("the assignment has changed: %r", error)
            self._attached = False

    def poll(self, most: int, timeout: float) -> list[Stretch]:
        """The next records; Reassigned if partitions were given out anew in the meantime."""
        if not self._is_ours():
            raise Reassigned("the partitions were given out anew")
        if self._aligned is not None and len(self._aligned):
            timeout = min(timeout, _ALIGNED_POLL)
        unpark(self._consumer)
        try:
            polled = self._consumer.poll(timeout_ms=int(timeout * 1000), max_records=most)
        except OffsetOutOfRangeError as error:
            raise RecoveryError(
                f"events are gone from the log before they were read ({error}): raise the topic's "
                "retention; to go on without them, start the pipeline under another name"
            ) from error
        except NoOffsetForPartitionError:
            polled = {}  # a partition that was just added: its assignment comes with the next poll
        except KafkaError as error:
            self._wait_out("poll", error)
            polled = {}
        except (KeyError, AssertionError) as error:
            log.info("the assignment has changed: %r", error)
            raise Reassigned("the partitions were given out anew") from error
        if self._watch is not None:
            self._watch.look()
        if not self._is_ours():
            raise Reassigned("the partitions were given out anew")
        if polled or self._silent_for() < time.monotonic() - self._failed_at:
            self._recovered()
        self._look_for_stalls(polled)
        if self._aligned is not None:
            return self._side_by_side(self._aligned, polled, most)
        return [
            Stretch((tp.topic, tp.partition), batch[0].offset, batch[-1].offset + 1, batch)
            for tp, batch in polled.items()
            if batch
        ]

    def _side_by_side(
        self, aligned: Alignment, polled: Mapping[TopicPartition, list[Any]], most: int
    ) -> list[Stretch]:
        """The next records by their times; partitions with plenty in hand are not read further."""
        for tp, batch in polled.items():
            aligned.add(tuple(tp), batch)
        taken = aligned.take(most, time.monotonic(), self._behind)
        full = {TopicPartition(*partition) for partition in aligned.full()}
        with self._while_ours():
            self._consumer.pause(*(full - self._full))
            self._consumer.resume(*(self._full - full))
        self._full = full
        return taken

    def _behind(self, partitions: list[Partition]) -> list[Partition]:
        """Those that have more than was polled, or of which nothing is known yet."""
        found = []
        for partition in partitions:
            tp = TopicPartition(*partition)
            end = self._consumer.highwater(tp)
            if end is None or self._consumer.position(tp) < end:
                found.append(partition)
        return found

    def _look_for_stalls(self, polled: Mapping[Any, Any]) -> None:
        """Begin anew with a partition that has records but has brought none for a long time.

        The broker itself is asked where it ends: a fetch that was lost tells nothing.
        """
        now = time.monotonic()
        quiet = []
        for tp in (self._consumer.assignment() & set(self._assigned)) - self._full:
            position, since = self._progress.get(tp, (-1, now))
            if tp in polled:
                self._progress[tp] = (polled[tp][-1].offset + 1, now)
                continue
            self._progress[tp] = (position, since)
            if now - since > self.settings.stall_seconds:
                quiet.append(tp)
        for tp, end in self._ends(quiet).items():
            with self._while_ours():
                position = self._consumer.position(tp)
                self._progress[tp] = (position, now)
                if position >= end:
                    continue
                log.warning("%s-%d stalled at offset %d of %d; fetching anew", *tp, position, end)
                self._consumer.seek(tp, position)
                self._consumer.resume(tp)

    def ends(self) -> dict[Partition, int]:
        """Where all partitions end now."""
        return {tuple(tp): at for tp, at in self._consumer.end_offsets(self._assigned).items()}

    def whole_journal(self) -> list[tuple[int, bytes]]:
        """Every record of the journal, with its offset."""
        with closing(self.tail(-1)) as tail:
            return tail.rest()

    def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions end now; nothing if the broker does not tell."""
        if not partitions:
            return {}
        try:
            found: dict[TopicPartition, int] = self._consumer.end_offsets(partitions)
        except (KafkaError, AssertionError, KeyError) as error:
            log.info("the ends of the partitions could not be asked for: %r", error)
            return {}
        return found

    def idle(self) -> None:
        """Keep the membership alive without reading on; Stopped when asked to stop, since nothing
        is pending that would be lost.
        """
        if self._stopping():
            raise Stopped("asked to stop while recovering")
        if not self._is_ours():
            return
        with self._while_ours():
            self._consumer.pause(*self._assigned)
        try:
            self._quiet_poll(0)
        except KafkaError as error:
            log.info("a poll failed: %s", error)
        if self._is_ours():
            with self._while_ours():
                self._consumer.resume(*(set(self._assigned) - self._full))

    def trouble(self) -> str | None:
        """Why nothing can be committed now: no partitions, or a broker that has stopped answering."""
        if self._failing is not None:
            return self._failing
        consumer = self._consumer
        if consumer is None or not (self._attached or self._stands_by):
            return "no partitions are assigned"
        silent = self._silent_for()
        if silent > max(3.0, self.settings.session_ms / 2000):
            return f"the broker at {self.settings.servers} has not answered for {silent:.0f} s"
        return None

    def _silent_for(self) -> float:
        """Seconds since the group's coordinator last answered."""
        return answered_ago(self._consumer)

    def lag(self) -> dict[Partition, int]:
        """Records known to the broker at the last fetch and not yet polled."""
        found = {}
        owned = self._consumer.assignment() if self._is_ours() else ()
        for tp in sorted(owned):
            end = self._consumer.highwater(tp)
            if end is not None:
                at = self._progress.get(tp, (-1, 0.0))[0]
                found[(tp.topic, tp.partition)] = max(0, end - at) if at >= 0 else 0
        return found

    def at_end(self) -> bool:
        """Whether every partition has been read to where it ends now."""
        if not self._is_ours() or (self._aligned is not None and len(self._aligned)):
            return False
        try:
            ends = self._consumer.end_offsets(self._assigned)
            return all(self._consumer.position(tp) >= end for tp, end in ends.items())
        except (KafkaError, AssertionError, KeyError):
            return False

    # ---- writing

    def commit(self, transaction: Transaction) -> None:
        """Make predictions, dead letters, journal and offsets true at once.

        1. Nobody commits who is not a member: the membership captured at assignment (trap A).
        2. Begin, send everything, flush, and look at every single outcome (trap C).
        3. The journal's offset is known now: with it, the text that goes along with the offsets.
        4. Offsets of all owned partitions into the same transaction.
        5. Commit: the only decision point.

        Whatever goes wrong, nobody knows the outcome until `attach` has asked, with a new producer
        (trap B).
        """
        membership = self.membership
        if membership is None or not self._is_ours():
            raise CommitInDoubt("no longer a member of the group")
        topics = self.settings.topics
        try:
            if self.exactly_once:
                self._producer.begin()
            place = self._producer.publish(_messages(topics, transaction, self.settings.lane or 0))
            failpoint("after-produce")
            metadata = transaction.metadata(place)
            if len(metadata.encode()) > _METADATA_LIMIT:
                raise BrokerError(f"metadata of {len(metadata)} bytes; a bug")
            offsets = {
                TopicPartition(*partition): OffsetAndMetadata(offset, metadata, -1)
                for partition, offset in transaction.positions.items()
            }
            if self.exactly_once:
                self._producer.add_offsets(offsets, membership)
                failpoint("before-commit")
                self._producer.commit()
            else:
                failpoint("before-commit")
                self._consumer.commit(offsets, timeout_ms=10_000)
            failpoint("after-commit")
        except _NOT_OURS as error:
            # whoever owns the partitions now has fenced us; to fence them back would be wrong
            self._refused()
            raise CommitInDoubt(f"{type(error).__name__}: {error}") from error
        except AuthorizationError as error:
            raise self._not_allowed(error) from error
        except KafkaError as error:
            raise CommitInDoubt(f"{type(error).__name__}: {error}") from error

    def read_back(self) -> str | None:
        """The text of the last commit, asked of the broker."""
        try:
            found = committed_now(self._consumer, self._assigned[0])
        except (KafkaError, IndexError) as error:
            log.info("the last commit could not be read back: %s", error)
            return None
        return None if found is None else str(found.metadata)

    def journal(self, since: int, until: int) -> Generator[tuple[int, bytes], None, None]:
        """Journal records after offset `since`, up to and with `until`."""
        settings = self.settings
        return read_journal(
            settings.client(), settings.topics.journal, since, until, settings.lane or 0
        )

    def standing(self) -> str | None:
        """What the last commit of the group says, whoever made it."""
        texts = []
        topic = self.settings.topics.events
        try:
            for number in sorted(self._consumer.partitions_for_topic(topic) or ()):
                tp = TopicPartition(topic, number)
                found = committed_now(self._consumer, tp)
                if found is not None and found.metadata:
                    texts.append(str(found.metadata))
        except KafkaError as error:
            raise BrokerError(f"the last commit cannot be asked for: {error}") from error
        return max(texts, key=commit_number, default=None)

    def tail(self, since: int) -> JournalTail:
        """The journal after offset `since`, as it grows."""
        settings = self.settings
        return JournalTail(settings.client(), settings.topics.journal, since, settings.lane or 0)

    def reader(self, positions: Mapping[Partition, int]) -> KafkaReader:
        """A reader of the input from these positions on."""
        return KafkaReader(self.settings.client(), positions)

    def close(self) -> None:
        """Leave the group and close both clients."""
        self._producer.close()
        self._leave()

    def _leave(self) -> None:
        self.note_loss()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                consumer.close(autocommit=False, timeout_ms=5_000)
            except KafkaError as error:
                log.info("the consumer did not close cleanly: %s", error)

    def _heed_stop(self) -> None:
        """Give up waiting when asked to stop: at once if nothing was owned, else after a while."""
        if not self._stopping():
            return
        now = time.monotonic()
        self._stop_seen = self._stop_seen or now
        if not self._owned or self._stands_by or now - self._stop_seen > _STOP_GRACE:
            raise Stopped("asked to stop while waiting for the broker or for partitions")

    def _recovered(self) -> None:
        self._failures, self._failing = 0, None

    def _wait_out(self, what: str, error: KafkaError) -> None:
        """Sleep a little longer after each failure in a row; give up on what time cannot mend."""
        if isinstance(error, UnknownTopicOrPartitionError):
            raise BrokerError(f"{what}: a topic is missing: {error}") from error
        if isinstance(error, AuthorizationError):
            raise self._not_allowed(error) from error
        self._heed_stop()
        self._tell_trouble()
        self._failing = f"{what}: {type(error).__name__}: {error}"
        self._failed_at = time.monotonic()
        pause = _BACK_OFF[min(self._failures, len(_BACK_OFF) - 1)]
        self._failures += 1
        log.warning("%s failed (%s: %s); again in %.1f s", what, type(error).__name__, error, pause)
        time.sleep(pause)

    def _tell_trouble(self) -> None:
        """Now and then, say why the broker cannot be reached: a password may have been changed."""
        if self._failures % _ASK_AFTER == _ASK_AFTER - 1:
            trouble = diagnose(self.settings.connection)
            if trouble is not None:
                log.warning("%s", trouble.text)

    def _not_allowed(self, error: AuthorizationError) -> BrokerError:
        """A permission that was taken away while the pipeline runs, by name."""
        client = admin(self.settings.connection)
        try:
            return explain(client, self.settings.connection, self.settings.needs, error)
        finally:
            client.close()


def _messages(topics: Topics, transaction: Transaction, lane: int) -> dict[str, list[Outgoing]]:
    """What is published, by topic; the journal last, since its place is asked for."""
    return {
        topics.predictions: transaction.predictions,
        topics.dead_letters: transaction.dead_letters,
        topics.journal: [
            Outgoing(transaction.journal, str(transaction.number).encode(), lane=lane)
        ],
    }
