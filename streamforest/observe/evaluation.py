"""Prequential measures: each event is judged by the prediction made before it was learned.

Two kinds, kept apart because they live in different places. `Totals` are sums over the whole
stream; they are a function of the events alone, so they are stored in the snapshot and come out the
same however often a run was stopped or killed. `Recent` is what a person looks at while it runs
(the last events, the curve so far); it goes into the sidecar and may be lost.

Everything is bounded: a table row per class up to `max_classes`, a window, a curve of 64 points.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streamforest.jsonable import count, rows, scalar

AGE_LIMITS = (10, 50, 200)
"""A class is judged apart over its first 10 events, up to its 50th, up to its 200th, and after."""

MAX_CLASSES = 100_000
WINDOW = 500
CURVE_POINTS = 64
_MAX_WINDOW = 1_000_000


@dataclass(frozen=True)
class Bucket:
    """Events of one class age: how many there were and how many were predicted correctly."""

    name: str
    events: int
    correct: int

    @property
    def accuracy(self) -> float | None:
        """Share predicted correctly; None where there was no event."""
        return self.correct / self.events if self.events else None


@dataclass(frozen=True)
class OfClass:
    """One class over the whole stream."""

    label: Any
    first: int | None
    """The number of its first event among the labelled ones, from 1; None if that is not known."""
    events: int
    predicted: int
    """Labelled events that were taken for it, from its own first event on."""
    correct: int
    judged: int
    """Events of which it is known whether they were predicted correctly: all of them, unless older
    versions did not note it.
    """

    @property
    def recall(self) -> float | None:
        """Share of its events that were predicted correctly; None if that is not known."""
        return self.correct / self.judged if self.judged else None

    @property
    def precision(self) -> float | None:
        """Share of what was taken for it that was; None if that is not known."""
        known = self.judged == self.events and self.predicted
        return self.correct / self.predicted if known else None


class Totals:
    """Sums over all events: accuracy, Cohen's kappa, accuracy by class age.

    The age of an event is the number of events of its class up to and including it: age 1 is the
    event that brings the class, which no model can predict.

    >>> t = Totals()
    >>> t.update(["a", "a", "b", "b", None], [None, "a", "a", "b", "a"])
    >>> t.events, t.labelled, t.correct, t.accuracy
    (5, 4, 2, 0.5)
    >>> t.ages()[0]
    Bucket(name='1–10', events=4, correct=2)
    """

    __slots__ = ("_ages", "_table", "correct", "events", "labelled", "max_classes", "untracked")

    def __init__(self, max_classes: int = MAX_CLASSES) -> None:
        self.events = 0
        self.labelled = 0
        self.correct = 0
        self.untracked = 0
        self.max_classes = max_classes
        # label -> [times it was the truth, times it was predicted for a labelled event, both, number of its
        # first labelled event (0: unknown), times it was the truth before it was noted whether it was
        # predicted]
        self._table: dict[Hashable, list[int]] = {}
        self._ages = [[0, 0] for _ in range(len(AGE_LIMITS) + 1)]

    def update(self, truth: Sequence[Hashable], predicted: Sequence[Hashable]) -> None:
        """Count a batch, in order. A truth of None is an unlabelled event, a prediction of None a
        model that knew no class yet.
        """
        table, ages = self._table, self._ages
        first, second, third = AGE_LIMITS
        for label, guess in zip(truth, predicted, strict=True):
            self.events += 1
            if label is None:
                continue
            self.labelled += 1
            hit = bool(label == guess)
            self.correct += hit
            row = table.get(label)
            if row is None:
                if len(table) >= self.max_classes:
                    self.untracked += 1
                    continue
                row = table[label] = [0, 0, 0, self.labelled, 0]
            row[0] += 1
            row[2] += hit
            guessed = table.get(guess)
            if guessed is not None:
                guessed[1] += 1
            age = row[0]
            bucket = ages[0 if age <= first else 1 if age <= second else 2 if age <= third else 3]
            bucket[0] += 1
            bucket[1] += hit

    @property
    def classes(self) -> int:
        """Number of classes seen (at most `max_classes`)."""
        return len(self._table)

    @property
    def accuracy(self) -> float | None:
        """Share of labelled events predicted correctly; None before the first."""
        return self.correct / self.labelled if self.labelled else None

    @property
    def kappa(self) -> float | None:
        """Accuracy beyond what guessing with the same class shares would reach (1 is perfect).

        >>> t = Totals()
        >>> t.update([0, 0, 0, 1], [0, 0, 0, 0])
        >>> t.accuracy, t.kappa
        (0.75, 0.0)
        """
        return _kappa(self.correct, self.labelled, self._table.values())

    def ages(self) -> list[Bucket]:
        """Accuracy by class age, youngest first."""
        low = 1
        buckets = []
        for limit, (events, correct) in zip((*AGE_LIMITS, None), self._ages, strict=True):
            name = f"{low}–{limit}" if limit is not None else f"{low}+"
            buckets.append(Bucket(name, events, correct))
            low = (limit or 0) + 1
        return buckets

    def by_class(self) -> list[OfClass]:
        """What is known of each class, in the order first seen."""
        return [
            OfClass(label, first or None, seen, guessed, correct, seen - unknown)
            for label, (seen, guessed, correct, first, unknown) in self._table.items()
        ]

    def state(self) -> dict[str, Any]:
        """Plain data for a snapshot; classes in the order first seen."""
        return {
            "events": self.events,
            "labelled": self.labelled,
            "correct": self.correct,
            "untracked": self.untracked,
            "classes": [[label, *row] for label, row in self._table.items()],
            "ages": [list(bucket) for bucket in self._ages],
        }

    @classmethod
    def from_state(cls, state: Any, max_classes: int = MAX_CLASSES) -> Totals:
        """The sums that `state()` described; ValueError, TypeError or KeyError if it is none."""
        totals = cls(max_classes)
        for name in ("events", "labelled", "correct", "untracked"):
            setattr(totals, name, count(state[name], name))
        if totals.correct > totals.labelled:
            raise ValueError(f"{totals.correct} of {totals.labelled} labelled events are correct")
        for row in rows(state["classes"], "classes"):
            label, numbers = _of_class(row)
            label = scalar(label, "a class")
            if label in totals._table or len(totals._table) >= max_classes:
                raise ValueError(f"class {label!r:.60} twice, or over {max_classes} of them")
            totals._table[label] = numbers
        totals._ages = [[count(n, "age") for n in pair] for pair in rows(state["ages"], "ages", 2)]
        if len(totals._ages) != len(AGE_LIMITS) + 1:
            raise ValueError(f"{len(totals._ages)} class ages, expected {len(AGE_LIMITS) + 1}")
        return totals


def _of_class(row: Any) -> tuple[Any, list[int]]:
    """The label and the numbers of one class; a row of three was written before recall was noted."""
    label, *numbers = row
    if len(numbers) == 2:
        numbers = [*numbers, 0, 0, numbers[0]]
    if len(numbers) != 5:
        raise ValueError(f"a class with {len(numbers)} numbers")
    seen, _, correct, _, unknown = (count(number, "events of a class") for number in numbers)
    if correct + unknown > seen:
        raise ValueError(f"{correct} of {seen} events of a class are correct")
    return label, numbers


def _kappa(correct: int, labelled: int, table: Iterable[Sequence[int]]) -> float | None:
    """Cohen's kappa from how often each class was the truth and how often it was predicted."""
    if not labelled:
        return None
    chance = sum(seen * guessed for seen, guessed, *_ in table) / labelled**2
    return (correct / labelled - chance) / (1 - chance) if chance < 1 else 0.0


def kappa_temporal(accuracy: float | None, no_change: float | None) -> float | None:
    """Accuracy beyond that of repeating the last label: 1 is perfect, 0 is no better.

    >>> kappa_temporal(0.9, 0.5), kappa_temporal(0.9, 1.0)
    (0.8, None)
    """
    if accuracy is None or no_change is None or no_change >= 1:
        return None
    return round((accuracy - no_change) / (1 - no_change), 4)


class LabelWindow:
    """The last labelled events of one model: accuracy, kappa, recall of some classes.

    It keeps the labels themselves, which `Totals` sums up and `Recent` reduces to hits: a class that comes
    late is judged by its own events.
    """

    def __init__(self, window: int = 1_000) -> None:
        self._pairs: deque[tuple[Any, Any]] = deque(maxlen=window)

    def add(self, truth: Sequence[Any], predicted: Sequence[Any]) -> None:
        """Take labelled events."""
        self._pairs.extend(zip(truth, predicted))

    @property
    def accuracy(self) -> float | None:
        """Share of the window predicted correctly; None before the first event."""
        return sum(a == b for a, b in self._pairs) / len(self._pairs) if self._pairs else None

    @property
    def kappa(self) -> float | None:
        """Accuracy beyond chance over the window; None before the first event."""
        seen = Counter(label for label, _ in self._pairs)
        guessed = Counter(guess for _, guess in self._pairs)
        correct = sum(a == b for a, b in self._pairs)
        return _kappa(correct, len(self._pairs), [(seen[k], guessed[k]) for k in seen])

    def recall(self, classes: Sequence[Any]) -> float:
        """Share of the window's events of these classes that were recognised; 0 if there is none."""
        wanted = set(classes)
        hits = [label == guess for label, guess in self._pairs if label in wanted]
        return sum(hits) / len(hits) if hits else 0.0


class Recent:
    """Accuracy over the last `window` labelled events, and the curve of the stream so far.

    The curve has at most `CURVE_POINTS` points of equal width; when it is full, neighbours are
    merged and the width doubles, so it always spans the whole stream.

    >>> r = Recent(window=2)
    >>> r.update([1, 1, 1], [0, 1, 1])
    >>> r.accuracy, r.curve()
    (1.0, [0.0, 1.0, 1.0])
    """

    __slots__ = ("_curve", "_hits", "_width")

    def __init__(self, window: int = WINDOW) -> None:
        self._hits: deque[bool] = deque(maxlen=window)
        self._width = 1
        self._curve: list[list[int]] = []  # [events, correct] of each point

    def update(self, truth: Sequence[Hashable], predicted: Sequence[Hashable]) -> None:
        """Count a batch, in order."""
        hits = [label == guess for label, guess in zip(truth, predicted) if label is not None]
        self._hits.extend(hits)
        curve, done = self._curve, 0
        while done < len(hits):
            if not curve or curve[-1][0] >= self._width:
                if len(curve) == CURVE_POINTS:
                    curve[:] = [[a[0] + b[0], a[1] + b[1]] for a, b in zip(curve[::2], curve[1::2])]
                    self._width *= 2
                curve.append([0, 0])
            some = hits[done : done + self._width - curve[-1][0]]
            curve[-1][0] += len(some)
            curve[-1][1] += sum(some)
            done += len(some)

    def __len__(self) -> int:
        """Events in the window."""
        return len(self._hits)

    @property
    def accuracy(self) -> float | None:
        """Share correct among the last events; None before the first labelled one."""
        return sum(self._hits) / len(self._hits) if self._hits else None

    def curve(self) -> list[float]:
        """Accuracy of each part of the stream, oldest first."""
        return [correct / events for events, correct in self._curve]

    def state(self) -> dict[str, Any]:
        """Plain data for the sidecar."""
        return {
            "window": self._hits.maxlen,
            "hits": "".join("1" if hit else "0" for hit in self._hits),
            "width": self._width,
            "curve": [list(point) for point in self._curve],
        }

    @classmethod
    def from_state(cls, state: Any) -> Recent:
        """The window that `state()` described; ValueError, TypeError or KeyError if it is none."""
        recent = cls(count(state["window"], "window", _MAX_WINDOW))
        recent._hits.extend(hit == "1" for hit in state["hits"])
        recent._width = count(state["width"], "width")
        curve = rows(state["curve"], "curve", 2)
        recent._curve = [[count(n, "curve") for n in point] for point in curve]
        known = all(events >= 1 and correct <= events for events, correct in recent._curve)
        if not known or len(recent._curve) > CURVE_POINTS or recent._width < 1:
            raise ValueError("a curve that no run can have")
        return recent
