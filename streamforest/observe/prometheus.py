"""Prometheus metrics of a pipeline: base units, bounded labels, one registry a run.

Labels and class names come from strangers, so a class is a metric label only while it is among the
top few by volume; the rest is "other". Counters are the truth (a query picks its own window); the
windowed gauges beside them are for reading at a glance.

One kernel call predicts and learns a batch, so the two cannot be timed apart in it. Once a second some
rows of a batch are therefore predicted once more on their own, before the batch is advanced, which
changes no model: that is the time to predict. What the batch then takes beyond it is the time to learn.
"""

from __future__ import annotations

import platform
import time
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from operator import eq
from typing import Any, assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streamforest._version import __version__
from streamforest.observe.class_metrics import TopClasses
from streamforest.observe.coarse_metrics import CoarseMetrics
from streamforest.observe.evaluation import LabelWindow
from streamforest.observe.histograms import BatchHistogram
from streamforest.observe.label_metrics import LateMetrics
from streamforest.observe.lag_metrics import LagMetrics
from streamforest.observe.learning_metrics import LearningMetrics
from streamforest.observe.telemetry import (
    BatchAdvanced,
    BatchSampled,
    ClassesBorn,
    CommitDoubted,
    CommitMade,
    EventRefused,
    Followed,
    Heartbeat,
    IterationDone,
    LabelsRead,
    LabelsRecovered,
    LogOpened,
    ModelsChanged,
    NoveltyMeasured,
    PendingDropped,
    Readiness,
    Rebalanced,
    RecordsRead,
    RoleChanged,
    RowsCounted,
    RowsRead,
    SnapshotFailed,
    SnapshotStarted,
    SnapshotWritten,
    TelemetryEvent,
)

_FAST = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 0.02, 0.1)
_NOVELTY = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)
_SLOW = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
NEWEST = 5
_ROLES = ("owner", "standby")
_LOOK_SECONDS = 1.0
_MAX_ITERATION = 120.0  # seconds after which a main loop without an iteration is called stalled


class PipelineMetrics:
    """Everything a run reports, as metrics."""

    def __init__(self, pipeline: str, reasons: Sequence[str] = ()) -> None:
        self.registry = registry = CollectorRegistry()
        self._windows: dict[str, LabelWindow] = {}
        self._why: str | None = "starting"
        self._late: LateMetrics | None = None
        self._coarse: CoarseMetrics | None = None
        self._status = ""
        self._trouble: Callable[[], str | None] = lambda: None
        self._ask_lag: Callable[[], Mapping[tuple[str, int], int]] = dict
        self._iteration_at: float | None = None
        self._looked = self._measure_at = 0.0
        self._unmeasured: Callable[[], Mapping[str, Mapping[str, Any]]] | None = None

        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"streamforest_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(f"streamforest_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Any, labels: Sequence[str] = ()) -> Histogram:
            return Histogram(
                f"streamforest_{name}", text, labels, buckets=buckets, registry=registry
            )

        self._events = counter("events", "Events read, by what became of them.", ["outcome"])
        self._rows = gauge(
            "rows",
            "What became of all events of the pipeline: read, learned, predicted_only, waiting for a "
            "label, dead_letters.",
            ["outcome"],
        )
        self._values = gauge(
            "degraded_values",
            "Values that were not taken as they are, by reason: misfit (missing), other (a category without "
            "room), dropped (of a feature like an id: missing), left_out (a feature without room).",
            ["reason"],
        )
        self._dead = counter(
            "dead_letters", "Events that became dead letters, by reason.", ["reason"]
        )
        self._labelled = counter("labelled_events", "Labelled events.", ["model"])
        self._correct = counter("correct_predictions", "Correct predictions.", ["model"])
        self._by_class = TopClasses(
            "streamforest_class_events", "Labelled events of the largest classes.", registry
        )
        self._accuracy = gauge("accuracy_ratio", "Accuracy of the last 1000 labelled.", ["model"])
        self._kappa = gauge("kappa_ratio", "Cohen's kappa of the last 1000 labelled.", ["model"])
        self._recall = gauge(
            "newest_classes_recall_ratio", "Recall of the 5 newest classes.", ["model"]
        )
        self._classes = gauge("classes", "Classes the model knows.", ["model"])
        self._new_class = gauge("last_new_class_timestamp_seconds", "When a class was last new.")
        self._learned = gauge("learned_events", "Events the model has learned.", ["model"])
        self._bytes = gauge("model_bytes", "Memory of the model's arrays.", ["model"])
        self._fringe = gauge("fringe_bytes", "Live candidate splits of the model.", ["model"])
        self._occupancy = gauge(
            "fringe_occupancy_ratio", "Share of max_fringe_bytes that is in use.", ["model"]
        )
        self._predict = BatchHistogram(
            "streamforest_predict_seconds",
            "Predicting one event, without learning; rows of one batch a second.",
            _FAST,
            registry,
            "model",
        )
        self._learn = BatchHistogram(
            "streamforest_learn_seconds",
            "Learning one event: what that batch took beyond predicting it.",
            _FAST,
            registry,
            "model",
        )
        self._novelty = BatchHistogram(
            "streamforest_novelty_ratio",
            "How unlike everything known an event was; about 1 is usual.",
            _NOVELTY,
            registry,
            "model",
        )
        self._batch = histogram(
            "advance_batch_seconds", "Predicting and learning one batch.", _SLOW, ["model"]
        )
        self._end_to_end = BatchHistogram(
            "streamforest_end_to_end_seconds",
            "From an event's record timestamp to the commit of its prediction.",
            _SLOW,
            registry,
        )
        self._lag = LagMetrics(registry)
        self._learning = LearningMetrics(registry)
        self._commits = counter("commits", "Commits.")
        self._uncommitted = gauge(
            "uncommitted_events",
            "Events that were read and whose prediction or dead letter is not committed yet.",
        )
        self._doubts = counter("commits_in_doubt", "Commits whose outcome was unknown at first.")
        self._commit_seconds = histogram("commit_seconds", "Time of one commit.", _SLOW)
        self._committed_at = gauge("last_commit_timestamp_seconds", "Time of the last commit.")
        self._snapshots = counter("snapshots", "Snapshots that became durable.")
        self._snapshot_failures = counter(
            "snapshot_failures",
            "Snapshots that could not be written (write), or that their own check refused (check).",
            ["reason"],
        )
        for reason in ("write", "check"):
            self._snapshot_failures.labels(reason)
        self._stall = histogram(
            "snapshot_stall_seconds",
            "Wait of the stream for a snapshot.",
            _SLOW,
        )
        self._snapshot_seconds = histogram(
            "snapshot_write_seconds", "Time to write a snapshot.", _SLOW
        )
        self._snapshot_bytes = gauge("snapshot_bytes", "Size of the last snapshot.")
        self._snapshot_at = gauge(
            "last_snapshot_timestamp_seconds", "When a snapshot last became durable."
        )
        self._role = gauge("role", "1 for the role of this process.", ["role"])
        self._behind = gauge(
            "standby_behind_events", "Events committed by the owner and not yet followed."
        )
        self._waiting = gauge(
            "uncommitted_seconds",
            "How long records have waited without a commit, on owner and standby; 0 if none wait.",
        )
        self._partitions = gauge("owned_partitions", "Partitions that this process owns.")
        gauge("ready", "1 while the pipeline is at work.").set_function(
            lambda: float(self.why_not_ready() is None)
        )
        build = gauge("build_info", "Always 1.", ["version", "python", "pipeline"])
        build.labels(__version__, platform.python_version(), pipeline).set(1)
        for outcome in ("predicted", "not_admitted", "refused"):
            self._events.labels(outcome)
        for reason in reasons:
            self._dead.labels(reason)

    # ---- what a run reports

    def on_event(self, event: TelemetryEvent) -> None:
        """Count an event of a run."""
        match event:
            case IterationDone():
                self._iterated()
            case Heartbeat():
                self._iteration_at = time.monotonic()
            case BatchAdvanced():
                self._advanced(event)
            case BatchSampled():
                self._predict.add([event.predict], event.model, event.rows)
                if event.learn is not None:
                    self._learn.add([event.learn], event.model, event.rows)
            case NoveltyMeasured():  # events that a model has no measure for are left out
                self._novelty.add(event.values[event.values < float("inf")], event.model)
            case RowsRead():
                self._events.labels("predicted").inc(event.predicted - event.not_admitted)
                self._events.labels("not_admitted").inc(event.not_admitted)
                self._uncommitted.inc(event.predicted)
            case RowsCounted():
                for outcome, count in event.counts.items():
                    self._rows.labels(outcome).set(count)
                for reason, count in event.values.items():
                    self._values.labels(reason).set(count)
            case EventRefused():
                self._events.labels("refused").inc()
                self._uncommitted.inc()
                self._dead.labels(event.reason).inc()
            case LabelsRead():
                assert self._late is not None, "a run with late labels begins with LabelsRecovered"
                self._late.add(event.status, event.delays, event.labels)
            case LabelsRecovered():  # late labels are counted from here on
                if self._late is None:
                    self._late = LateMetrics(self.registry)
                self._late.begin(event.status)
            case CommitDoubted():
                self._doubts.inc()
            case PendingDropped():
                self._uncommitted.set(0)
            case CommitMade():
                self._committed(event)
            case SnapshotStarted():
                self._stall.observe(event.seconds)
            case SnapshotWritten():
                self._snapshot(event)
            case ModelsChanged():
                self._unmeasured = event.summaries
                self._measure()
            case SnapshotFailed():
                self._snapshot_failures.labels(event.reason).inc()
            case RoleChanged():
                self._change_role(event)
            case Readiness():
                self._why = event.reason
            case LogOpened():
                self._trouble, self._ask_lag = event.trouble, event.lag
                self._waiting.set_function(event.uncommitted_seconds)
            case Followed():
                pass
            case RecordsRead():
                self._lag.read(event.newest)
            case ClassesBorn():
                self._learning.born(len(event.labels))
            case Rebalanced():
                self._learning.rebalanced()
            case _:
                assert_never(event)

    def _iterated(self) -> None:
        """Now and then, ask for what changes by itself."""
        self._iteration_at = now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._lag.look(self._ask_lag)
            self._measure()

    def _advanced(self, batch: BatchAdvanced) -> None:
        name, truth, predicted = batch.model, batch.truth, batch.predicted
        window = self._windows.setdefault(name, LabelWindow())
        if None in truth:
            pairs = [(a, b) for a, b in zip(truth, predicted) if a is not None]
            truth, predicted = [a for a, _ in pairs], [b for _, b in pairs]
        window.add(truth, predicted)
        self._labelled.labels(name).inc(len(truth))
        self._correct.labels(name).inc(sum(map(eq, truth, predicted)))
        if name == next(iter(self._windows)):
            self._by_class.add(Tally(truth))
            self._learning.labelled(truth)
        if batch.coarse_truth:
            if self._coarse is None:
                self._coarse = CoarseMetrics(self.registry)
            self._coarse.add(name, batch.coarse_truth, batch.coarse_predicted)
        self._batch.labels(name).observe(batch.seconds)
        self._learned.labels(name).set(batch.learned)

    def _committed(self, commit: CommitMade) -> None:
        """After a commit is the time for everything that need not be exact to the event."""
        self._commits.inc()
        self._uncommitted.set(0)
        self._commit_seconds.observe(commit.seconds)
        self._committed_at.set_to_current_time()
        now = time.time()
        waits = [max(0.0, now - at / 1000) for at in commit.timestamps if at > 0]
        if waits:
            self._end_to_end.add(waits)
        if commit.newest_class_at:
            self._new_class.set(commit.newest_class_at)
        recent = {name: window.accuracy for name, window in self._windows.items()}
        self._learning.committed(recent, commit.measures)
        for name, classes in commit.classes.items():
            window = self._windows.get(name)
            self._classes.labels(name).set(len(classes))
            if window is not None:
                self._accuracy.labels(name).set(recent[name] or 0.0)
                self._kappa.labels(name).set(window.kappa or 0.0)
                self._recall.labels(name).set(window.recall(classes[-NEWEST:]))

    def _snapshot(self, snapshot: SnapshotWritten) -> None:
        self._snapshots.inc()
        self._snapshot_seconds.observe(snapshot.seconds)
        self._snapshot_bytes.set(snapshot.bytes)
        self._snapshot_at.set_to_current_time()

    def _measure(self) -> None:
        """Ask for the size of models that have changed, as often as that takes a hundredth of the time at
        most: at once, or when events no longer come.
        """
        now = time.monotonic()
        if now < self._measure_at or self._unmeasured is None:
            return
        found, self._unmeasured = self._unmeasured(), None
        self._learning.replaced(found)
        for name, summary in found.items():
            self._bytes.labels(name).set(summary.get("total_bytes", 0))
            if "fringe_bytes" in summary:
                self._fringe.labels(name).set(summary["fringe_bytes"])
                self._occupancy.labels(name).set(summary["fringe_occupancy"])
        took = time.monotonic() - now
        self._measure_at = now + max(_LOOK_SECONDS, 100 * took)

    def _change_role(self, now: RoleChanged) -> None:
        for name in _ROLES:
            self._role.labels(name).set(name == now.role)
        if now.role != "owner":
            self._lag.clear()  # of partitions that are another's nobody here knows anything
            self._uncommitted.set(0)  # it was dropped, or another process has done it again
        self._behind.set(now.behind)
        self._partitions.set(now.partitions)
        self._status = (
            f"owner of {now.partitions} partitions"
            if now.role == "owner"
            else f"standby at event {now.events}, {now.behind} behind"
        )

    # ---- health

    def why_not_ready(self) -> str | None:
        """None while the pipeline is at work and its broker answers."""
        return self._why or self._trouble()

    def status(self) -> str:
        """Owner or standby, and how far behind; empty before it is known."""
        return self._status

    def why_not_alive(self) -> str | None:
        """None unless the main loop is stalled: then only a new start helps."""
        if self._iteration_at is None:
            return None
        seconds = time.monotonic() - self._iteration_at
        return (
            None if seconds <= _MAX_ITERATION else f"the main loop is stalled for {seconds:.0f} s"
        )
