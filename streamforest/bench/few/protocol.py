"""What the experiments share: a class with few rows among others, and how well it is recognised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.bench.denil.common import Curve, Figure, Panel
from streamforest.datasets.recorded import missing_file, recorded

LETTERS = "omniglot964"
ALPHABET = "Latin/"
TRAIN_ROWS = 10
"""Of each old class; the other 10 drawings of a letter are for testing."""

Rates = tuple[float, float]
"""Rate of the new class, and mean rate over all classes."""


@dataclass(frozen=True, eq=False)
class Task:
    """A classification task with one class of few rows.

    Rows of the old classes come first in `X`, in random order; those of the new class, number `new`, last.
    """

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]
    new: int
    classes: int

    @property
    def n_old(self) -> int:
        """Rows of the old classes."""
        return int((self.y != self.new).sum())

    def rates(self, answers: NDArray[Any]) -> Rates:
        """How often the new class, and the mean class, is recognised."""
        hits = [float((answers[self.y_test == k] == k).mean()) for k in range(self.classes)]
        return hits[self.new], float(np.mean(hits))


def latin() -> list[NDArray[np.float64]]:
    """The rows of each Latin letter, a to z."""
    stream = recorded(LETTERS)
    labels = np.asarray(stream.y)
    names = sorted({str(name) for name in labels if str(name).startswith(ALPHABET)})
    return [stream.X[labels == name] for name in names]


def missing_data(name: str, key: str, title: str) -> Figure | None:
    """A figure that says why it is skipped; None if the data are there."""
    reason = missing_file(name)
    return None if reason is None else Figure(key=key, title=title, skipped=reason)


def draw(letters: Sequence[NDArray[np.float64]], new: int, rows: int, seed: int) -> Task:
    """`rows` rows of letter `new` and 10 of each other; the rest is for testing (10 of each)."""
    rng = np.random.default_rng([seed, new])
    train: list[NDArray[Any]] = []
    test: list[NDArray[Any]] = []
    for k, of_it in enumerate(letters):
        order = rng.permutation(len(of_it))
        train.append(of_it[order[: rows if k == new else TRAIN_ROWS]])
        test.append(of_it[order[TRAIN_ROWS:]])
    y = np.repeat(np.arange(len(letters)), [len(part) for part in train])
    X = np.concatenate(train)
    order = np.concatenate([rng.permutation(np.flatnonzero(y != new)), np.flatnonzero(y == new)])
    y_test = np.repeat(np.arange(len(letters)), [len(part) for part in test])
    return Task(X[order], y[order], np.concatenate(test), y_test, new, len(letters))


def nearest(task: Task, n: int) -> list[int]:
    """The classes whose means are nearest to that of the new one."""
    means = np.array([task.X[task.y == k].mean(axis=0) for k in range(task.classes)])
    distance = ((means - means[task.new]) ** 2).sum(axis=1)
    distance[task.new] = np.inf
    return [int(k) for k in np.argsort(distance, kind="stable")[:n]]


PLAIN, BALANCED, MAP, LEVEL = "plain counts", "balanced", "MAP", "MAP + level"
SKLEARN = "ExtraTrees (scikit-learn)"
MEANS = "nearest class mean"
WAYS: dict[str, dict[str, Any]] = {
    PLAIN: {"few_rows": 0, "balanced": False},
    BALANCED: {"few_rows": 0},
    MAP: {"level_rows": 0},
    LEVEL: {},
}
"""Ways to answer with the same trees, as parameters of the paper's forest."""


def grown(task: Task, support: Sequence[int], way: str, trees: int, seed: int) -> Any:
    """The paper's forest, grown from all rows of a task, answering in one way."""
    from streamforest import FewShotForestClassifier

    model = FewShotForestClassifier.paper(
        "rodner", n_trees=trees, n_support=0, seed=seed, **WAYS[way]
    )
    old = slice(0, task.n_old)
    if way in (MAP, LEVEL):
        model.learn_many(task.X[old], task.y[old])  # type: ignore[arg-type]
        model.announce(task.new, support)
        model.fit_many(task.X[task.n_old :], task.y[task.n_old :])
    else:
        model.fit_many(task.X, task.y)
    return model


def answers_of(model: Any, X: NDArray[np.float64]) -> NDArray[Any]:
    """The classes that a forest names."""
    named: NDArray[Any] = np.asarray(model.classes_)[model.advance(X).argmax(axis=1)]
    return named


def rivals(task: Task, trees: int, seed: int) -> dict[str, Rates]:
    """scikit-learn's ExtraTrees and the nearest class mean on a task."""
    from sklearn.ensemble import ExtraTreesClassifier

    offline = ExtraTreesClassifier(trees, criterion="entropy", random_state=seed)
    offline.fit(task.X, task.y)
    means = np.array([task.X[task.y == k].mean(axis=0) for k in range(task.classes)])
    squared = ((task.X_test[:, None, :] - means[None]) ** 2).sum(axis=2)
    return {
        SKLEARN: task.rates(offline.predict(task.X_test)),
        MEANS: task.rates(squared.argmin(axis=1)),
    }


def panels(
    title: str, rows: Sequence[int], measured: dict[str, list[list[Rates]]]
) -> tuple[Panel, Panel]:
    """The two plots of Figs 5 and 6: rate of the new class, and mean rate; [way][run][point]."""
    x = [float(f) for f in rows]
    made = []
    for which, what in enumerate(("new class", "mean of all classes")):
        curves = [
            Curve(way, x, [[point[which] for point in run] for run in runs])
            for way, runs in measured.items()
        ]
        made.append(Panel(f"{title}, {what}", "rows of the new class", "recognition rate", curves))
    return made[0], made[1]


def collect(
    runs: Sequence[Any], rows: Sequence[int], one: Callable[[Any, int], dict[str, Rates]]
) -> dict[str, list[list[Rates]]]:
    """Measure each run at each number of rows: [way][run][point]."""
    out: dict[str, list[list[Rates]]] = {}
    for run in runs:
        points = [one(run, f) for f in rows]
        for way in points[0]:
            out.setdefault(way, []).append([point[way] for point in points])
    return out


def gains(panel: Panel, way: str, over: str) -> list[float]:
    """How much one curve is above another at each point."""
    means = {curve.name: curve.mean for curve in panel.curves}
    return [round(a - b, 4) for a, b in zip(means[way], means[over])]


def signed(values: Sequence[float]) -> str:
    """Differences of rates in points.

    >>> signed([0.13, -0.004])
    '+13.0, -0.4'
    """
    return ", ".join(f"{100 * value:+.1f}" for value in values)
