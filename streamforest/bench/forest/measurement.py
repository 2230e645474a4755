"""Prequential measurement of one contestant: each event is predicted, then learned.

What is measured, and how:

- CPU time (`time.process_time`: all threads of the process, so that a Java machine's compiler and
  collector count) around the predictions and the learning, without making the events' form. The
  clock readings that give the latencies lie inside, about 0.4 µs an event.
- Latency of each call by the wall clock, since that is what a caller waits for.
- Memory: what the process holds more after the run than just before the model was made.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.bench.forest.contestant import Batches, Contestant, ModelSpec, OneByOne, Setting
from streamforest.datasets import Label, Stream

STEP = 50
"""Events between two checks of the budget, for models that take one event at a time."""

Latency = tuple[float, float, float]
"""(median, 99th percentile, longest) in microseconds."""


@dataclass(frozen=True, eq=False)
class Measurement:
    """One run of one model over a stream."""

    correct: NDArray[np.bool_]
    """For each event seen: was it predicted correctly?"""
    marks: tuple[NDArray[np.int64], NDArray[np.int64]]
    """(events done, CPU nanoseconds used so far) after each step."""
    predict_us: Latency | None
    """None for batches, where a call is hundreds of events."""
    learn_us: Latency | None
    memory_bytes: int | None
    truncated: bool
    """The budget ended before the stream did."""
    chance: float = 0.0
    """Share of events that as many answers of each class, given at random, would have got right."""

    @property
    def events(self) -> int:
        """Events predicted and learned."""
        return len(self.correct)

    def cpu_us(self, events: int | None = None) -> float:
        """CPU microseconds per event over the first `events` events, or all.

        Models grow and slow down: speeds, like accuracies, compare only over the same events.
        """
        events = self.events if events is None else events
        done, used = self.marks
        at_start = np.concatenate([[0], done]), np.concatenate([[0], used])
        return float(np.interp(events, *at_start)) / 1e3 / events

    def accuracy(self, events: int | None = None) -> float:
        """Share of correct predictions over the first `events` events, or all."""
        return float(self.correct[:events].mean())

    @property
    def kappa(self) -> float:
        """Cohen's kappa: accuracy beyond chance, as a share of what chance leaves to be had."""
        return beyond(self.accuracy(), self.chance)

    def kappa_temporal(self, y: NDArray[Any]) -> float:
        """The same beyond answering with the label before (Žliobaitė et al. 2015)."""
        n = self.events
        return beyond(self.accuracy(), float((y[1:n] == y[: n - 1]).sum()) / n)


def beyond(accuracy: float, chance: float) -> float:
    """The share of what `chance` leaves that `accuracy` has; 0 where nothing is left.

    >>> beyond(0.9, 0.8), beyond(0.7, 0.8) < 0, beyond(1.0, 1.0)
    (0.5, True, 0.0)
    """
    return round((accuracy - chance) / (1 - chance), 12) if chance < 1 else 0.0


class _Clocks:
    """Latencies of a run, in memory that is allocated before the run, so that recording does not look
    like growth of the model.
    """

    def __init__(self, events: int) -> None:
        self.predict_ns = np.full(events, 0, dtype=np.int64)
        self.learn_ns = np.full(events, 0, dtype=np.int64)

    def summary(self, events: int) -> tuple[Latency, Latency]:
        """Median, 99th percentile and longest of both over the first `events` events."""
        return _percentiles(self.predict_ns[:events]), _percentiles(self.learn_ns[:events])


def _percentiles(ns: NDArray[np.int64]) -> Latency:
    median, high, longest = np.percentile(ns, [50, 99, 100]) / 1e3
    return float(median), float(high), float(longest)


def measure(
    spec: ModelSpec,
    setting: Setting,
    events: int | None = None,
    budget: float | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Measurement:
    """Run a fresh model over the setting's stream.

    Parameters
    ----------
    spec, setting
        Which model, and what to build it for.
    events
        Stop after so many events; None: the whole stream.
    budget
        Stop when so many CPU seconds are used up; the run is then marked as truncated.
    on_progress
        Called between steps, outside the measured time, with the number of events done.
    """
    stream = setting.stream if events is None else setting.stream.head(events)
    n = len(stream)
    clocks = _Clocks(n)
    correct = np.full(n, False)
    before = spec.memory()
    contestant = spec.build(setting)
    step = contestant.size if isinstance(contestant, Batches) else STEP
    limit_ns = None if budget is None else int(budget * 1e9)
    done, cpu_ns = 0, 0
    steps: list[tuple[int, int]] = []
    guessed: Counter[Label | None] = Counter()
    while done < n and (limit_ns is None or cpu_ns < limit_ns):
        end = min(done + step, n)
        labels: list[Label] = stream.y[done:end].tolist()
        guesses, spent = _advance(contestant, stream, done, labels, clocks)
        correct[done:end] = [guess == label for guess, label in zip(guesses, labels)]
        guessed.update(guesses)
        cpu_ns += spent
        done = end
        steps.append((done, cpu_ns))
        on_progress(done)
    after = spec.memory()
    marks = np.array(steps, dtype=np.int64)
    latencies = clocks.summary(done) if isinstance(contestant, OneByOne) else (None, None)
    return Measurement(
        correct=correct[:done],
        marks=(marks[:, 0], marks[:, 1]),
        predict_us=latencies[0],
        learn_us=latencies[1],
        memory_bytes=None if before is None or after is None else max(0, after - before),
        truncated=done < n,
        chance=_chance(guessed, Counter(stream.y[:done].tolist()), done),
    )


def _chance(guessed: Counter[Label | None], true: Counter[Label], n: int) -> float:
    """How often answers and labels would agree if they had nothing to do with each other."""
    return sum(count * guessed[label] for label, count in true.items()) / n**2


def _advance(
    contestant: Contestant, stream: Stream, start: int, labels: list[Label], clocks: _Clocks
) -> tuple[list[Label | None], int]:
    """Move the model through the next events: (its predictions, CPU nanoseconds)."""
    rows = stream.X[start : start + len(labels)]
    if isinstance(contestant, Batches):
        begun = time.process_time_ns()
        guesses = list(contestant.advance(rows, labels))
        return guesses, time.process_time_ns() - begun
    encoded = contestant.encode(rows, labels)
    predict, learn, clock = contestant.predict, contestant.learn, time.perf_counter_ns
    guesses = []
    marks: list[int] = []
    begun = time.process_time_ns()
    for event, label in zip(encoded, labels):
        marks.append(clock())
        guesses.append(predict(event))
        marks.append(clock())
        learn(event, label)
        marks.append(clock())
    spent = time.process_time_ns() - begun
    times = np.array(marks, dtype=np.int64).reshape(-1, 3)
    clocks.predict_ns[start : start + len(labels)] = times[:, 1] - times[:, 0]
    clocks.learn_ns[start : start + len(labels)] = times[:, 2] - times[:, 1]
    return guesses, spent


def windowed(
    correct: NDArray[Any], window: int, points: int = 200
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(event numbers, accuracy over the last `window` events up to each), about `points` of them.

    >>> events, accuracy = windowed(np.array([True, False, True, True]), window=2)
    >>> events.tolist(), accuracy.tolist()
    ([1, 2, 3, 4], [1.0, 0.5, 0.5, 1.0])
    """
    n = len(correct)
    sums = np.concatenate([[0], np.cumsum(correct)])
    ends = np.unique(np.linspace(1, n, min(n, points)).round().astype(np.int64))
    starts = np.maximum(0, ends - window)
    return ends, (sums[ends] - sums[starts]) / (ends - starts)


RECALL, RECENT = 0.8, 5


def events_to_recall(y: NDArray[Any], correct: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Of each class but the first: its own events until 4 of its last 5 were right; inf: never.

    >>> y = np.array(["a", "b"] * 8)
    >>> events_to_recall(y, np.arange(16) > 6).tolist()
    [7.0]
    """
    values, first_seen = np.unique(y, return_index=True)
    out = []
    for label in values[np.argsort(first_seen)][1:]:
        right = correct[y == label]
        recent = np.convolve(right, np.ones(RECENT))[: len(right)]
        reached = np.flatnonzero(recent >= RECALL * RECENT - 1e-9)
        out.append(float(reached[0] + 1) if len(reached) else float("inf"))
    return np.array(out)
