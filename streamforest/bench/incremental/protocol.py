"""The papers' protocol: a forest of k classes learns batches of s new classes (Ristin 2016, section 5).

Every strategy is compared with a forest trained at once on all classes known by then, with the same
settings and the same bags. Retraining at every batch is not run at every batch: its time is measured at
several numbers of classes and drawn as a line between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from streamforest import NCMForestClassifier
from streamforest.bench.incremental.splits import ClassSet, per_class
from streamforest.errors import ConfigError
from streamforest.forests.ncm.retraining import STRATEGIES

BATCH_STRATEGIES = ("uls", "igt", "rust", "rtst", "hirf")
"""By increasing amount of work."""

VARIANTS: dict[str, dict[str, Any]] = {
    "hirf": {},
    "hirf-growing": {"grow_kept": True},
    "hirf-unboosted": {"oob_boost": 0.0},
    "hirf-weighted": {"oob_weighting": True},
}
"""hi-RF as published, and with one thing changed; these too are names of strategies here."""

_POINTS = 5  # numbers of classes at which the retrained forest is measured
_ENDS = 10  # the oldest and the newest classes, over this

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How the protocol is run.

    Parameters
    ----------
    strategies, splits
        What is compared.
    trees, mu, pi, node_sampling, n_centroids, side_search
        As in `NCMForestClassifier`.
    classes
        Only so many classes, the first ones of each order; None: all.
    initial, chunk
        Classes at the start and in a batch; None: 20 and 10, or a fifth and a twentieth of all where
        those are fewer.
    measured
        Numbers of classes at which everything is measured, if they are met; none: five of them.
    memory
        Rows kept, as a share of the training rows; the retrained forest always has all of them.
    seed
        Of the forests.
    """

    strategies: tuple[str, ...] = BATCH_STRATEGIES
    splits: tuple[str, ...] = ("ncm",)
    trees: int = 25
    mu: int = 2
    pi: float = 0.05
    node_sampling: str = "quality"
    n_centroids: Any = "sqrt"
    side_search: Any = "greedy"
    classes: int | None = None
    initial: int | None = None
    chunk: int | None = None
    measured: tuple[int, ...] = ()
    memory: float = 1.0
    oob_boost: float = 0.1
    seed: int = 1

    def __post_init__(self) -> None:
        for strategy in self.strategies:
            if strategy not in STRATEGIES and strategy not in VARIANTS:
                names = (*BATCH_STRATEGIES, *list(VARIANTS)[1:])
                raise ConfigError(f"strategy is {strategy!r}; choose from: {', '.join(names)}")
        for name, value, least in (
            ("initial", self.initial, 1),
            ("chunk", self.chunk, 1),
            ("classes", self.classes, 2),
        ):
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}; give at least {least}")
        if not 0 <= self.pi <= 1:
            raise ConfigError(f"pi is {self.pi}; give a share of the nodes, 0 to 1")

    def steps(self, classes: int) -> list[int]:
        """Numbers of classes known at the start and after each batch."""
        initial = min(classes, self.initial or max(2, min(20, classes // 5)))
        chunk = self.chunk or max(1, min(10, round(classes / 20)))
        return [*range(initial, classes, chunk), classes]

    def shown(self, classes: int) -> list[int]:
        """Numbers of classes at which everything is measured: the first, the last, and some between."""
        steps = self.steps(classes)
        if self.measured:
            return sorted({steps[0], classes, *set(self.measured) & set(steps)})
        return sorted({steps[i] for i in np.linspace(0, len(steps) - 1, _POINTS).astype(int)})

    def forest(self, strategy: str, split: str, rows: int) -> NCMForestClassifier:
        """A forest of the protocol."""
        changed: dict[str, Any] = {}
        if strategy in VARIANTS:
            changed = {"oob_boost": self.oob_boost, **VARIANTS[strategy]}
            strategy = "hirf"
        return NCMForestClassifier.paper(
            strategy,
            split=split,
            n_trees=self.trees,
            mu=self.mu,
            pi=self.pi,
            node_sampling=self.node_sampling,
            n_centroids=self.n_centroids,
            side_search=self.side_search,
            memory=max(2, rows),
            seed=self.seed,
            **changed,
        )


@dataclass
class Point:
    """The figures of a forest at some number of known classes."""

    classes: int
    accuracy: float
    oldest: float
    newest: float
    train_s: float
    """CPU seconds so far; for the retrained forest, those of one training."""
    test_us: float
    """CPU microseconds per event."""


@dataclass
class Course:
    """One strategy over one order of the classes."""

    name: str
    split: str
    order: int
    points: list[Point] = field(default_factory=list)

    def at(self, classes: int) -> Point:
        """The figures with so many classes known."""
        return next(point for point in self.points if point.classes == classes)

    @property
    def last(self) -> Point:
        """The figures with all classes known."""
        return self.points[-1]


@dataclass
class Found:
    """All courses on one set."""

    set_name: str
    classes: int
    rows: int
    settings: Settings
    courses: list[Course] = field(default_factory=list)

    def of(self, name: str, split: str) -> list[Course]:
        """The courses of a strategy, by order."""
        return [course for course in self.courses if (course.name, course.split) == (name, split)]

    def base_of(self, course: Course) -> Course:
        """The retrained forest for the same class order."""
        return next(c for c in self.of(RETRAINED, course.split) if c.order == course.order)

    def relative(self, course: Course, classes: int | None = None) -> float:
        """Accuracy as a share of the retrained forest's, with so many classes known; None: all."""
        base = self.base_of(course)
        if classes is None:
            return course.last.accuracy / base.last.accuracy
        ours, whole = (c.at(classes).accuracy for c in (course, base))
        return ours / whole

    def time_ratio(self, course: Course) -> float:
        """Training time as a share of retraining at every batch."""
        base = self.base_of(course)
        steps = self.settings.steps(self.classes)
        at = [point.classes for point in base.points]
        total = np.interp(steps[1:], at, [point.train_s for point in base.points]).sum()
        return float(course.last.train_s / total)

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return asdict(self)


RETRAINED = "retrained"


def run_set(
    data: ClassSet, settings: Settings, orders: Sequence[int], say: Say = lambda text: None
) -> Found:
    """Every strategy and split over every order of the classes."""
    first = data.in_order(orders[0]).first(settings.classes)
    found = Found(data.name, first.classes, len(first.y), settings)
    say(f"{data.name}: compiling")
    for split in settings.splits:
        for name in ("igt", *settings.strategies):
            settings.forest(name, split, 2).warm_up()  # nothing compiles while time is taken
    for order in orders:
        ordered = data.in_order(order).first(settings.classes)
        for split in settings.splits:
            for name in (RETRAINED, *settings.strategies):
                say(f"{data.name}, order {order}: {split} {name}")
                run = _retrained if name == RETRAINED else _incremental
                found.courses.append(run(ordered, settings, name, split, order))
    return found


def _retrained(data: ClassSet, settings: Settings, name: str, split: str, order: int) -> Course:
    course = Course(name, split, order)
    for classes in settings.shown(data.classes):
        rows = data.rows_below(classes)
        forest = settings.forest("igt", split, rows)
        begun = time.process_time()
        forest.fit_many(data.X[:rows], data.y[:rows])
        course.points.append(point(forest, data, classes, time.process_time() - begun))
    return course


def _incremental(data: ClassSet, settings: Settings, name: str, split: str, order: int) -> Course:
    steps = settings.steps(data.classes)
    course = Course(name, split, order)
    forest = settings.forest(name, split, round(settings.memory * len(data.y)))
    rows = data.rows_below(steps[0])
    forest.fit_many(data.X[:rows], data.y[:rows])
    shown = settings.shown(data.classes)
    spent = 0.0
    for classes in steps[1:]:
        end = data.rows_below(classes)
        begun = time.process_time()
        forest.extend_many(data.X[rows:end], data.y[rows:end])
        spent += time.process_time() - begun
        rows = end
        if classes in shown:
            course.points.append(point(forest, data, classes, spent))
    return course


def point(forest: NCMForestClassifier, data: ClassSet, classes: int, train_s: float) -> Point:
    X, y = data.known(classes)
    forest.advance(X[:1])
    begun = time.process_time()
    P = forest.advance(X)
    spent = time.process_time() - begun
    answers = np.array(forest.classes_)[P.argmax(axis=1)]
    few = max(1, classes // _ENDS)
    old, new = y < few, y >= classes - few
    return Point(
        classes=classes,
        accuracy=per_class(answers, y),
        oldest=per_class(answers[old], y[old]),
        newest=per_class(answers[new], y[new]),
        train_s=train_s,
        test_us=1e6 * spent / len(y),
    )


SWEEPS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "centroids": ("n_centroids", ("sqrt", "log", 0.2, 2)),
    "mu": ("mu", (1, 2, 5, 10, 20)),
    "sampling": ("node_sampling", ("quality", "size", "uniform")),
    "initial": ("initial", (0.05, 0.1, 0.3, 0.5)),
    "chunk": ("chunk", (0.01, 0.05, 0.1, 0.3)),
    "pi": ("pi", (0.01, 0.05, 0.2, 0.5)),
}
"""What `--sweep` varies (Figs 4 to 7 and 11 of Ristin 2016): parameter and values; `initial` and `chunk`
are shares of the classes. `orders` (Fig. 10) varies nothing but the order of the classes."""


def swept(settings: Settings, sweep: str, classes: int) -> list[tuple[str, Settings]]:
    """(name in the table, settings) for each value of a sweep."""
    parameter, values = SWEEPS[sweep]
    out = []
    for value in values:
        label = f"{parameter} {value}"
        if sweep in ("initial", "chunk"):
            value = max(1, round(value * classes))
            label = f"{parameter} {value}"
        out.append((label, replace(settings, **{parameter: value})))
    return out
