"""Prometheus metrics of a pipeline: base units, bounded labels, one registry a run.

Labels and class names come from strangers, so a class is a metric label only while it is among the
top few by volume; the rest is "other". Counters are the truth (a query picks its own window); the
windowed gauges beside them are for reading at a glance.
"""

from __future__ import annotations

import platform
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streamforest._version import __version__
from streamforest.text import printable

_FAST = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 0.02, 0.1)
_SLOW = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
TOP_CLASSES = 20
NEWEST = 5
_WINDOW = 1_000


class ModelWindow:
    """The last labelled events of one model: accuracy, kappa, recall of the newest classes."""

    def __init__(self, window: int = _WINDOW) -> None:
        self._last: deque[tuple[Any, Any]] = deque(maxlen=window)
        self.order: dict[Any, None] = {}

    def add(self, truth: Sequence[Any], guesses: Sequence[Any]) -> int:
        """Take a batch; how many classes it brought."""
        before = len(self.order)
        for label, guess in zip(truth, guesses):
            if label is not None:
                self._last.append((label, guess))
                if label not in self.order and len(self.order) < 100_000:
                    self.order[label] = None
        return len(self.order) - before

    def accuracy(self) -> float:
        """Share of the window predicted correctly."""
        return sum(a == b for a, b in self._last) / len(self._last) if self._last else 0.0

    def kappa(self) -> float:
        """Accuracy beyond chance over the window."""
        n = len(self._last)
        if not n:
            return 0.0
        seen: dict[Any, int] = {}
        guessed: dict[Any, int] = {}
        for label, guess in self._last:
            seen[label] = seen.get(label, 0) + 1
            guessed[guess] = guessed.get(guess, 0) + 1
        chance = sum(count * guessed.get(label, 0) for label, count in seen.items()) / n**2
        return (self.accuracy() - chance) / (1 - chance) if chance < 1 else 0.0

    def newest_recall(self) -> float:
        """Share of the window's events of the newest classes that were recognised."""
        newest = set(list(self.order)[-NEWEST:])
        hits = [label == guess for label, guess in self._last if label in newest]
        return sum(hits) / len(hits) if hits else 0.0


class PipelineMetrics:
    """Everything the loop tells, as metrics. It is the loop's `Telemetry`."""

    def __init__(self, pipeline: str, reasons: Sequence[str] = ()) -> None:
        self.registry = registry = CollectorRegistry()
        self._windows: dict[str, ModelWindow] = {}
        self._volume: dict[Any, int] = {}
        self._why: str | None = "starting"

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
        self._by_class = counter("class_events", "Labelled events of the top classes.", ["class"])
        self._accuracy = gauge("accuracy_ratio", "Accuracy of the last 1000 labelled.", ["model"])
        self._kappa = gauge("kappa_ratio", "Cohen's kappa of the last 1000 labelled.", ["model"])
        self._recall = gauge("newest_classes_recall_ratio", "Recall of 5 newest.", ["model"])
        self._classes = gauge("classes", "Classes the model knows.", ["model"])
        self._new_class = gauge("last_new_class_timestamp_seconds", "When a class was new.")
        self._learned = gauge("learned_events", "Events the model has learned.", ["model"])
        self._bytes = gauge("model_bytes", "Memory of the model's arrays.", ["model"])
        self._fringe = gauge("fringe_bytes", "Live candidate splits of the model.", ["model"])
        self._advance = histogram(
            "advance_event_seconds", "Predict and learn, one event.", _FAST, ["model"]
        )
        self._batch = histogram(
            "advance_batch_seconds", "Predict and learn, one batch.", _SLOW, ["model"]
        )
        self._end_to_end = histogram(
            "end_to_end_seconds", "From the oldest record's timestamp to its commit.", _SLOW
        )
        self._lag = gauge("consumer_lag_records", "Records not yet read.", ["partition"])
        self._commits = counter("commits", "Commits.")
        self._doubts = counter("commits_in_doubt", "Commits whose outcome had to be asked for.")
        self._commit_seconds = histogram("commit_seconds", "One commit.", _SLOW)
        self._committed_at = gauge("last_commit_timestamp_seconds", "Time of the last commit.")
        self._snapshots = counter("snapshots", "Snapshots begun.")
        self._stall = histogram("snapshot_stall_seconds", "What the stream waits for one.", _SLOW)
        self._snapshot_seconds = gauge("snapshot_write_seconds", "Writing the last one.")
        self._snapshot_bytes = gauge("snapshot_bytes", "Size of the last one.")
        self._snapshot_at = gauge("last_snapshot_timestamp_seconds", "When one became durable.")
        self._ready = gauge("ready", "1 while the pipeline is at work.")
        build = gauge("build_info", "Always 1.", ["version", "python", "pipeline"])
        build.labels(__version__, platform.python_version(), pipeline).set(1)
        for outcome in ("predicted", "not_admitted", "refused"):
            self._events.labels(outcome)
        for reason in reasons:
            self._dead.labels(reason)
        self._snapshot_seen = ""

    # ---- Telemetry

    def advanced(
        self, name: str, model: Any, truth: Sequence[Any], guesses: Sequence[Any], seconds: float
    ) -> None:
        """A model went through a batch."""
        window = self._windows.setdefault(name, ModelWindow())
        if window.add(truth, guesses):
            self._new_class.set_to_current_time()
        labelled = [(a, b) for a, b in zip(truth, guesses) if a is not None]
        self._labelled.labels(name).inc(len(labelled))
        self._correct.labels(name).inc(sum(a == b for a, b in labelled))
        if len(self._windows) == 1 or name == next(iter(self._windows)):
            self._count_classes(labelled)
        self._batch.labels(name).observe(seconds)
        self._advance.labels(name).observe(seconds / max(1, len(truth)))
        self._learned.labels(name).set(model.n_learned)

    def _count_classes(self, labelled: Sequence[tuple[Any, Any]]) -> None:
        """The first few classes keep their names: a name once given to a counter stays with it."""
        tally: dict[str, int] = {}
        for label, _ in labelled:
            key = self._volume.get(label)
            if key is None and len(self._volume) < TOP_CLASSES:
                self._volume[label] = 1
                key = 1
            text = "other" if key is None else printable(str(label), 64)
            tally[text] = tally.get(text, 0) + 1
        for text, count in tally.items():
            self._by_class.labels(text).inc(count)

    def outcome(self, outcome: str, count: int) -> None:
        """So many events ended this way."""
        self._events.labels(outcome).inc(count)

    def dead(self, reason: str) -> None:
        """An event was refused."""
        self._events.labels("refused").inc()
        self._dead.labels(reason).inc()

    def committed(self, run: Any, seconds: float, oldest_ms: int | None) -> None:
        """After a commit: the moment for everything that need not be exact to the event."""
        self._commits.inc()
        self._commit_seconds.observe(seconds)
        self._committed_at.set_to_current_time()
        if oldest_ms:
            self._end_to_end.observe(max(0.0, time.time() - oldest_ms / 1000))
        for (topic, number), lag in run.log.lag().items():
            self._lag.labels(f"{topic}-{number}").set(lag)
        doubts = run.commits.in_doubt - self._doubts._value.get()
        if doubts > 0:
            self._doubts.inc(doubts)
        for name, model in run.state.models.items():
            window = self._windows.get(name)
            self._classes.labels(name).set(len(model.classes_))
            if window is not None:
                self._accuracy.labels(name).set(window.accuracy())
                self._kappa.labels(name).set(window.kappa())
                self._recall.labels(name).set(window.newest_recall())
        written = run.snapshots.written()
        if written is not None and written.name != self._snapshot_seen:
            self._snapshot_seen = written.name
            self._snapshot_seconds.set(written.seconds)
            self._snapshot_bytes.set(written.bytes)
            self._snapshot_at.set_to_current_time()
            self._sizes(run.state.models)

    def _sizes(self, models: Mapping[str, Any]) -> None:
        """Once a snapshot: summing up a forest costs a walk over its nodes."""
        for name, model in models.items():
            summary = model.summary()
            self._bytes.labels(name).set(summary.get("total_bytes", 0))
            self._fringe.labels(name).set(summary.get("fringe_bytes", 0))

    def snapshot(self, run: Any, stall: float) -> None:
        """A snapshot was begun and held the stream up for this long."""
        self._snapshots.inc()
        self._stall.observe(stall)

    def ready(self, reason: str | None) -> None:
        """Whether the run is at work; if not, why."""
        self._why = reason
        self._ready.set(reason is None)

    # ---- health

    def why_not_ready(self) -> str | None:
        """None while the pipeline is at work."""
        return self._why
