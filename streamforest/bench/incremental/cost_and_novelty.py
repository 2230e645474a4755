"""Further measurements with many classes: cost by classes, latency while trees grow, novelty."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest import NCMForestClassifier
from streamforest.bench.incremental.protocol import Say
from streamforest.bench.incremental.splits import ClassSet
from streamforest.bench.output import Line, Panel

_CLASSES = (10, 30, 100, 300, 964)
_ROUNDS = 5  # interleaved, of which the median counts


@dataclass(frozen=True)
class Cost:
    """The cost of a prediction at some number of known classes."""

    classes: int
    us: float
    """CPU microseconds per event, median of the rounds."""
    centroids: float
    """Rows that an event is compared with, in all trees together."""
    product_us: float
    """One single-precision matrix–vector product over as many contiguous rows."""


def cost(data: ClassSet, trees: int, mu: int, say: Say = lambda text: None) -> list[Cost]:
    """Time of a prediction by the number of classes, with the papers' settings (trees only)."""
    counts = [c for c in _CLASSES if c < data.classes] + [data.classes]
    forests, asked = [], []
    for classes in counts:
        say(f"{data.name}: {classes} classes")
        rows = data.rows_below(classes)
        forest = NCMForestClassifier.paper(
            "igt", n_trees=trees, mu=mu, memory=max(2, rows), side_search="greedy", seed=1
        )
        forest.fit_many(data.X[:rows], data.y[:rows])
        forests.append(forest)
        asked.append(np.ascontiguousarray(data.known(classes)[0][:1_000]))
    rows_met = [_rows_met(forest, X) for forest, X in zip(forests, asked)]
    width = data.X.shape[1]
    matrices = [np.ones((round(n), width), np.float32) for n in rows_met]
    spent = np.zeros((_ROUNDS, len(counts)))
    product = np.zeros((_ROUNDS, len(counts)))
    for r in range(_ROUNDS):
        say(f"{data.name}: round {r + 1} of {_ROUNDS}")
        for k, (forest, X) in enumerate(zip(forests, asked)):
            begun = time.process_time()
            forest.advance(X)
            spent[r, k] = 1e6 * (time.process_time() - begun) / len(X)
            v = X[0].astype(np.float32)
            begun = time.process_time()
            for _ in range(200):
                matrices[k] @ v
            product[r, k] = 1e6 * (time.process_time() - begun) / 200
    return [
        Cost(classes, float(np.median(spent[:, k])), rows_met[k], float(np.median(product[:, k])))
        for k, classes in enumerate(counts)
    ]


def _rows_met(forest: NCMForestClassifier, X: NDArray[np.float64]) -> float:
    """Mean number of centroids that an event meets in all trees together."""
    x = forest._columns.rows(X, np.zeros(len(X), np.uint8), forest._features)
    total = 0
    for tree in forest._trees:
        node, cen, half, side = tree.node, tree.cen, tree.half, tree.side
        at = np.zeros(len(x), np.int64)
        while (inside := node["left"][at] >= 0).any():
            for i in np.unique(at[inside]).tolist():
                rows = np.flatnonzero(at == i)
                first, k = int(node["first"][i]), int(node["k"][i])
                total += k * len(rows)
                far = half[first : first + k] - x[rows, : cen.shape[1]] @ cen[first : first + k].T
                right = far[:, 0] >= 0 if k == 1 else side[first + far.argmin(axis=1)] == 1
                at[rows] = node["left"][i] + right
    return total / len(x)


def exponent(costs: list[Cost]) -> float:
    """e of time ∝ classesᵉ, by least squares on logarithms."""
    x = np.log([one.classes for one in costs])
    return float(np.polyfit(x, np.log([one.us for one in costs]), 1)[0])


def cost_panel(costs: list[Cost]) -> Panel:
    """Time by classes, both scales logarithmic in effect: log₁₀ µs over classes."""
    x = np.array([one.classes for one in costs])
    return Panel(
        "time of an answer",
        [
            Line("forest", x, np.log10([one.us for one in costs]), strong=True),
            Line("matrix–vector product", x, np.log10([one.product_us for one in costs])),
            Line("as the classes", x, np.log10(costs[0].us * x / x[0]), dashed=True),
        ],
        x_label="classes",
        y_label="log₁₀ µs",
        log_x=True,
    )


# ---- latency


@dataclass(frozen=True)
class Latency:
    """`predict_one` while a forest learns a stream."""

    rebuilding: str
    p50_us: float
    p99_us: float
    longest_us: float
    grown: int


def latency(
    X: NDArray[np.float64], y: Any, trees: int, say: Say = lambda text: None
) -> list[Latency]:
    """`predict_one` by the wall clock with trees grown in the background, in line and not at all.

    All three live side by side and are asked in turns, so that a slow moment hits all.
    """
    kinds: dict[str, dict[str, Any]] = {
        "off": {"strategy": "igt"},
        "in the background": {"background": True},
        "in line": {},
    }
    forests = {
        name: NCMForestClassifier(n_trees=trees, seed=1, **params) for name, params in kinds.items()
    }
    names = list(kinds)
    taken = {name: np.zeros(len(X), np.int64) for name in kinds}
    events = [dict(enumerate(row)) for row in X.tolist()]
    labels = y.tolist()
    for k, (event, label) in enumerate(zip(events, labels)):
        for turn in range(len(names)):
            name = names[(turn + k) % len(names)]
            forest = forests[name]
            begun = time.perf_counter_ns()
            forest.predict_one(event)
            taken[name][k] = time.perf_counter_ns() - begun
            forest.learn_one(event, label)
        if k % 500 == 0:
            say(f"latency: event {k:,} of {len(X):,}")
    out = []
    for name, forest in forests.items():
        ns = taken[name][len(X) // 4 :]  # grown up
        p50, p99, longest = np.percentile(ns, [50, 99, 100]) / 1e3
        grown = forest.summary()["trees_grown"]
        out.append(Latency(name, float(p50), float(p99), float(longest), grown))
    return out


# ---- novelty


def auroc(new: NDArray[np.float64], known: NDArray[np.float64]) -> float:
    """The chance that a new event is called newer than a known one; half of it where they tie.

    >>> auroc(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    above = (new[:, None] > known[None, :]).mean()
    level = (new[:, None] == known[None, :]).mean()
    return float(above + 0.5 * level)


def novelty(data: ClassSet, trees: int, draws: int, most: int = 1_000) -> list[float]:
    """AUROC of `novelty_many` for classes never seen against known ones, for each draw of a half."""
    out = []
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        seen = rng.permutation(data.classes)[: data.classes // 2]
        rows = rng.permutation(np.flatnonzero(np.isin(data.y, seen)))
        forest = NCMForestClassifier(n_trees=trees, seed=1)
        forest.learn_many(data.X[rows], data.y[rows])
        asked = rng.permutation(len(data.y_test))
        known = np.isin(data.y_test[asked], seen)
        values = forest.novelty_many(data.X_test[asked])
        out.append(auroc(values[~known][:most], values[known][:most]))
    return out
