"""What `bench forest` found, and the figures derived from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING, Any

import numpy as np

from streamforest.bench.forest.contestant import ModelSpec
from streamforest.bench.forest.measurement import Latency, Measurement, events_to_recall, windowed
from streamforest.datasets import Stream

if TYPE_CHECKING:
    from streamforest.bench.forest.comparison import Settings


@dataclass
class Runs:
    """All runs of one model on one stream: for each seed, its repeats."""

    truncated: bool = False
    by_seed: dict[int, list[Measurement]] = field(default_factory=dict)

    def add(self, seed: int, measurement: Measurement) -> None:
        """Add one run."""
        self.by_seed.setdefault(seed, []).append(measurement)

    @property
    def all(self) -> list[Measurement]:
        """Every run, whatever its seed."""
        return [run for repeats in self.by_seed.values() for run in repeats]

    @property
    def events(self) -> int:
        """Events that every run has seen."""
        return min(run.events for run in self.all)

    def cpu_us(self, events: int | None = None) -> float:
        """CPU microseconds per event over the first `events` events; median over the runs."""
        return median(run.cpu_us(events) for run in self.all)

    @property
    def events_per_second(self) -> float:
        """By CPU time, median over the runs."""
        return 1e6 / self.cpu_us()

    def accuracies(self, events: int | None = None) -> list[float]:
        """For each seed: accuracy over the first `events` events, median over its repeats."""
        return [median(run.accuracy(events) for run in runs) for runs in self.by_seed.values()]

    def accuracy(self, events: int | None = None) -> float:
        """Mean over the seeds."""
        return fmean(self.accuracies(events))

    @property
    def kappa(self) -> float:
        """Cohen's kappa, the mean over the seeds."""
        return fmean(median(run.kappa for run in runs) for runs in self.by_seed.values())

    def kappa_temporal(self, stream: Stream) -> float:
        """Kappa against answering with the label before, the mean over the seeds."""
        return fmean(
            median(run.kappa_temporal(stream.y) for run in runs) for runs in self.by_seed.values()
        )

    @property
    def memory_bytes(self) -> int | None:
        """Growth of memory in the first run: only then is none of it left over from an earlier
        one.
        """
        return self.all[0].memory_bytes

    def events_to_recall(self, stream: Stream) -> float:
        """Events that a new class takes to be recognised, the median over the classes."""
        run = self.all[0]
        return float(np.median(events_to_recall(stream.y[: run.events], run.correct)))

    def latency(self, which: str) -> Latency | None:
        """Each the median over the runs: (median, 99th percentile, longest) call."""
        found = [latency for run in self.all if (latency := getattr(run, which)) is not None]
        if not found:
            return None
        middle, high, longest = (median(column) for column in zip(*found, strict=True))
        return middle, high, longest


@dataclass
class Row:
    """One model on one stream; without `runs` where it is absent or failed."""

    spec: ModelSpec
    trees: int | None
    runs: Runs | None = None
    absent: str = ""
    failed: str = ""

    @property
    def note(self) -> str:
        """Notes to the row."""
        if self.absent:
            return self.absent
        if self.failed:
            return f"failed: {self.failed.strip().splitlines()[-1]}"
        if self.runs is not None and self.runs.truncated:
            return f"cut short by the budget after {self.runs.events:,} events"
        return ""

    def lead_over(self, other: Row) -> float:
        """Lead in accuracy over the other, over the events that both have seen."""
        assert self.runs is not None
        assert other.runs is not None
        events = min(self.runs.events, other.runs.events)
        return self.runs.accuracy(events) - other.runs.accuracy(events)

    def slower_than(self, other: Row) -> float:
        """How many times the other's CPU time is used here, over the events both have seen."""
        assert self.runs is not None
        assert other.runs is not None
        events = min(self.runs.events, other.runs.events)
        return self.runs.cpu_us(events) / other.runs.cpu_us(events)


@dataclass
class EqualCpu:
    """Our forest with as many trees as fit into a rival's CPU time, over the same events."""

    rival: Row
    ours: Row
    trees: int
    runs: Runs
    capped: bool

    def as_json(self) -> dict[str, Any]:
        """All figures of this match."""
        assert self.rival.runs is not None
        events = self.runs.events
        return {
            "rival": self.rival.spec.name,
            "rival_trees": self.rival.trees,
            "rival_accuracy": self.rival.runs.accuracy(events),
            "rival_cpu_us_per_event": self.rival.runs.cpu_us(events),
            "ours": self.ours.spec.name,
            "trees": self.trees,
            "trees_capped": self.capped,
            "accuracy": self.runs.accuracy(),
            "cpu_us_per_event": self.runs.cpu_us(),
            "events": events,
        }


@dataclass
class StreamResult:
    """All models on one stream."""

    stream: Stream
    rows: dict[str, Row] = field(default_factory=dict)
    equal_cpu: list[EqualCpu] = field(default_factory=list)
    equal_cpu_failed: list[str] = field(default_factory=list)
    kept: int = 0
    """Number of runs that were taken from the cache."""

    def measured(self) -> list[Row]:
        """The rows that have figures."""
        return [row for row in self.rows.values() if row.runs is not None and not row.failed]

    @property
    def window(self) -> int:
        """Events over which the curves average."""
        return max(50, min(1_000, len(self.stream) // 10))

    @property
    def reference(self) -> Row | None:
        """The row that others are compared with: our first forest by dicts."""
        ours = (row for row in self.measured() if row.spec.ours and row.spec.batches_of is None)
        return next(ours, None)

    @property
    def reference_batches(self) -> Row | None:
        """The same forest by batches."""
        reference = self.reference
        if reference is None:
            return None
        same = (r for r in self.measured() if r.spec.batches_of == reference.spec.name)
        return next(same, None)

    def as_json(self) -> dict[str, Any]:
        """All figures on this stream."""
        stream = self.stream
        return {
            "stream": stream.name,
            "about": stream.about,
            "events": len(stream),
            "features": len(stream.features),
            "classes": len(stream.classes),
            "bayes_rate": stream.bayes_rate,
            "rows": [self._row_as_json(row) for row in self.rows.values()],
            "equal_cpu": [match.as_json() for match in self.equal_cpu],
            "equal_cpu_failed": self.equal_cpu_failed,
            "runs_kept_from_earlier": self.kept,
        }

    def _row_as_json(self, row: Row) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "model": row.spec.name,
            "about": row.spec.about,
            "trees": row.trees,
            "status": "absent" if row.absent else "failed" if row.failed else "measured",
            "note": row.absent or row.failed or row.note,
        }
        if row.runs is None or row.failed:
            return entry
        reference, batches = self.reference, self.reference_batches
        runs = row.runs
        predict, learn = runs.latency("predict_us"), runs.latency("learn_us")
        ends, accuracy = windowed(runs.all[0].correct, self.window)
        return entry | {
            "events": runs.events,
            "truncated": runs.truncated,
            "runs": len(runs.all),
            "accuracy": runs.accuracy(),
            "accuracy_first_1000": runs.accuracy(1_000),
            "kappa": runs.kappa,
            "kappa_temporal": runs.kappa_temporal(self.stream),
            "accuracy_spread": pstdev(runs.accuracies()),
            "accuracy_above_ours_at_same_events": reference and row.lead_over(reference),
            "events_per_second": runs.events_per_second,
            "cpu_us_per_event": runs.cpu_us(),
            "ours_by_dicts_times_as_fast": reference and row.slower_than(reference),
            "ours_by_batches_times_as_fast": batches and row.slower_than(batches),
            "memory_bytes": runs.memory_bytes,
            "events_to_recall": _finite(runs.events_to_recall(self.stream)),
            "predict_us": predict and dict(zip(("p50", "p99", "max"), predict)),
            "learn_us": learn and dict(zip(("p50", "p99", "max"), learn)),
            "curve": {
                "window": self.window,
                "events": ends.tolist(),
                "accuracy": [round(value, 4) for value in accuracy.tolist()],
            },
        }


def _finite(value: float) -> float | None:
    """None for infinity, which JSON does not have."""
    return value if np.isfinite(value) else None


@dataclass
class ForestResult:
    """The whole benchmark."""

    settings: Settings
    streams: list[StreamResult] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def failures(self) -> list[str]:
        """Models that raised an error or died, with the reason."""
        return [
            f"{result.stream.name}: {reason}"
            for result in self.streams
            for reason in [*(row.failed for row in result.rows.values()), *result.equal_cpu_failed]
            if reason
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything, ready to be written."""
        return {
            "settings": asdict(self.settings) | {"resume": str(self.settings.resume or "")},
            "streams": [result.as_json() for result in self.streams],
            "skipped": self.skipped,
        }
