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
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import eq
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streamforest._version import __version__
from streamforest.observe.class_metrics import TopClasses
from streamforest.observe.histograms import BatchHistogram
from streamforest.observe.label_metrics import LateMetrics

_FAST = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 0.02, 0.1)
_NOVELTY = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)
_SLOW = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
NEWEST = 5
_WINDOW = 1_000
_ROLES = ("owner", "standby")
_SAMPLE_SECONDS = 1.0
_LONGEST_TURN = 120.0  # seconds after which a loop that has not come round is called dead


class ModelWindow:
    """The last labelled events of one model: accuracy, kappa, recall of the newest classes."""

    def __init__(self, window: int = _WINDOW) -> None:
        self._last: deque[tuple[Any, Any]] = deque(maxlen=window)

    def add(self, truth: Sequence[Any], guesses: Sequence[Any]) -> None:
        """Take labelled events."""
        self._last.extend(zip(truth, guesses))

    def accuracy(self) -> float:
        """Share of the window predicted correctly."""
        return sum(a == b for a, b in self._last) / len(self._last) if self._last else 0.0

    def kappa(self) -> float:
        """Accuracy beyond chance over the window."""
        n = len(self._last)
        if not n:
            return 0.0
        seen = Tally(label for label, _ in self._last)
        guessed = Tally(guess for _, guess in self._last)
        chance = sum(count * guessed[label] for label, count in seen.items()) / n**2
        return (self.accuracy() - chance) / (1 - chance) if chance < 1 else 0.0

    def recall(self, classes: Sequence[Any]) -> float:
        """Share of the window's events of these classes that were recognised."""
        wanted = set(classes)
        hits = [label == guess for label, guess in self._last if label in wanted]
        return sum(hits) / len(hits) if hits else 0.0


class PipelineMetrics:
    """Everything the loop tells, as metrics. It is the loop's `Telemetry`."""

    def __init__(self, pipeline: str, reasons: Sequence[str] = ()) -> None:
        self.registry = registry = CollectorRegistry()
        self._windows: dict[str, ModelWindow] = {}
        self._why: str | None = "starting"
        self._late: LateMetrics | None = None
        self._stands = ""
        self._trouble: Callable[[], str | None] = lambda: None
        self._turned: float | None = None
        self._sampled = self._looked = 0.0

        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"streamforest_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(f"streamforest_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Any, labels: Sequence[str] = ()) -> Histogram:
            return Histogram(
                f"streamforest_{name}", text, labels, buckets=buckets, registry=registry
            )

        self._events = counter("events", "Events read, by what became of them.", ["outcome"])
        self._dead = counter("dead_letters", "Events refused, by reason.", ["reason"])
        self._labelled = counter("labelled_events", "Labelled events.", ["model"])
        self._correct = counter("correct_predictions", "Correct predictions.", ["model"])
        self._by_class = TopClasses(
            "streamforest_class_events", "Labelled events of the largest classes.", registry
        )
        self._accuracy = gauge("accuracy_ratio", "Accuracy of the last 1000 labelled.", ["model"])
        self._kappa = gauge("kappa_ratio", "Cohen's kappa of the last 1000 labelled.", ["model"])
        self._recall = gauge("newest_classes_recall_ratio", "Recall of 5 newest.", ["model"])
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
        self._lag = gauge("consumer_lag_records", "Records not yet read.", ["partition"])
        self._commits = counter("commits", "Commits.")
        self._doubts = counter("commits_in_doubt", "Commits whose outcome had to be asked for.")
        self._commit_seconds = histogram("commit_seconds", "One commit.", _SLOW)
        self._committed_at = gauge("last_commit_timestamp_seconds", "Time of the last commit.")
        self._snapshots = counter("snapshots", "Snapshots that became durable.")
        self._snapshot_failures = counter(
            "snapshot_failures",
            "Snapshots that could not be written (write), or that their own check refused (check).",
            ["reason"],
        )
        for reason in ("write", "check"):
            self._snapshot_failures.labels(reason)
        self._stall = histogram("snapshot_stall_seconds", "What the stream waits for one.", _SLOW)
        self._snapshot_seconds = histogram("snapshot_write_seconds", "Writing one.", _SLOW)
        self._snapshot_bytes = gauge("snapshot_bytes", "Size of the last one.")
        self._snapshot_at = gauge("last_snapshot_timestamp_seconds", "When one became durable.")
        self._role = gauge("role", "1 for what this process is.", ["role"])
        self._behind = gauge("standby_behind_events", "Committed and not yet followed.")
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

    # ---- Telemetry

    def follow(self, trouble: Callable[[], str | None]) -> None:
        """Ask this whenever someone asks whether the pipeline is ready."""
        self._trouble = trouble

    def samples(self) -> bool:
        """Whether this batch should be predicted on its own, to learn how long that takes."""
        now = time.monotonic()
        if now - self._sampled < _SAMPLE_SECONDS:
            return False
        self._sampled = now
        return True

    def sampled(self, name: str, predict: float, learn: float | None, rows: int) -> None:
        """One event of a sampled batch took so long; `learn` is None where none was learned."""
        self._predict.add([predict], name, rows)
        if learn is not None:
            self._learn.add([learn], name, rows)

    def advanced(
        self, name: str, model: Any, truth: Sequence[Any], guesses: Sequence[Any], seconds: float
    ) -> None:
        """A model went through a batch."""
        window = self._windows.setdefault(name, ModelWindow())
        if None in truth:
            pairs = [(a, b) for a, b in zip(truth, guesses) if a is not None]
            truth, guesses = [a for a, _ in pairs], [b for _, b in pairs]
        window.add(truth, guesses)
        self._labelled.labels(name).inc(len(truth))
        self._correct.labels(name).inc(sum(map(eq, truth, guesses)))
        if name == next(iter(self._windows)):
            self._by_class.add(Tally(truth))
        self._batch.labels(name).observe(seconds)
        self._learned.labels(name).set(model.n_learned)

    def novelty(self, name: str, values: Any) -> None:
        """How new the events of a batch were to a model; those it had no measure for are left out."""
        self._novelty.add(values[values < float("inf")], name)

    def outcome(self, outcome: str, count: int) -> None:
        """So many events ended this way."""
        self._events.labels(outcome).inc(count)

    def late(self, store: Any, labels: int, delays: Sequence[float]) -> None:
        """So many labels were read; those that met their event came this much later (seconds)."""
        assert self._late is not None, "a run with late labels begins by saying so"
        self._events.labels("label").inc(labels)
        self._late.told(store, delays)

    def recovered(self, store: Any) -> None:
        """The run has recovered: late labels are counted from here on."""
        self._events.labels("label")
        if self._late is None:
            self._late = LateMetrics(self.registry)
        self._late.begin(store)

    def dead(self, reason: str) -> None:
        """An event was refused."""
        self._events.labels("refused").inc()
        self._dead.labels(reason).inc()

    def turned(self, run: Any) -> None:
        """The loop came round: now and then the moment to look at what changes by itself."""
        self._turned = now = time.monotonic()
        if now - self._looked >= _SAMPLE_SECONDS:
            self._looked = now
            for (topic, number), lag in run.log.lag().items():
                self._lag.labels(f"{topic}-{number}").set(lag)

    def beat(self) -> None:
        """A sign of life from something that waits."""
        self._turned = time.monotonic()

    def committed(self, run: Any, seconds: float, timestamps: Sequence[int]) -> None:
        """After a commit: the moment for everything that need not be exact to the event."""
        self._commits.inc()
        self._commit_seconds.observe(seconds)
        self._committed_at.set_to_current_time()
        now = time.time()
        waits = [max(0.0, now - at / 1000) for at in timestamps if at > 0]
        if waits:
            self._end_to_end.add(waits)
        doubts = run.commits.in_doubt - self._doubts._value.get()
        if doubts > 0:
            self._doubts.inc(doubts)
        if run.state.newest_at:
            self._new_class.set(run.state.newest_at)
        for name, model in run.state.models.items():
            window = self._windows.get(name)
            self._classes.labels(name).set(len(model.classes_))
            if window is not None:
                self._accuracy.labels(name).set(window.accuracy())
                self._kappa.labels(name).set(window.kappa())
                self._recall.labels(name).set(window.recall(model.classes_[-NEWEST:]))

    def stalled(self, seconds: float) -> None:
        """A snapshot was begun and held the stream up for this long."""
        self._stall.observe(seconds)

    def snapshot(self, run: Any, written: Any) -> None:
        """A snapshot became durable."""
        self._snapshots.inc()
        self._snapshot_seconds.observe(written.seconds)
        self._snapshot_bytes.set(written.bytes)
        self._snapshot_at.set_to_current_time()
        self._sizes(run.state.models)

    def snapshot_failed(self, reason: str) -> None:
        """A snapshot could not be written, or its own check has refused it."""
        self._snapshot_failures.labels(reason).inc()

    def _sizes(self, models: Mapping[str, Any]) -> None:
        """Once a snapshot: summing up a forest costs a walk over its nodes."""
        for name, model in models.items():
            summary = model.summary()
            self._bytes.labels(name).set(summary.get("total_bytes", 0))
            if "fringe_bytes" in summary:
                self._fringe.labels(name).set(summary["fringe_bytes"])
                self._occupancy.labels(name).set(summary["fringe_occupancy"])

    def role(self, role: str, partitions: int, events: int = 0, behind: int = 0) -> None:
        """Owner of so many partitions; or standby, at this event and so many behind the owner."""
        for name in _ROLES:
            self._role.labels(name).set(name == role)
        if role != "owner":
            self._lag.clear()  # of partitions that are another's nobody here knows anything
        self._behind.set(behind)
        self._partitions.set(partitions)
        self._stands = (
            f"owner of {partitions} partitions"
            if role == "owner"
            else f"standby at event {events}, {behind} behind"
        )

    def ready(self, reason: str | None) -> None:
        """Whether the run is at work; if not, why."""
        self._why = reason

    # ---- health

    def why_not_ready(self) -> str | None:
        """None while the pipeline is at work and its broker answers."""
        return self._why or self._trouble()

    def stands(self) -> str:
        """Owner or standby, and how far behind; empty before it is known."""
        return self._stands

    def why_not_alive(self) -> str | None:
        """None unless the loop has not come round for very long: then only a new start helps."""
        if self._turned is None or time.monotonic() - self._turned <= _LONGEST_TURN:
            return None
        return f"the loop has not come round for {time.monotonic() - self._turned:.0f} s"
