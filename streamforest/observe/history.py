"""The history of a run, for its live page: bounded, fed by telemetry, kept beside the snapshots.

It listens to what a run reports and keeps what a person wants to see of it: the course in points, the classes
that appeared, what is confused with what, the last dead letters. A file of JSON lets it outlive a restart.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from operator import eq
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from streamforest.observe.evaluation import WINDOW
from streamforest.observe.page.history_file import (
    MAX_LETTERS,
    MAX_REASONS,
    Kept,
    Letter,
    read,
    write,
)
from streamforest.observe.page.points import FAR, Point, total
from streamforest.observe.telemetry import (
    BatchAdvanced,
    BatchSampled,
    ClassesBorn,
    CommitDoubted,
    CommitMade,
    EventRefused,
    IterationDone,
    LabelsRead,
    LabelsRecovered,
    LabelStatus,
    LogOpened,
    ModelsChanged,
    NoveltyMeasured,
    Rebalanced,
    RecordsRead,
    RoleChanged,
    RowsRead,
    SnapshotFailed,
    SnapshotWritten,
    TelemetryEvent,
)
from streamforest.private_files import FILE_MODE
from streamforest.text import printable

_PART_SECONDS = 2.0  # of one part of the run, at most
_PART_LABELS = 100  # labelled events after which a part ends, in a run that has not drawn much yet
_PART_LEAST = 0.25  # seconds of such a part, later on
_LOOK_SECONDS = 1.0  # between two looks at the lag
_SAVE_SECONDS = 10.0
_MEASURE_SECONDS = 60.0  # between two looks at the size of the models, at most
_CONFUSED = 2_000  # labelled events in each of two windows of confused pairs


class History:
    """What the live page shows of one run. It hears events on the run's thread, and is read from others."""

    def __init__(self, path: Path | None = None, mode: int = FILE_MODE) -> None:
        """`path` is the file that it is kept in; None keeps it in memory alone."""
        self.lock = Lock()
        self._path, self._mode = path, mode
        self.kept = Kept()
        self.revision = 0
        """Grows with each part: whoever has drawn this revision need not draw again."""
        self.started_at = time.time()
        self.main = ""
        self.finished = False
        self.role = ""
        self.partitions = 0
        self.behind = 0
        self.events = 0
        self.learned: dict[str, int] = {}
        self.classes: dict[str, int] = {}
        self.summaries: Mapping[str, Mapping[str, Any]] = {}
        self.labels: LabelStatus | None = None
        self.snapshot_failure: str | None = None
        self.events_at = 0.0
        self.committed_at = 0.0
        self.lags: dict[tuple[str, int], tuple[int, float | None]] = {}
        self.window: deque[Point] = deque()
        """The last parts that have `WINDOW` labelled events together."""
        self._windowed = 0
        self.overall = Point()
        """The sum of all parts."""
        self._pairs: list[Counter[tuple[Any, Any]]] = [Counter(), Counter()]
        self._judged = [0, 0]
        self._part = Point()
        self._part_from = self._looked = self._saved = time.monotonic()
        self._measure_at, self._measure_every = 0.0, 1.0
        self._measured = True
        self._summaries: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
        self._before: Any = None
        self._resumed = True
        self._ask_lag: Callable[[], Mapping[tuple[str, int], int]] = dict
        self._newest: dict[tuple[str, int], int] = {}
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            BatchAdvanced: self._advanced,
            IterationDone: lambda event: self._iterated(),
            RowsRead: self._read,
            RecordsRead: lambda event: self._newest.update(event.newest),
            ClassesBorn: self._born,
            BatchSampled: self._sampled,
            NoveltyMeasured: self._novel,
            EventRefused: self._refused,
            CommitMade: self._committed,
            CommitDoubted: self._doubted,
            SnapshotWritten: self._snapshot,
            SnapshotFailed: self._snapshot_failed,
            ModelsChanged: self._models_changed,
            LabelsRead: self._label_status,
            LabelsRecovered: self._label_status,
            RoleChanged: self._role_changed,
            Rebalanced: self._rebalanced,
            LogOpened: self._opened,
        }
        self._load()

    def on_event(self, event: TelemetryEvent) -> None:
        """Take an event of the run."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            with self.lock:
                handler(event)

    def close(self) -> None:
        """Keep the end of the run."""
        with self.lock:
            self.finished = True
            self.summaries = self._summaries() or self.summaries
            if self._part.events:
                self._end_part(time.monotonic())
            self._save()

    # ---- learning

    def _born(self, event: ClassesBorn) -> None:
        self._begin(event.learned)
        for label, at in zip(event.labels, event.learned_at or [event.learned] * len(event.labels)):
            self.kept.classes.born([label], time.time(), at)

    def _advanced(self, batch: BatchAdvanced) -> None:
        name, truth, predicted = batch.model, batch.truth, batch.predicted
        self.main = self.main or name
        if None in truth:
            pairs = [(a, b) for a, b in zip(truth, predicted) if a is not None]
            truth, predicted = [a for a, _ in pairs], [b for _, b in pairs]
        if name == self.main:
            self._begin(batch.learned - len(truth))
            correct = self._judge(truth, predicted)
        else:
            correct = sum(map(eq, truth, predicted))
        self.learned[name] = batch.learned
        part = self._part
        before = part.models.get(name, (0, 0))
        part.models[name] = before[0] + len(truth), before[1] + correct

    def _judge(self, truth: Any, predicted: Any) -> int:
        """Labelled events of the publishing model; how many of them it got right."""
        if not truth:
            return 0
        part = self._part
        part.labelled += len(truth)
        part.no_change += sum(map(eq, truth, [self._before, *truth[:-1]]))
        self._before = truth[-1]
        self.kept.labelled_at = time.time()
        counted = Counter(zip(truth, predicted))
        self.kept.classes.add(truth, predicted, counted)
        right = sum(count for (label, guess), count in counted.items() if label == guess)
        if self._judged[1] >= _CONFUSED:
            self._pairs = [self._pairs[1], Counter()]
            self._judged = [self._judged[1], 0]
        self._judged[1] += len(truth)
        current = self._pairs[1]
        for pair, count in counted.items():
            current[pair] += count
        return right

    def _begin(self, learned: int) -> None:
        """The first batch after a start: what a lost process had learned beyond it comes again."""
        if not self._resumed:
            return
        self._resumed = False
        kept = self.kept
        series = (kept.minutes.points, kept.hours.points, kept.whole.points)
        if any(points and points[-1].learned > learned for points in series):
            kept.classes.forget_after(learned)
            for points in series:
                points[:] = [point for point in points if point.learned <= learned]
            self.overall = total(kept.whole.points)

    def confused(self, most: int) -> tuple[list[tuple[str, str, int, int]], int]:
        """The most frequent mistakes: label, prediction, how often, and events of that label; then over
        how many labelled events.
        """
        both = self._pairs[0] + self._pairs[1]
        seen: Counter[Any] = Counter()
        for (label, _), count in both.items():
            seen[label] += count
        wrong = [(count, label, guess) for (label, guess), count in both.items() if label != guess]
        wrong.sort(key=lambda row: -row[0])
        told = [
            (_name(label), "" if guess is None else _name(guess), count, seen[label])
            for count, label, guess in wrong[:most]
        ]
        return told, sum(self._judged)

    def _sampled(self, event: BatchSampled) -> None:
        if event.model == self.main:
            part, rows = self._part, event.rows
            part.predict = part.predict[0] + rows, part.predict[1] + rows * event.predict
            if event.learn is not None:
                part.learn = part.learn[0] + rows, part.learn[1] + rows * event.learn

    def _novel(self, event: NoveltyMeasured) -> None:
        if event.model == (self.main or event.model):
            values = np.sort(event.values)  # what has no measure is infinite, or no number: last
            known = int(values.searchsorted(np.inf))
            if known:
                self._part.measured += known
                self._part.novelty += known * max(0.0, float(values[known // 2]))
                self._part.far += known - int(values[:known].searchsorted(FAR, "right"))

    # ---- input and output

    def _read(self, event: RowsRead) -> None:
        self._part.events += event.records - event.labels
        self.events += event.records  # until the next commit says how many there are
        if event.records:
            self.events_at = time.time()

    def _refused(self, event: EventRefused) -> None:
        self._part.refused += 1
        kept = self.kept
        message, place = printable(event.message, 300), printable(event.place, 300)
        kept.letters.append(Letter(time.time(), event.reason, message, place))
        del kept.letters[:-MAX_LETTERS]
        if event.reason in kept.reasons or len(kept.reasons) < MAX_REASONS:
            kept.reasons[event.reason] = kept.reasons.get(event.reason, 0) + 1

    def _label_status(self, event: LabelsRead | LabelsRecovered) -> None:
        self.labels = event.status

    def _committed(self, commit: CommitMade) -> None:
        self.committed_at = now = time.time()
        self.kept.commits += 1
        self._look()
        part = self._part
        part.commits += 1
        self.events = commit.events
        self.main = commit.main or self.main
        self.classes = {name: len(classes) for name, classes in commit.classes.items()}
        times = np.array(commit.timestamps, np.float64)
        times = times[times > 0]
        if len(times):
            waits = np.maximum(0.0, now - times / 1000)
            part.waits += len(waits)
            part.wait_median += len(waits) * float(np.median(waits))
            part.wait_p99 = max(part.wait_p99, float(np.quantile(waits, 0.99)))

    def _doubted(self, event: CommitDoubted) -> None:
        self.kept.commits_in_doubt += 1

    def _snapshot(self, event: SnapshotWritten) -> None:
        self.kept.snapshots += 1
        self.kept.snapshot_at = time.time()
        self.kept.snapshot_bytes = event.bytes
        self.snapshot_failure = None

    def _models_changed(self, event: ModelsChanged) -> None:
        self._summaries, self._measured = event.summaries, False
        self._measure()

    def _measure(self) -> None:
        """Ask for the size of the models: soon after a start, then less and less often."""
        now = time.monotonic()
        if now >= self._measure_at and self.learned and not self._measured:
            self.summaries, self._measured = self._summaries(), True
            took = time.monotonic() - now
            self._measure_every = min(_MEASURE_SECONDS, 2 * self._measure_every)
            self._measure_at = now + max(self._measure_every, 1000 * took)

    def _snapshot_failed(self, event: SnapshotFailed) -> None:
        self.kept.snapshot_failures += 1
        self.snapshot_failure = event.reason

    # ---- the process

    def _opened(self, event: LogOpened) -> None:
        self._ask_lag = event.lag

    def _rebalanced(self, event: Rebalanced) -> None:
        self.kept.rebalances += 1

    def _role_changed(self, event: RoleChanged) -> None:
        if event.role == "owner" and self.role == "standby":
            self._load()  # the owner before may have kept it in the same folder
        if event.role != "owner":
            self.lags = {}
        self.role, self.partitions, self.behind = event.role, event.partitions, event.behind

    def _iterated(self) -> None:
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._look()
            self._measure()
        seconds = now - self._part_from
        if seconds >= _PART_SECONDS or (
            self._part.labelled >= _PART_LABELS
            and (seconds >= _PART_LEAST or self.kept.whole.width == 1)
        ):
            self._end_part(now)
        if now - self._saved >= _SAVE_SECONDS:
            self._saved = now
            self._save()

    def _look(self) -> None:
        """Ask for what changes by itself."""
        now = time.time()
        lags = self._ask_lag()
        self._newest = {part: at for part, at in self._newest.items() if part in lags}
        self.lags = {
            part: (lag, self._seconds_behind(lag, self._newest.get(part, 0), now))
            for part, lag in lags.items()
        }
        if self.lags:
            self._part.lag = sum(lag for lag, _ in self.lags.values())
            known = [seconds for _, seconds in self.lags.values() if seconds is not None]
            self._part.lag_seconds = max(known) if known else None

    @staticmethod
    def _seconds_behind(lag: int, newest: int, now: float) -> float | None:
        """How old the last record was that was read, if more wait; None where records bear no time."""
        if lag == 0:
            return 0.0
        return max(0.0, now - newest / 1000) if newest > 0 else None

    def _end_part(self, now: float) -> None:
        part, kept = self._part, self.kept
        part.at, part.seconds = time.time(), max(0.0, now - self._part_from)
        last = kept.whole.points[-1] if kept.whole.points else part
        part.at = max(part.at, last.at)  # a wall clock may be set back
        part.learned = max(self.learned.get(self.main, 0), last.learned)
        for series in (kept.minutes, kept.hours, kept.whole):
            series.add(part)
        self.overall.add(part)
        if part.labelled:
            self.window.append(part)
            self._windowed += part.labelled
            while self._windowed - self.window[0].labelled >= WINDOW:
                self._windowed -= self.window.popleft().labelled
        self._part, self._part_from = Point(), now
        self.revision += 1

    # ---- the file

    def _load(self) -> None:
        if self._path is None:
            return
        kept = read(self._path)
        if kept is not None and kept.saved_at >= self.kept.saved_at:
            self.kept, self._resumed = kept, True
            self.revision += 1
            self.window.clear()
            for point in reversed(kept.minutes.points):
                if point.labelled and sum(one.labelled for one in self.window) < WINDOW:
                    self.window.appendleft(point.copy())
            self._windowed = sum(one.labelled for one in self.window)
            self.overall = total(kept.whole.points)

    def _save(self) -> None:
        if self._path is None or self.role == "standby":
            return
        self.kept.saved_at = time.time()
        if not write(self._path, self.kept, self._mode):
            self._path = None

    def forget(self) -> None:
        """Start over: what an earlier run has left is removed."""
        with self.lock:
            if self._path is not None:
                with contextlib.suppress(OSError):
                    self._path.unlink(missing_ok=True)
            self.kept, self.overall = Kept(), Point()
            self.window.clear()
            self._windowed = 0
            self.revision += 1


def _name(label: Any) -> str:
    return printable(str(label), 64)
