"""A replica: follows the journal of a pipeline without joining its group, and can be asked at any time.

It is a standby that never takes over. With two copies of the models nobody who asks waits for learning: one
copy answers while the other follows; as soon as that one has a newer commit, they change places. With one
copy (`serve.copies = 1`, half the memory) a question waits until the commit at work is learned.

An answer is always of a commit, never of a part of one. How old it may be is known without comparing the
clocks of two machines: the replica notes when it asked the broker for the journal's end and had followed
everything before it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streamforest.errors import BrokerError
from streamforest.io.kafka.clients import ask
from streamforest.io.kafka.onlooker import needs_of_onlooker, onlooker_log
from streamforest.io.kafka.permissions import Need, lacking, refusal
from streamforest.io.kafka.settings import KafkaSettings, for_partition
from streamforest.io.kafka.topics import absent
from streamforest.io.log import Stopped
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.decoding import decoder_of
from streamforest.runtime.factory import kafka_settings, new_run, snapshots_of
from streamforest.runtime.processing.loop import Run
from streamforest.runtime.recovery.standby import Follower
from streamforest.serve.answering import Decoders, View
from streamforest.serve.problems import unavailable
from streamforest.text import shown

log = logging.getLogger(__name__)

_IDLE = 0.02  # seconds between two looks at a journal that brings nothing
_ASK_END = 0.1  # seconds between two questions for the journal's end
_NOTHING_YET = (
    0.5  # seconds between two looks for a commit to begin at: each takes connections of its own
)
_YIELD = 0.001  # seconds in which whoever waits for the only copy gets it
_STOP_SECONDS = 20.0


class Copy(threading.Thread):
    """One copy of the state: follows in a thread of its own, except while it answers."""

    def __init__(self, name: str, run: Run, replica: Replica) -> None:
        super().__init__(name=f"replica-{name}", daemon=True)
        self.lock = threading.Lock()
        """Held while the state changes, or is read."""
        self.view: View | None = None
        self.trouble: str | None = None
        """Why it does not follow."""
        self.ended = False
        """Whether it will never follow again."""
        self.begun = False
        """Whether it has ever had a state."""
        self._run, self._replica = run, replica
        self.follower = Follower(run.log, run.replayer, lambda place: None, self._between)
        self._asked = 0.0

    def run(self) -> None:
        """Follow until the replica is closed."""
        replica = self._replica
        try:
            while not replica.closing.is_set():
                if replica.rests(self):
                    replica.closing.wait(_IDLE / 4)
                    continue
                begun = time.monotonic()
                advanced = self._step()
                if advanced or begun - self._asked > _ASK_END:
                    self._asked = begun
                    replica.stepped(self, begun if self._at_end() else None)
                idle = _NOTHING_YET if self.follower.state is None else _IDLE
                replica.closing.wait(_YIELD if advanced else idle)
        except Stopped:
            pass
        except Exception as error:  # a thread that dies tells nobody
            log.exception("the replica follows no longer")
            self.trouble = f"{type(error).__name__}: {error}"
        finally:
            self.ended = True
            self.follower.close()

    def warm_up(self) -> None:
        """Compile the kernels, so that no commit waits for it."""
        self._run.warm_up()

    def _step(self) -> bool:
        """Follow at least a commit; whether there was one. While this copy is the one that answers, it takes
        one at a time, so that nobody waits for two.
        """
        follower, before = self.follower, None if self.view is None else self.view.commit
        answering = self._replica.answers(self)
        with self.lock:
            if answering:
                follower.step(max_records=1)
            else:
                follower.step()
            state, commit = follower.state, follower.commit
            if state is None:  # what was at work may be half done: it is loaded again
                self.view = None
                self.trouble = follower.trouble or follower.another_rule
                self._replica.lost(self)
                return False
            if commit < 0:
                return False  # a snapshot: it is of a commit that the journal is still to name
            self.begun, self.trouble = True, None
            if commit != before:
                self.view = View(state, commit, state.main or self._run.main)
        return commit != before

    def _at_end(self) -> bool:
        try:
            return self.follower.at_end()
        except BrokerError:
            return False  # the next step reports it

    def _between(self) -> None:
        if self._replica.closing.is_set():
            raise Stopped("asked to stop while following")


class Replica:
    """The state of a pipeline as of its last commit, for whoever asks."""

    def __init__(
        self, make_run: Callable[[], Run], copies: int, decoders: Decoders, top: int
    ) -> None:
        """`make_run` makes a run on a log that is only looked at, once for each copy."""
        self.decoders, self.top = decoders, top
        self.closing = threading.Event()
        self.on_commit: Callable[[int], None] = lambda commit: None
        """Told of each commit that answers are of from now on, in the thread of a copy."""
        self._change = threading.Lock()
        self._fresh_at: float | None = None
        self._copies = [Copy(str(number), make_run(), self) for number in range(copies)]
        self._active: Copy | None = None
        self._commit = -1

    def start(self) -> None:
        """Load the kernels, and begin to follow."""
        self._copies[0].warm_up()
        for copy in self._copies:
            copy.start()

    def close(self) -> None:
        """Stop following."""
        self.closing.set()
        for copy in self._copies:
            if copy.is_alive():
                copy.join(_STOP_SECONDS)

    # ---- for whoever asks

    @property
    def commit(self) -> int:
        """The commit that answers are of now; -1 before the first."""
        return self._commit

    def is_free(self) -> bool:
        """Whether the newest view can be had without waiting."""
        copy = self._active
        return copy is not None and not copy.lock.locked()

    def alive(self) -> bool:
        """Whether every copy is still at work; only a bug ends one before the end."""
        return self.closing.is_set() or all(not copy.ended for copy in self._copies)

    def trouble(self) -> str | None:
        """What keeps a copy from following."""
        return next((copy.trouble for copy in self._copies if copy.trouble is not None), None)

    def behind_seconds(self) -> float | None:
        """Every commit that was made so long ago, or longer, has been followed; None before the first."""
        fresh = self._fresh_at
        return None if fresh is None or self._active is None else time.monotonic() - fresh

    @contextmanager
    def reading(self) -> Iterator[View]:
        """The newest view; nothing changes in it while it is held."""
        while True:
            copy = self._active
            if copy is None:
                raise unavailable("not_ready", "no commit of the pipeline was followed yet")
            with copy.lock:
                if copy is not self._active or copy.view is None:
                    if copy.view is None:
                        raise unavailable("not_ready", "the model is being loaded again")
                    continue
                yield copy.view
                return

    # ---- for the copies

    def answers(self, copy: Copy) -> bool:
        """Whether it is this copy that answers."""
        return copy is self._active

    def rests(self, copy: Copy) -> bool:
        """Whether a copy leaves its state alone: it answers, and the other one follows. At the start, while
        the other one still loads, it does both.
        """
        return copy is self._active and any(
            other is not copy and other.begun for other in self._copies
        )

    def stepped(self, copy: Copy, fresh_at: float | None) -> None:
        """A copy has a commit, maybe a newer one; all that was made before `fresh_at` is in it."""
        with self._change:
            view = copy.view
            if view is None or view.commit is None:
                return
            before = self._commit
            if view.commit > before:
                self._active, self._commit = copy, view.commit
            if fresh_at is not None and view.commit == self._commit:
                self._fresh_at = max(fresh_at, self._fresh_at or fresh_at)
        if view.commit > before:
            self.on_commit(view.commit)

    def lost(self, copy: Copy) -> None:
        """A copy has lost its state, and begins again at a snapshot. If it was the one that answered, nobody
        does until it has caught up: its first commits are long past.
        """
        with self._change:
            if copy is self._active:
                self._active, self._commit, self._fresh_at = None, -1, None


def replica_of(pipeline: Pipeline, partition: int | None) -> Replica:
    """A replica of a pipeline on Kafka, or of one of its partitions; BrokerError if it may not be read."""
    settings = kafka_settings(pipeline)
    if partition is not None:
        settings = for_partition(settings, partition)
    _check(pipeline, settings)
    source = None if partition is None else {"partition": partition}

    def make_run() -> Run:
        snapshots = snapshots_of(pipeline, partition)
        return new_run(pipeline, onlooker_log(settings), snapshots, False, source=source)

    config = pipeline.config
    foreign = pipeline.decoder is not None or config.events_format not in ("json", "msgpack")
    own = decoder_of(pipeline) if foreign else None
    decoders = Decoders.of(config.features, config.bounds, config.labels is not None, own)
    return Replica(make_run, config.serve.copies, decoders, config.top_k)


def _check(pipeline: Pipeline, settings: KafkaSettings) -> None:
    """Refuse what could never be followed, before anything is loaded."""
    needs = needs_of_onlooker(settings)
    if pipeline.config.serve.accept_labels:
        names = pipeline.config.topics
        needs.append(Need("Write", "topic", names.labels or names.events))
    topics = [*settings.topics.inputs, settings.topics.journal]

    def check(client: Any) -> None:
        missing = lacking(client, needs)
        if missing:
            raise refusal(settings.connection, missing)
        gone = absent(client, topics)
        if gone:
            raise BrokerError(
                f"topic {shown(gone[0])} does not exist: {pipeline.config.name} has not run on this broker; "
                "start it first (streamforest run --create-topics)"
            )

    ask(settings.connection, check)
