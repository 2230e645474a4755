"""What the figures of Denil et al. 2013 share: options, curves over runs, measured figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from streamforest.forests.core.base import Forest


class Watcher(Protocol):
    """Receives the progress of a figure."""

    def begin(self, what: str, total: int) -> None:
        """A step of `total` events starts."""

    def update(self, done: int) -> None:
        """The number of its events that are done."""


@dataclass(frozen=True)
class Options:
    """How much of each figure to run. None takes the figure's own default.

    Parameters
    ----------
    runs
        Repetitions with other seeds, over which mean and spread are taken.
    events
        Most training events of a run (rows of USPS in Fig. 3, pixels in Fig. 5).
    quick
        A few seconds a figure, to see that it works; its numbers mean little.
    full
        Fig. 5 at the paper's own scale, which takes hours.
    trees, poses, candidates
        Size of the forests; training poses and candidate offsets a leaf draws (λ) in Fig. 5.
    seed
        Seed of the first run; the others count up from it.
    n_jobs
        Threads a forest may use. The numbers do not depend on it.
    """

    runs: int | None = None
    events: int | None = None
    quick: bool = False
    full: bool = False
    trees: int | None = None
    poses: int | None = None
    candidates: int | None = None
    seed: int = 0
    n_jobs: int = 1


@dataclass
class Curve:
    """One line of a figure: a value at each x, in each run.

    >>> c = Curve("forest", [100, 200], [[0.5, 0.6], [0.7, 0.6]])
    >>> c.mean, [round(s, 3) for s in c.spread]
    ([0.6, 0.6], [0.141, 0.0])
    """

    name: str
    x: list[float]
    runs: list[list[float]] = field(default_factory=list)

    @property
    def mean(self) -> list[float]:
        """Mean over the runs at each x."""
        return [statistics.fmean(values) for values in zip(*self.runs, strict=True)]

    @property
    def spread(self) -> list[float]:
        """One standard deviation over the runs at each x, as the paper shades it; 0 for one run."""
        return [
            statistics.stdev(values) if len(values) > 1 else 0.0
            for values in zip(*self.runs, strict=True)
        ]

    def as_json(self) -> dict[str, Any]:
        """Plain values for the JSON file."""
        return {**asdict(self), "mean": self.mean, "spread": self.spread}


@dataclass
class Panel:
    """Curves over one x-axis, with horizontal lines for values that do not depend on x.

    `unit` is "share" (accuracies, 0 to 1) or "bytes".
    """

    title: str
    x_label: str
    y_label: str
    curves: list[Curve]
    levels: dict[str, float] = field(default_factory=dict)
    unit: str = "share"

    def as_json(self) -> dict[str, Any]:
        """Plain values for the JSON file."""
        return {**asdict(self), "curves": [curve.as_json() for curve in self.curves]}


@dataclass
class Picture:
    """Images side by side with a title each, as in Fig. 4: depth, true parts, named parts."""

    titles: list[str]
    images: list[NDArray[Any]]


@dataclass
class Figure:
    """A measured figure: what was run, its panels, and what they show.

    `facts` are values for programs, `findings` sentences for readers.
    """

    key: str
    title: str
    settings: dict[str, Any] = field(default_factory=dict)
    panels: list[Panel] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    picture: Picture | None = None
    skipped: str | None = None
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain values for the JSON file; the picture is not part of it."""
        return {
            "figure": self.key,
            "title": self.title,
            "settings": self.settings,
            "panels": [panel.as_json() for panel in self.panels],
            "facts": self.facts,
            "findings": self.findings,
            "skipped": self.skipped,
            "seconds": round(self.seconds, 2),
        }


def log_spaced(first: int, last: int, n: int) -> list[int]:
    """About `n` whole numbers from `first` to `last`, evenly spaced on a log axis, no two alike.

    >>> log_spaced(100, 30_000, 5), log_spaced(100, 60, 5)
    ([100, 416, 1732, 7208, 30000], [60])
    """
    if last <= first:
        return [last]
    return sorted({round(x) for x in np.geomspace(first, last, n).tolist()})


def learn(model: Forest, X: NDArray[np.float64], y: NDArray[Any]) -> None:
    """Learn rows in order without asking for predictions, which would be thrown away."""
    from streamforest import LEARN

    if len(X):
        model.advance(X, y, op=np.full(len(X), LEARN))


def named(model: Forest, X: NDArray[np.float64]) -> NDArray[Any]:
    """The forest's answers. Ties go to the class seen first."""
    answers: NDArray[Any] = np.asarray(model.classes_)[model.advance(X).argmax(axis=1)]
    return answers


def accuracy(model: Forest, X: NDArray[np.float64], y: NDArray[Any]) -> float:
    """Share of rows that the forest classifies correctly; the rows are not learned."""
    return float((named(model, X) == y).mean())


def class_indices(model: Forest, y: NDArray[Any]) -> NDArray[np.int64]:
    """Labels as indices into the forest's classes; -2, which no tree answers, for a class not seen yet."""
    place = {label: k for k, label in enumerate(model.classes_)}
    return np.array([place.get(label, -2) for label in y.tolist()], dtype=np.int64)


def transposed(runs: Sequence[Sequence[Sequence[float]]]) -> list[list[list[float]]]:
    """[run][point][curve] to [curve][run][point]: runs measure all curves at a point together."""
    return [[[float(point[k]) for point in run] for run in runs] for k in range(len(runs[0][0]))]
