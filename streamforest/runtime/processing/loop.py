"""The main loop: an event's way from the log to its committed prediction, top to bottom.

    poll -> decode -> admit -> advance every model -> predictions of the first -> commit

Kafka or a recorded file, it is the same loop: a `Log` gives records and takes back what became of them.
A *commit* (`checkpoint/commit.py`) makes predictions, dead letters, one journal record and the positions
true at once, and is the only decision point; a *snapshot* (`checkpoint/store.py`) is written in the
background now and then, and later commits name it. After a crash the newest named snapshot is loaded and
the journal's slices after it are advanced again without publishing (`recovery/ownership.py`): the models are
deterministic, so that is exactly the state that was.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from streamforest.errors import InputError, StreamForestError, UnreadGoneError
from streamforest.io.codec.dead_letters import dead_letter, place_of
from streamforest.io.codec.decoders import RecordDecoder
from streamforest.io.failpoints import failpoint
from streamforest.io.features.reader import EventReader
from streamforest.io.log import Log, Partition, Records, Stopped
from streamforest.observe import telemetry as reports
from streamforest.observe.commit_watch import CommitWatch
from streamforest.observe.measures import Evaluation
from streamforest.runtime.checkpoint.commit import Attempt, Committer, Pending, RunContext
from streamforest.runtime.checkpoint.journal import CommitMetadata
from streamforest.runtime.checkpoint.run_state import MakeReader, RunState
from streamforest.runtime.checkpoint.scheduler import SnapshotScheduler
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.operate.requests import announce
from streamforest.runtime.processing.adapters import Model, warm_up
from streamforest.runtime.processing.advancing import Said, advance_models, predictions
from streamforest.runtime.processing.intake import Intake, reason_of, rows_read, take_in
from streamforest.runtime.processing.limits import Limits
from streamforest.runtime.processing.schedule import CommitSchedule, Settings
from streamforest.runtime.recovery.ownership import Ownership
from streamforest.runtime.recovery.remedies import Remedies
from streamforest.runtime.recovery.replayer import Replayer, States

log = logging.getLogger(__name__)

Ending = Literal["finished", "limit", "stopped"]


def never() -> bool:
    """Nobody asks for a stop."""
    return False


class Run:
    """One run of a pipeline: `recover`, then `consume`; look at `state` for what it has become."""

    def __init__(
        self,
        log: Log,
        decode: RecordDecoder,
        models: Mapping[str, Model],
        limits: Limits,
        snapshots: SnapshotFolder,
        settings: Settings,
        source: Mapping[str, Any],
        telemetry: reports.Listener | None = None,
        stopping: Callable[[], bool] = never,
        reader: MakeReader = EventReader,
        arguments: Sequence[str] = ("PIPELINE",),
    ) -> None:
        """`models` are new ones; the first publishes its predictions, all are measured. `source`
        says what the events come from: a run is never continued on another source. `stopping` is
        asked whenever the run has to wait for its log. `arguments` name the pipeline in commands that
        messages quote.
        """
        self.log = log
        self.limits = limits
        self.snapshots = snapshots
        self.settings = settings
        watch = CommitWatch(settings.commit_seconds, log.source.lag)
        self.telemetry: reports.Listener = reports.Listeners(
            watch, reports.NullTelemetry() if telemetry is None else telemetry
        )
        self._decode = decode
        self._samples = telemetry is not None
        self._first = next(iter(models))
        self._configured = models
        self.states = States(models, limits, snapshots, settings.late, source, reader)
        self.context = context = RunContext(self.states.fresh())
        self.ended = False
        self.waiting_for: str | None = None
        """Why nothing was read yet, once that is known."""
        self.schedule = CommitSchedule(settings)
        self.committer = Committer(log, snapshots, context, settings.pack)
        self.scheduler = SnapshotScheduler(
            snapshots, context, self.schedule, self.states.check, source, self.telemetry
        )
        self.replayer = Replayer(
            log, snapshots, self.states, self.replay, settings.accept_version_change
        )
        self._remedies = Remedies(snapshots, self.states.restored, arguments)
        self.ownership = Ownership(
            log,
            context,
            snapshots,
            self.scheduler,
            self.replayer,
            self._remedies,
            self.telemetry,
            stopping,
        )
        self.telemetry.on_event(
            reports.LogOpened(
                lambda: log.membership.trouble() or watch.why(), log.source.lag, watch.seconds
            )
        )

    @property
    def state(self) -> RunState:
        """What the run has become."""
        return self.context.state

    @property
    def events(self) -> int:
        """Events read so far, including those of earlier processes."""
        return self.context.state.events

    @property
    def main(self) -> str:
        """The model that publishes."""
        return self.state.main or self._first

    @property
    def measures(self) -> Evaluation:
        """What is measured of each model."""
        return self.state.measures

    def warm_up(self) -> None:
        """Compile the kernels before anything is owned, so that no event waits for it."""
        warm_up(self._configured.values())

    def recover(self) -> None:
        """Own the log, with the state of its last commit; make the first commit where there is none."""
        self.ownership.acquire()
        first = self.context.last_commit is None
        while self.context.last_commit is None:
            self._commit()
        if first:
            self.ownership.report_ready()
        self._report_state()

    def _report_state(self) -> None:
        """Report what became of all events so far, and that the models have changed."""
        summary = self.state.rows.summary()
        counts = {"read": summary.read, **summary.parts()}
        self.telemetry.on_event(reports.RowsCounted(counts, self.state.degraded_values()))
        self.telemetry.on_event(reports.ModelsChanged(self.state.summaries))

    def consume(
        self,
        *,
        max_events: int | None = None,
        stop: Callable[[], bool] = never,
        watch: Callable[[Run], None] = lambda run: None,
    ) -> Ending:
        """Go on until the log ends, `max_events` more are done or `stop()` says so.

        `stop` and `watch` are called after each poll. However it ends, the last commit names a snapshot
        at exactly the position reached; an error leaves the run at the commit before it.
        """
        limit = None if max_events is None else self.events + max_events
        try:
            self._consume(limit, stop, watch)
        except Stopped:
            log.warning("stopped without a last commit; the next run does those events again")
            return "stopped"
        except UnreadGoneError as error:
            self._finish()  # all that was read is kept, in a snapshot that the remedy names
            assert self.context.last_commit is not None
            last = self.context.last_commit
            raise self._remedies.explained(error, last, self.state.positions) from error
        if self.ended:
            return "finished"
        return "limit" if limit is not None and self.events >= limit else "stopped"

    def _consume(
        self, limit: int | None, stop: Callable[[], bool], watch: Callable[[Run], None]
    ) -> None:
        while not (self.ended or stop() or (limit is not None and self.events >= limit)):
            begun, labels = time.perf_counter(), self.state.rows.labels
            read = self._step(limit)
            due = self.schedule.commit_due(self.events, self.context.pending)
            if due or self._request_due() or (not read and self._snapshot_unnamed()):
                self._commit()
            if self.scheduler.due():
                self.scheduler.begin()
            if read:  # waiting for records says nothing about the speed
                events = read - (self.state.rows.labels - labels)
                self.state.pace.add(events, time.perf_counter() - begun)
            self.telemetry.on_event(reports.IterationDone())
            self.scheduler.report()
            watch(self)
        self._finish()

    # ---- an event's way

    def _step(self, limit: int | None) -> int:
        """One poll, all the way to pending predictions; how many records it brought."""
        ask = self.schedule.ask(self.events, self.context.pending, limit)
        records = self.log.source.poll(*ask)
        if records is None:
            log.info("the partitions were assigned again")
            self.telemetry.on_event(reports.Rebalanced())
            self.recover()
            return 0
        if not records:
            self.ended = self.settings.drain and self.log.source.at_end()
            self._note_empty()
            return 0
        self.waiting_for = None
        failpoint("after-poll")
        self._advance(self.state, records, publish=True)
        return len(records)

    def _note_empty(self) -> None:
        """Say once that there is nothing to read, if nothing was ever read: a topic may be misspelt."""
        if self.events or self.waiting_for is not None or not self.log.source.at_end():
            return
        positions = self.state.positions
        new = "the topic has no new records" if any(positions.values()) else "the topic is empty"
        self.waiting_for = f"{'nothing was read' if self.ended else 'waiting'}: {new}"
        log.info("%s (%s)", self.waiting_for, ", ".join(sorted({topic for topic, _ in positions})))

    def _advance(self, state: RunState, records: Records, publish: bool) -> None:
        """Records to pending predictions and dead letters. Recovery does it too, publishing nothing.

        Whether an event is taken is decided before it joins the batch, by rules that depend on the
        events before it alone: the same order gives the same decisions, however it is cut into batches.
        """

        def refuse(record: Any, partition: Partition, error: InputError) -> None:
            refused = reports.EventRefused(
                reason_of(error), place_of(record, partition), str(error)
            )
            state.rows.on_event(refused)
            if publish:  # in recovery its dead letter is there already
                self._refuse(record, partition, error, refused)

        rules = self.settings.labels_topic, self.settings.events_format
        intake = take_in(state, records, self._decode, refuse, *rules)
        warnings = state.reader.take_warnings()
        learned = intake.rows.learned_before(state.models[self.main].n_learned)
        listener = self.telemetry if publish else None
        said = self._advance_models(state, intake, listener)
        late, waiting = intake.late, 0 if state.late is None else len(state.late.waiting)
        read = rows_read(intake, len(records), waiting)
        state.rows.on_event(read)
        if not publish:
            return
        for warning in warnings:
            log.warning("%s", warning)
        pending = self.context.pending
        pending.order.add(records)
        pending.timestamps += [record.timestamp for record in records.records]
        rows = intake.rows
        columns: list[list[Any]] = [said.labels, said.top, rows.y, rows.new, learned]
        columns += [said.novelty, said.levels]
        if late is not None and len(late.predicted) < len(rows):
            columns = [[column[row] for row in late.predicted] for column in columns]
        commit = self.context.next_commit if self.log.sink.numbers_commits else None
        messages = predictions(intake.taken, columns, commit)
        pending.predictions += messages
        pending.size += sum(
            [m.size if m.headers or m.key else len(m.value or b"") for m in messages]
        )
        report = self.telemetry.on_event
        report(reports.RecordsRead({p: last.timestamp for p, last in records.last().items()}))
        report(read)
        if late is not None and state.late is not None:
            report(reports.LabelsRead(state.late.status(), late.labels, late.delays))

    def _advance_models(
        self, state: RunState, intake: Intake, listener: reports.Listener | None
    ) -> Said:
        settings = self.settings
        return advance_models(state, intake, self.main, settings.top, listener, self._sample_due)

    def _sample_due(self) -> bool:
        """Whether to measure what predicting takes, which only listeners need."""
        return self._samples and self.schedule.sample_due()

    def _refuse(
        self, record: Any, partition: Partition, error: InputError, refused: reports.EventRefused
    ) -> None:
        """What becomes of an event that cannot be taken."""
        if self.settings.bad_events == "stop":
            raise StreamForestError(
                f"{refused.place}: {error}; stopped, as dead_letters.policy = 'stop' asks"
            ) from error
        self.telemetry.on_event(refused)
        if self.settings.bad_events == "dead-letter":
            letter = dead_letter(record, partition, error, refused.reason)
            self.context.pending.dead_letters.append(letter)
            self.context.pending.size += letter.size

    # ---- commits

    def _commit(self) -> None:
        """Commit what is pending. A commit in doubt is asked after, and sent again if it was not made; it
        is dropped if the log is another process's by now.
        """
        begun = time.perf_counter()
        context = self.context
        if not context.pending.adopted:
            requests, models = self.settings.requests, self.state.models
            context.pending.promoted = requests.promotion_among(models)
            context.pending.announced = requests.announcements.accepted(models)
        before = context.last_commit
        attempt = self.committer.prepare()
        while context.attempt is attempt and not self.committer.send():
            self.telemetry.on_event(reports.CommitDoubted())
            self.ownership.acquire()
        if context.last_commit == attempt.metadata:
            self._committed(attempt, before, time.perf_counter() - begun)

    def _committed(self, attempt: Attempt, before: CommitMetadata | None, seconds: float) -> None:
        """A commit was made: acknowledge what it has done, delete what it makes superfluous."""
        state, promoted = self.state, attempt.pending.promoted
        if before is None or before.snapshot != attempt.metadata.snapshot:
            self.committer.forget_older(attempt)
        if promoted:
            state.main = promoted
            self.settings.requests.acknowledge(promoted)
            log.info("%s publishes from event %d on", promoted, self.events)
        if attempt.pending.announced:
            announce(state.models, attempt.pending.announced)
            self.settings.requests.announcements.acknowledge()
            log.info("announced at event %d: %s", self.events, attempt.pending.announced)
        self.schedule.committed()
        self._report_state()
        classes = {name: model.classes_ for name, model in state.models.items()}
        times = attempt.pending.timestamps
        self.telemetry.on_event(
            reports.CommitMade(
                seconds, times, state.newest_at, classes, self.events, self.main, state.measures
            )
        )

    def _request_due(self) -> bool:
        """Whether an operator request waits while no events arrive to cause a commit."""
        idle = self.events == self.context.pending.first
        return idle and self.schedule.request_due(self.settings.requests)

    def _snapshot_unnamed(self) -> bool:
        """Whether a snapshot of all that was read is durable, and no commit names it yet. Without records
        none would: a start would learn again what it holds, and it would be written again and again.
        """
        written, last = self.snapshots.written, self.context.last_commit
        if written is None or last is None or written.name == last.snapshot:
            return False
        return written.events == self.events == self.context.pending.first

    def _finish(self) -> None:
        """Commit what is pending, then let the last commit name a snapshot at exactly its position."""
        context = self.context
        for warning in context.state.reader.finish():
            log.warning("%s", warning)
        if self.events != context.pending.first or context.pending.added:
            self._commit()
        self.snapshots.wait()
        last = context.last_commit
        written = self.snapshots.written
        if last is None or last.snapshot == f"s-{self.events:012d}":
            return
        there = written is not None and written.events == self.events
        if there or self.scheduler.write_last():
            self._commit()

    def adopt(
        self, state: RunState, last_commit: CommitMetadata, pending: Pending, since: int
    ) -> CommitMetadata:
        """Continue after a commit from a state that an operator chose: a snapshot of it, and the commit
        that names it, which is returned. `since` is the place of the last record in the journal.
        """
        self.context.adopt(state, last_commit, pending)
        self.scheduler.write_now(since)
        self._commit()
        assert self.context.last_commit is not None
        return self.context.last_commit

    def replay(self, state: RunState, records: Records) -> None:
        """Advance a state through records without publishing: for recovery and whoever replays the
        journal.
        """
        self._advance(state, records, publish=False)
