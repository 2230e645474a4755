"""The course of a run in a bounded number of points.

A point sums up a short part of the run: what was read, how many labels each model got right, what it took.
Two neighbours can be added up to one, so a series stays bounded by becoming coarser, never by forgetting
what it has summed. There are three series of the same points: the last ten minutes and the last six hours,
whose oldest points leave, and the whole run, whose points double in width when it is full.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

MAX_POINTS = 300
"""Points of one series."""

Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class Point(msgspec.Struct, forbid_unknown_fields=True):
    """One part of a run."""

    at: Amount = 0.0
    """When it ended, in seconds since 1970."""
    seconds: Amount = 0.0
    learned: Count = 0
    """Events that the publishing model had learned at its end."""
    events: Count = 0
    labelled: Count = 0
    no_change: Count = 0
    """Labels that were the same as the label before."""
    models: dict[str, tuple[Count, Count]] = {}
    """Of each model: labelled events, and how many it got right."""
    predict: tuple[Count, Amount] = (0, 0.0)
    """Events sampled, and seconds to predict them."""
    learn: tuple[Count, Amount] = (0, 0.0)
    waits: Count = 0
    """Events with a record time that were committed."""
    wait_median: Amount = 0.0
    """Sum over commits of events × median seconds from record to commit."""
    wait_p99: Amount = 0.0
    """The worst of all commits."""
    lag: Count | None = None
    """Records not yet read, at its end."""
    lag_seconds: Amount | None = None
    measured: Count = 0
    """Events with a measure of novelty."""
    novelty: Amount = 0.0
    """Sum over batches of events × median novelty."""
    far: Count = 0
    """Events with a novelty over `FAR`."""
    refused: Count = 0
    commits: Count = 0

    def add(self, later: Point) -> None:
        """Take in the part that comes right after this one."""
        self.at, self.learned = later.at, later.learned
        self.seconds += later.seconds
        self.events += later.events
        self.labelled += later.labelled
        self.no_change += later.no_change
        for name, (labelled, correct) in later.models.items():
            before = self.models.get(name, (0, 0))
            self.models[name] = before[0] + labelled, before[1] + correct
        self.predict = self.predict[0] + later.predict[0], self.predict[1] + later.predict[1]
        self.learn = self.learn[0] + later.learn[0], self.learn[1] + later.learn[1]
        self.waits += later.waits
        self.wait_median += later.wait_median
        self.wait_p99 = max(self.wait_p99, later.wait_p99)
        self.lag = self.lag if later.lag is None else later.lag
        self.lag_seconds = self.lag_seconds if later.lag_seconds is None else later.lag_seconds
        self.measured += later.measured
        self.novelty += later.novelty
        self.far += later.far
        self.refused += later.refused
        self.commits += later.commits

    def copy(self) -> Point:
        """One that can be added to without changing this one."""
        other = msgspec.structs.replace(self)
        other.models = dict(self.models)
        return other


FAR = 3.0
"""Novelty from which an event is unlike everything known; about 1 is usual."""


class Steps(msgspec.Struct, forbid_unknown_fields=True):
    """The last `MAX_POINTS` points of at least `step` seconds each.

    >>> steps = Steps(step=2.0)
    >>> for at in range(700):
    ...     steps.add(Point(at=at, seconds=1.0, events=5))
    >>> len(steps.points), steps.points[-1].events, steps.points[0].at
    (300, 10, 101)
    """

    step: Amount
    points: list[Point] = []

    def add(self, point: Point) -> None:
        """Take the next part of the run; what the process was away for stays a gap."""
        points = self.points
        if points:
            last = points[-1]
            away = point.at - point.seconds - last.at
            if last.seconds + point.seconds <= self.step and away <= self.step:
                last.add(point)
                return
        points.append(point.copy())
        del points[:-MAX_POINTS]


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    """The whole run in at most `MAX_POINTS` points of `width` parts each.

    >>> whole = Whole()
    >>> for at in range(1000):
    ...     whole.add(Point(at=at, events=1))
    >>> whole.width, len(whole.points), sum(point.events for point in whole.points)
    (4, 250, 1000)
    """

    width: Annotated[int, msgspec.Meta(ge=1)] = 1
    filled: Count = 0
    """Parts in the last point."""
    points: list[Point] = []

    def add(self, point: Point) -> None:
        """Take the next part of the run."""
        points = self.points
        if points and self.filled < self.width:
            points[-1].add(point)
            self.filled += 1
            return
        if len(points) >= MAX_POINTS:
            for left, right in zip(points[::2], points[1::2]):
                left.add(right)
            del points[1::2]
            self.width *= 2
        points.append(point.copy())
        self.filled = 1


def total(points: Iterable[Point]) -> Point:
    """The sum of some points, in order."""
    whole = Point()
    for point in points:
        whole.add(point)
    return whole


def share(part: float, of: float) -> float | None:
    """A share with four digits; None where there is nothing to share."""
    return round(part / of, 4) if of else None


def short(value: float | None) -> float | None:
    """Four significant digits are enough to draw."""
    return None if value is None else float(f"{value:.4g}")


def columns(points: list[Point], step: float) -> dict[str, Any]:
    """The points as they are drawn: a list for each curve, with None where nothing is known.

    Between two points with more than some steps between them stands one of nothing, so that no line is drawn
    over a time in which no process ran.
    """
    drawn: list[Point] = []
    for point in points:
        if drawn and point.at - point.seconds - drawn[-1].at > 3 * max(step, drawn[-1].seconds):
            drawn.append(Point(at=drawn[-1].at + step, learned=drawn[-1].learned))
        drawn.append(point)
    names = list(dict.fromkeys(name for point in drawn for name in point.models))
    return {
        "at": [round(point.at, 2) for point in drawn],
        "learned": [point.learned for point in drawn],
        "labelled": [point.labelled for point in drawn],
        "no_change": [point.no_change for point in drawn],
        "models": {name: [point.models.get(name, (0, 0)) for point in drawn] for name in names},
        "rate": [short(p.events / p.seconds) if p.seconds else None for p in drawn],
        "refused": [short(p.refused / p.seconds) if p.seconds else None for p in drawn],
        "predict": [short(p.predict[1] / p.predict[0]) if p.predict[0] else None for p in drawn],
        "learn": [short(p.learn[1] / p.learn[0]) if p.learn[0] else None for p in drawn],
        "wait_median": [short(p.wait_median / p.waits) if p.waits else None for p in drawn],
        "wait_p99": [short(p.wait_p99) if p.waits else None for p in drawn],
        "lag": [point.lag for point in drawn],
        "lag_seconds": [short(point.lag_seconds) for point in drawn],
        "novelty": [short(p.novelty / p.measured) if p.measured else None for p in drawn],
        "far": [share(p.far, p.measured) for p in drawn],
    }
