"""The loop: an event's way from the log to its committed prediction, top to bottom.

    poll -> decode -> admit -> advance every model -> predictions of the first -> commit

Kafka or a recorded file, it is the same loop: a `Log` gives records and takes back what became of them.
Two clocks: a *commit* (`commit.py`) makes predictions, dead letters, one journal record and the
positions true at once, and is the only decision point; a *snapshot* (`store.py`) is written in the
background now and then (`scheduler.py`), and later commits name it. After a crash the newest named
snapshot is loaded and the journal's slices after it are advanced again without publishing
(`resume.py`, `replayer.py`): the models are deterministic, so that is exactly the state that was.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamforest import LEARN, PREDICT
from streamforest.errors import InputError, StreamForestError
from streamforest.io.codec.dead_letters import dead_letter, passed_on
from streamforest.io.codec.predictions import MAX_PREDICTION, Prediction, encode
from streamforest.io.failpoints import during, failpoint
from streamforest.io.log import Log, OutputRecord, Partition, Reassigned, RecordSlice, Stopped
from streamforest.observe.measures import ModelMeasures
from streamforest.runtime.checkpoint.commit import Committer, Lost, Pending, Superseded
from streamforest.runtime.checkpoint.journal import add_slice
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.scheduler import Snapshotting
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.processing.admission import Limits, Rows
from streamforest.runtime.processing.answers import Likely, answers, reason_of, top_classes
from streamforest.runtime.processing.intake import Intake, take_in
from streamforest.runtime.processing.models import Model, advance, plain_novelty
from streamforest.runtime.processing.river import RiverModel
from streamforest.runtime.processing.schedule import Clocks, Settings
from streamforest.runtime.recovery.replayer import States
from streamforest.runtime.recovery.resume import TakingUp
from streamforest.runtime.telemetry import Silent, Telemetry

log = logging.getLogger(__name__)

Ending = Literal["finished", "limit", "stopped"]
_SAMPLED = 128  # rows predicted on their own, once a second, to know what predicting takes


class Run:
    """One run of a pipeline: `recover`, then `consume`; look at `state` for what it has become."""

    def __init__(
        self,
        log: Log,
        models: Mapping[str, Model],
        limits: Limits,
        snapshots: SnapshotFolder,
        settings: Settings,
        source: Mapping[str, Any],
        telemetry: Telemetry | None = None,
    ) -> None:
        """`models` are new ones; the first publishes its predictions, all are measured. `source`
        says what the events come from: another source cannot take up the run.
        """
        self.log = log
        self.limits = limits
        self.snapshots = snapshots
        self.settings = settings
        self.source = source
        self.telemetry: Telemetry = telemetry or Silent()
        self._first = next(iter(models))
        self.commits = Committer(log, snapshots, settings.pack)
        self._configured = models
        self.states = States(models, limits, snapshots, settings.late, source)
        self.state = self.states.fresh()
        self.pending = Pending()
        self.ended = False
        self.clocks = Clocks(settings)
        self.snapshotting = Snapshotting(self)
        self.taking_up = TakingUp(self)
        self.telemetry.follow(log.trouble)

    @property
    def events(self) -> int:
        """Events read so far, those of earlier processes included."""
        return self.state.events

    @property
    def main(self) -> str:
        """The model that publishes."""
        return self.state.main or self._first

    @property
    def measures(self) -> dict[str, ModelMeasures]:
        """What is measured of each model."""
        return self.state.measures

    def warm_up(self) -> None:
        """Let the kernels compile before anything is owned, so that no event waits for it."""
        for model in self._configured.values():
            model.warm_up()

    def consume(
        self,
        *,
        max_events: int | None = None,
        stop: Callable[[], bool] = lambda: False,
        watch: Callable[[Run], None] = lambda run: None,
    ) -> Ending:
        """Go on until the log ends, `max_events` more are done or `stop()` says so.

        `stop` is asked and `watch` told once a poll. However it ends, the last commit names a snapshot
        at exactly the position reached; an error leaves the run at the commit before it.
        """
        limit = None if max_events is None else self.events + max_events
        try:
            self._consume(limit, stop, watch)
        except Stopped:
            log.warning("stopped without a last commit; the next run does those events again")
            return "stopped"
        if self.ended:
            return "finished"
        return "limit" if limit is not None and self.events >= limit else "stopped"

    def _consume(
        self, limit: int | None, stop: Callable[[], bool], watch: Callable[[Run], None]
    ) -> None:
        while not (self.ended or stop() or (limit is not None and self.events >= limit)):
            begun = time.perf_counter()
            read = self._step(limit)
            if self.clocks.commit_due(self.events, self.pending) or self._request_due():
                self._commit()
            if self.snapshotting.due():
                self.snapshotting.begin()
            self.state.pace.seconds += time.perf_counter() - begun
            self.telemetry.turned(self)
            self.snapshotting.tell()
            if read:
                watch(self)
        self._finish()

    # ---- an event's way

    def _step(self, limit: int | None) -> int:
        """One poll, all the way to pending predictions; how many records it brought."""
        try:
            slices = self.log.poll(*self.clocks.ask(self.events, self.pending, limit))
        except Reassigned as error:
            log.info("%s", error)
            self.recover()
            return 0
        if not slices:
            self.ended = self.settings.drain and self.log.at_end()
            return 0
        failpoint("after-poll")
        self._advance(self.state, slices, publish=True)
        read = sum(len(stretch.records) for stretch in slices)
        self.state.pace.events += read
        return read

    def _advance(self, state: RunState, slices: list[RecordSlice], publish: bool) -> None:
        """Records to pending predictions and dead letters. Recovery does it too, publishing nothing.

        Whether an event is taken is decided before it joins the batch, by rules that depend on the
        events before it alone: the same slices give the same decisions, however they are cut.
        """
        refuse = self._refuse if publish else _leave_out
        rules = self.settings.labels_topic, self.settings.events_format
        intake = take_in(state, slices, self.log.decode, refuse, *rules)
        learned = _learned_before(intake.rows, state.models[self.main])
        labels, top, novelty = self._advance_models(state, intake, publish)
        if not publish:
            return
        for partition, first, end, _ in slices:
            add_slice(self.pending.slices, *partition, first, end)
        self._publish(intake, labels, top, learned, novelty)
        self.telemetry.outcome("predicted", len(intake.taken) - intake.unadmitted)
        if intake.unadmitted:
            self.telemetry.outcome("not_admitted", intake.unadmitted)
        if intake.late is not None and state.late is not None:
            self.telemetry.late(state.late, intake.late.labels, intake.late.delays)
        for stretch in slices:
            self.pending.timestamps += [record.timestamp for record in stretch.records]

    def _refuse(self, record: Any, partition: Partition, error: InputError) -> None:
        """What becomes of an event that cannot be taken."""
        reason = reason_of(error)
        self.telemetry.dead(reason)
        if self.settings.bad_events == "stop":
            raise StreamForestError(
                f"{partition[0]}-{partition[1]}, offset {record.offset}: {error}; stopped, as "
                "dead_letters.policy = 'stop' asks"
            ) from error
        if self.settings.bad_events == "dead-letter":
            letter = dead_letter(record, partition, error, reason)
            self.pending.dead_letters.append(letter)
            self.pending.size += letter.size

    def _advance_models(
        self, state: RunState, intake: Intake, publish: bool
    ) -> tuple[list[Any], list[Likely], list[float | None]]:
        """Move every model through the rows; the answers of the first, and how new each event was."""
        labels: list[Any] = []
        top: list[Likely] = []
        new: NDArray[np.float64] | None = None
        rows, late = intake.rows, intake.late
        if not len(rows) and (late is None or not late.judged):
            return labels, top, []
        sample = publish and len(rows) > 0 and self.telemetry.samples()
        for number, (name, model) in enumerate(state.models.items()):
            table = rows.dicts if isinstance(model, RiverModel) else rows.table
            predict = _predict_seconds(model, table) if sample else None
            guesses, seconds = [], 0.0
            if len(rows):
                begun = time.perf_counter()
                with during("inside-advance"):
                    posteriors, novelty = advance(model, table, rows.y, rows.op)
                seconds = time.perf_counter() - begun
                classes = model.classes_
                guesses = answers(posteriors, classes)
                if name == self.main:
                    labels = guesses
                    top = top_classes(posteriors, classes, self.settings.top) if publish else []
                    new = novelty
                if publish and novelty is not None:
                    self.telemetry.novelty(name, novelty)
            truth, said, before = rows.y, guesses, 0
            if late is not None:
                truth, said = late.settle(guesses, number)
                before = len(truth) - len(late.predicted)
            state.measures[name].update(truth, said, seconds, before)
            if publish:
                self.telemetry.advanced(name, model, truth, said, seconds)
            if predict is not None:
                learned = int(np.count_nonzero(rows.op & LEARN))
                beyond = max(0.0, seconds - predict * len(rows))
                learn = beyond / learned if learned else None
                self.telemetry.sampled(name, predict, learn, len(rows))
        if publish and any(rows.new):
            state.newest_at = time.time()
        return labels, top, plain_novelty(new, len(rows))

    def _publish(
        self,
        intake: Intake,
        labels: list[Any],
        top: list[Likely],
        learned: list[int],
        novelty: list[float | None],
    ) -> None:
        """Predictions as messages, waiting for the commit that makes them true."""
        rows = intake.rows
        columns: list[list[Any]] = [labels, top, rows.y, rows.new, learned, novelty]
        if intake.late is not None and len(intake.late.predicted) < len(rows):
            columns = [[column[row] for row in intake.late.predicted] for column in columns]
        commit = self.commits.next_number if self.log.numbers_commits else None
        out, size = self.pending.predictions, 0
        for (partition, record, identity, number), label, likely, truth, new, before, far in zip(
            intake.taken, *columns, strict=True
        ):
            best = likely[0][1] if likely else 0.0
            topic, lane = partition
            prediction = Prediction(
                number,
                label,
                best,
                truth,
                likely,
                topic,
                lane,
                record.offset,
                before,
                new,
                identity,
                commit,
                far,
            )
            value = encode(prediction)
            if len(value) > MAX_PREDICTION:
                prediction.top = likely[:1]
                value = encode(prediction)
            headers = passed_on(record.headers) if record.headers else []
            message = OutputRecord(value, record.key, headers, lane)
            out.append(message)
            size += message.size if headers or message.key else len(value)
        self.pending.size += size

    # ---- commits

    def _commit(self) -> None:
        begun = time.perf_counter()
        if not self.pending.adopted:
            self.pending.promoted = self._promoted()
        try:
            self.commits.commit(self.state, self.pending)
        except Superseded as error:
            log.warning("%s: what was pending is dropped", error)
            self.taking_up.recover(error.found)
            return
        except Lost as error:
            log.warning("%s: what was pending is dropped", error)
            self.recover()
            return
        done, self.pending = self.pending, Pending(self.events)
        if done.promoted:
            self.state.main = done.promoted
            self.settings.requests.acknowledge(done.promoted)
            log.info("%s publishes from event %d on", done.promoted, self.events)
        self.taking_up.meet(self.commits.met)
        self.commits.met = {}
        self.clocks.committed()
        self.telemetry.committed(self, time.perf_counter() - begun, done.timestamps)

    def commit_now(self) -> None:
        """Commit what is pending, whatever it is."""
        self._commit()

    def _promoted(self) -> str:
        """The model that an operator wants to publish from the next event on, if it is another."""
        wanted = self.settings.requests.promotion()
        if wanted is not None and wanted not in self.state.models:
            log.error("%r cannot be promoted: there is no such model", wanted)
            self.settings.requests.acknowledge(wanted)
            return ""
        return wanted or ""

    def _request_due(self) -> bool:
        """Whether an operator request waits while no events arrive to cause a commit."""
        return self.events == self.pending.first and self.clocks.request_due(self.settings.requests)

    def _finish(self) -> None:
        """Commit what is pending, then let the last commit name a snapshot at exactly its place."""
        if self.events != self.pending.first or self.pending.added:
            self._commit()
        self.snapshots.wait()
        standing = self.commits.standing
        written = self.snapshots.written()
        if standing is None or standing.snapshot == f"s-{self.events:012d}":
            return
        there = written is not None and written.events == self.events
        if there or self.snapshotting.last():
            self._commit()

    def recover(self) -> None:
        """Own the log and stand where its last commit stands."""
        self.taking_up.recover()

    def advance_again(self, state: RunState, slices: list[RecordSlice]) -> None:
        """Through the models without publishing: recovery, and whoever replays the journal."""
        self.telemetry.beat()
        self._advance(state, slices, publish=False)


def _leave_out(record: Any, partition: Partition, error: InputError) -> None:
    """What recovery does with an event that cannot be taken: its dead letter is there already."""


def _predict_seconds(model: Model, table: Any) -> float:
    """What it takes to predict one of these rows and learn nothing; the model stays as it is."""
    few = table[:_SAMPLED]
    op = np.full(len(few), PREDICT, np.uint8)
    begun = time.perf_counter()
    model.advance(few, [None] * len(few), op)
    return (time.perf_counter() - begun) / len(few)


def _learned_before(rows: Rows, model: Model) -> list[int]:
    """How many events the model had learned before each row."""
    learns = (rows.op & LEARN) != 0
    before: list[int] = (np.cumsum(learns) - learns + model.n_learned).tolist()
    return before
