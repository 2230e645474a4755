"""A Kafka topic as the log of a pipeline: read in a group, answered in transactions.

Written against kafka-python; what it gets wrong is dealt with in `workarounds`. Which partitions are ours
is told by `membership` or `partition_membership`, what happens while the broker is away by `retry`.
Everything here is called from one thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import (
    AuthorizationError,
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from streamforest.errors import BrokerError, RecoveryError
from streamforest.io.codec.decoders import RecordDecoder
from streamforest.io.failpoints import failpoint
from streamforest.io.kafka.compat.workarounds import committed_now, unpark
from streamforest.io.kafka.membership import Hold, TopicHold
from streamforest.io.kafka.merge import Alignment
from streamforest.io.kafka.producer import NOT_OURS, TransactionalProducer
from streamforest.io.kafka.reader import JournalTail, KafkaReader, commit_number, read_journal
from streamforest.io.kafka.retry import Patience, not_allowed
from streamforest.io.kafka.settings import KafkaSettings, check_lane
from streamforest.io.kafka.stalls import Progress
from streamforest.io.kafka.topics import Topics
from streamforest.io.log import (
    Commit,
    CommitInDoubt,
    OutputRecord,
    Partition,
    Reassigned,
    RecordSlice,
    Stopped,
    Transaction,
)

log = logging.getLogger(__name__)

_METADATA_LIMIT = 4096
_ALIGNED_POLL = 0.05  # seconds a poll may take while records are in hand
_RENEW_AFTER = 3  # failures in a row after which a new consumer takes the place of the old


class KafkaLog:
    """The log of a pipeline on a broker. `stopping` is asked whenever it has to wait.

    Which partitions are ours is the business of `hold`; all of the topic, if nothing else is said.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        decode: RecordDecoder,
        stopping: Callable[[], bool] = lambda: False,
        hold: Hold | None = None,
    ) -> None:
        self.settings = settings
        self.exactly_once = settings.exactly_once
        self.numbers_commits = True
        self.decode = decode
        self.hold = hold or TopicHold(settings)
        self.patience = Patience(settings, stopping, self._nothing_pending)
        self._progress = Progress(self.hold, settings.stall_seconds)
        self._aligned: Alignment | None = None
        if settings.align_seconds is not None:
            self._aligned = Alignment(settings.align_seconds)
        self._full: set[TopicPartition] = set()
        self._producer = TransactionalProducer(settings.producer)

    def _nothing_pending(self) -> bool:
        return not self.hold.owned or self.hold.stands_by

    # ---- becoming the owner

    def attach(self, meanwhile: Callable[[], None] = lambda: None) -> Commit:
        """Join the group, wait for the partitions, fence any predecessor, read the last commit.

        While another member owns them, `meanwhile` is called between two polls.
        """
        hold, patience, settings = self.hold, self.patience, self.settings
        while True:
            try:
                hold.join()
                hold.settle(patience, meanwhile)
                membership = hold.membership
                self._producer.replace()
                check_lane(settings, self._producer.partitions)
                found = self._read_commit()
            except KafkaError as error:
                patience.wait_out("attach", error)
                if patience.failures % _RENEW_AFTER == 0:
                    hold.leave()  # it may wait for an answer that was lost, and would for ever
                continue
            if membership is None or hold.membership is not membership:
                continue  # given out anew in the meantime
            hold.attach()
            patience.recovered()
            patience.found(found.metadata)
            self._progress.begin()
            return found

    def _read_commit(self) -> Commit:
        best: tuple[int, str] | None = None
        positions: dict[Partition, int] = {}
        started: list[TopicPartition] = []
        for tp in self.hold.assigned:
            found = committed_now(self.hold.consumer, tp)
            if found is None or not found.metadata:
                started.append(tp)
                continue
            positions[tuple(tp)] = found.offset
            number = commit_number(found.metadata)
            if best is None or number > best[0]:
                best = number, found.metadata
        return Commit(
            metadata=None if best is None else best[1],
            positions=positions,
            started=self._beginnings(started, grown=best is not None),
        )

    def _beginnings(self, partitions: list[TopicPartition], grown: bool) -> dict[Partition, int]:
        """Where partitions without a commit begin; those added later always at their beginning."""
        if not partitions:
            return {}
        at_end = self.settings.start == "latest" and not grown
        ask = self.hold.consumer.end_offsets if at_end else self.hold.consumer.beginning_offsets
        return {tuple(tp): offset for tp, offset in ask(partitions).items()}

    # ---- reading

    def seek(self, positions: Mapping[Partition, int]) -> None:
        """Go on from here, with everything resumed; nothing if it was all taken away meanwhile."""
        if not self.hold.is_ours():
            return
        self.hold.refuse_gone(positions)
        with self.hold.while_ours():
            for partition, offset in positions.items():
                self.hold.consumer.seek(TopicPartition(*partition), offset)
            self.hold.consumer.resume(*self.hold.assigned)
        if self._aligned is not None:
            self._aligned.begin([tuple(tp) for tp in self.hold.assigned])
            self._full = set()

    def poll(self, most: int, timeout: float) -> list[RecordSlice]:
        """The next records; Reassigned if partitions were given out anew in the meantime."""
        if not self.hold.is_ours():
            raise Reassigned("the partitions were given out anew")
        if self._aligned is not None and len(self._aligned):
            timeout = min(timeout, _ALIGNED_POLL)
        unpark(self.hold.consumer)
        try:
            polled = self.hold.consumer.poll(timeout_ms=int(timeout * 1000), max_records=most)
        except OffsetOutOfRangeError as error:
            raise RecoveryError(
                f"events are gone from the log before they were read ({error}): raise the topic's "
                "retention; to go on without them, start the pipeline under another name"
            ) from error
        except LogTruncationError as error:
            raise RecoveryError(
                f"the broker has lost events that were read already ({error}), as an unclean leader "
                "election does: start the pipeline under another name"
            ) from error
        except NoOffsetForPartitionError:
            polled = {}  # a partition that was just added: its assignment comes with the next poll
        except KafkaError as error:
            self.patience.wait_out("poll", error)
            polled = {}
        except (KeyError, AssertionError) as error:
            log.info("the assignment has changed: %r", error)
            raise Reassigned("the partitions were given out anew") from error
        self.hold.watch()
        if not self.hold.is_ours():
            raise Reassigned("the partitions were given out anew")
        if polled:
            self.patience.recovered()
        self.patience.heard(self.hold.silent_for())
        self._progress.note(polled, self._full)
        if self._aligned is not None:
            return self._side_by_side(self._aligned, polled, most)
        return [
            RecordSlice((tp.topic, tp.partition), batch[0].offset, batch[-1].offset + 1, batch)
            for tp, batch in polled.items()
            if batch
        ]

    def _side_by_side(
        self, aligned: Alignment, polled: Mapping[TopicPartition, list[Any]], most: int
    ) -> list[RecordSlice]:
        """The next records by their times; partitions with plenty in hand are not read further."""
        for tp, batch in polled.items():
            aligned.add(tuple(tp), batch)
        taken = aligned.take(most, time.monotonic(), self._behind)
        full = {TopicPartition(*partition) for partition in aligned.full()}
        with self.hold.while_ours():
            self.hold.consumer.pause(*(full - self._full))
            self.hold.consumer.resume(*(self._full - full))
        self._full = full
        return taken

    def _behind(self, partitions: list[Partition]) -> list[Partition]:
        """Those that have more than was polled, or of which nothing is known yet."""
        found = []
        for partition in partitions:
            tp = TopicPartition(*partition)
            end = self.hold.consumer.highwater(tp)
            if end is None or self.hold.consumer.position(tp) < end:
                found.append(partition)
        return found

    def ends(self) -> dict[Partition, int]:
        """Where all partitions end now."""
        return {
            tuple(tp): at for tp, at in self.hold.consumer.end_offsets(self.hold.assigned).items()
        }

    def idle(self) -> None:
        """Keep the membership alive without reading on; Stopped when asked to stop, since nothing
        is pending that would be lost.
        """
        if self.patience.stopping():
            raise Stopped("asked to stop while recovering")
        if not self.hold.is_ours():
            return
        with self.hold.while_ours():
            self.hold.consumer.pause(*self.hold.assigned)
        try:
            self.hold.quiet_poll(0)
        except KafkaError as error:
            log.info("a poll failed: %s", error)
        if self.hold.is_ours():
            with self.hold.while_ours():
                self.hold.consumer.resume(*(set(self.hold.assigned) - self._full))

    def trouble(self) -> str | None:
        """Why nothing can be committed now: no partitions, or a broker that has stopped answering."""
        return self.patience.failing or self.patience.uncommitted or self.hold.trouble()

    def lag(self) -> dict[Partition, int]:
        """Records known to the broker at the last fetch and not yet polled."""
        return self._progress.lag()

    def at_end(self) -> bool:
        """Whether every partition has been read to where it ends now."""
        if not self.hold.is_ours() or (self._aligned is not None and len(self._aligned)):
            return False
        try:
            ends = self.hold.consumer.end_offsets(self.hold.assigned)
            return all(self.hold.consumer.position(tp) >= end for tp, end in ends.items())
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
        (trap B). One that fails again and again is told by `trouble`, and a stop is heeded.
        """
        try:
            self._commit(transaction)
        except CommitInDoubt as doubt:
            self.patience.doubted(doubt)
            raise
        self.patience.committed()

    def _commit(self, transaction: Transaction) -> None:
        membership = self.hold.membership
        if membership is None or not self.hold.is_ours():
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
                self.hold.consumer.commit(offsets, timeout_ms=10_000)
            failpoint("after-commit")
        except NOT_OURS as error:
            # whoever owns the partitions now has fenced us; to fence them back would be wrong
            self.hold.refused()
            raise CommitInDoubt(f"{type(error).__name__}: {error}") from error
        except AuthorizationError as error:
            raise not_allowed(self.settings, error) from error
        except KafkaError as error:
            raise CommitInDoubt(f"{type(error).__name__}: {error}") from error

    def read_back(self) -> str | None:
        """The text of the last commit, asked of the broker."""
        try:
            found = committed_now(self.hold.consumer, self.hold.assigned[0])
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
        topic, lane = self.settings.topics.events, self.settings.lane
        try:
            for number in sorted(self.hold.consumer.partitions_for_topic(topic) or ()):
                if lane not in (None, number):
                    continue
                tp = TopicPartition(topic, number)
                found = committed_now(self.hold.consumer, tp)
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
        self.hold.leave()


def _messages(topics: Topics, transaction: Transaction, lane: int) -> dict[str, list[OutputRecord]]:
    """What is published, by topic; the journal last, since its place is asked for."""
    return {
        topics.predictions: transaction.predictions,
        topics.dead_letters: transaction.dead_letters,
        topics.journal: [
            OutputRecord(transaction.journal, str(transaction.number).encode(), partition=lane)
        ],
    }
