"""The paper's methods on regularised NCM trees: Tables 1, 3, 4, 5 and Figures 2 to 4 of Ristin 2015."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamforest.bench.coarse.splits import Ints, LevelSet, load
from streamforest.forests.ncm.forest import NCMForestClassifier

METHODS = ("stacked", "joint", "nn", "h", "nn-h")
FINE_ONLY, FULL, COARSE_ONLY = "fine only", "full supervision", "coarse only"

PAPER_FINE = {
    "stacked": (1.07, 1.05, 1.04),
    "joint": (1.05, 1.04, 1.01),
    "nn": (1.16, 1.08, 1.06),
    "h": (1.18, 1.13, 1.08),
    "nn-h": (1.22, 1.14, 1.09),
}
"""Table 3: accuracy over that of fine-only training, fine labels on .1, .2 and .5 of the set."""

PAPER_COARSE_PART = {
    "stacked": (1.01, 1.01, 1.04),
    "joint": (1.00, 0.99, 1.01),
    "nn": (1.02, 1.03, 1.06),
    "h": (1.04, 1.06, 1.08),
    "nn-h": (1.05, 1.07, 1.09),
}
"""Table 4: the same with fine labels on .5, coarse ones on .1, .2 and .5."""

PAPER_CATEGORIES = {"stacked": 0.91, "joint": 0.90, "nn": 0.99, "h": 0.98, "nn-h": 1.02}
"""Table 5: accuracy of categories over that of a forest trained on categories alone."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What forests are made with."""

    trees: int = 10
    sets: int = 50
    mu: int = 2
    metric: str = "raw"
    seeds: int = 5


def _jsonable(values: list[float]) -> list[float | None]:
    """JSON has no NaN."""
    return [None if np.isnan(value) else value for value in values]


@dataclass
class Cell:
    """One method at one point: accuracies by seed."""

    method: str
    at: str
    fine: list[float] = field(default_factory=list)
    coarse: list[float] = field(default_factory=list)
    comparisons: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {
            "method": self.method,
            "at": self.at,
            "fine_accuracy": _jsonable(self.fine),
            "coarse_accuracy": _jsonable(self.coarse),
            "comparisons": _jsonable(self.comparisons),
        }


class Measured:
    """Cells of a table, filled seed by seed."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.cells: dict[tuple[str, str], Cell] = {}

    def add(
        self, method: str, at: str, fine: float, coarse: float, comparisons: float = np.nan
    ) -> None:
        """The result of one seed."""
        cell = self.cells.setdefault((method, at), Cell(method, at))
        cell.fine.append(fine)
        cell.coarse.append(coarse)
        cell.comparisons.append(comparisons)

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {"title": self.title, "cells": [cell.as_json() for cell in self.cells.values()]}


def _forest(settings: Settings, seed: int, **changed: Any) -> NCMForestClassifier:
    parameters: dict[str, Any] = {
        "n_trees": settings.trees,
        "n_sets": settings.sets,
        "mu": settings.mu,
        "metric": settings.metric,
        "memory": 1 << 15,
        "seed": seed,
        **changed,
    }
    return NCMForestClassifier.paper("rncmf", **parameters)


def _fit(
    data: LevelSet, part: tuple[Ints, list[int | None], list[int]], method: str, forest: Any
) -> tuple[float, float, float]:
    """Accuracy of classes and of categories, and comparisons a tree and event."""
    rows, labels, categories = part
    test = data.test
    if method in METHODS:
        forest.fit_many(data.X[rows], labels, coarse=categories)
        told = forest.answers(data.X[test])
        fine = np.array(forest.classes_)[told.posteriors.argmax(axis=1)]
        coarse = np.array(forest.categories_)[told.coarse.argmax(axis=1)]
    elif method == COARSE_ONLY:
        forest.fit_many(data.X[rows], categories)
        P = forest.advance(data.X[test])
        coarse = np.array(forest.classes_)[P.argmax(axis=1)]
        return np.nan, float((coarse == data.category[test]).mean()), np.nan
    else:
        if method == FINE_ONLY:
            rows = rows[[label is not None for label in labels]]
        forest.fit_many(data.X[rows], data.y[rows].tolist())
        P = forest.advance(data.X[test])
        fine = np.array(forest.classes_)[P.argmax(axis=1)]
        of_class = dict(zip(data.y.tolist(), data.category.tolist()))
        sums = np.zeros((len(test), int(data.category.max()) + 1))
        for k, y in enumerate(forest.classes_):
            sums[:, of_class[y]] += P[:, k]
        coarse = sums.argmax(axis=1)
    right = float((fine == data.y[test]).mean()), float((coarse == data.category[test]).mean())
    return *right, _comparisons(forest, data, test)


def _comparisons(forest: Any, data: LevelSet, test: Ints) -> float:
    """Centroids that an event is compared with, per tree: by the rows that are there."""
    total = 0.0
    for t in range(forest.n_trees):
        tree = forest._trees[t]
        n = int(tree.info["n_nodes"][0])
        node = tree.node[:n]
        below = np.zeros(n)
        below[node["left"] < 0] = node["n"][node["left"] < 0]
        for i in range(n - 1, -1, -1):  # children come after their parents
            if node["left"][i] >= 0:
                below[i] = below[node["left"][i]] + below[node["left"][i] + 1]
        inner = node["left"] >= 0
        total += float((below[inner] * node["k"][inner]).sum() / max(below[0], 1))
    return total / int(forest.n_trees)


def fine_shares(name: str, settings: Settings, say: Say) -> Measured:
    """Tables 3 and 5: half of the set coarse, fine labels on a further .1, .2 and .5."""
    out = Measured("fine labels on a share of the set, coarse ones on half")
    for seed in range(settings.seeds):
        data = load(name, seed)
        for share in (0.1, 0.2, 0.5):
            part = data.part(share, 0.5, seed)
            for method in (FINE_ONLY, *METHODS, FULL, COARSE_ONLY):
                say(f"{name}: seed {seed}, {share} fine, {method}")
                own = {"coarse_method": method} if method in METHODS else {}
                out.add(
                    method, f"{share}", *_fit(data, part, method, _forest(settings, seed, **own))
                )
    return out


def coarse_shares(name: str, settings: Settings, say: Say) -> Measured:
    """Table 4: fine labels on half of the set, coarse ones on .1, .2 and .5."""
    out = Measured("coarse labels on a share of the set, fine ones on half")
    for seed in range(settings.seeds):
        data = load(name, seed)
        for share in (0.1, 0.2, 0.5):
            part = data.part(0.5, share, seed)
            for method in (FINE_ONLY, *METHODS):
                say(f"{name}: seed {seed}, {share} coarse, {method}")
                own = {"coarse_method": method} if method in METHODS else {}
                out.add(
                    method, f"{share}", *_fit(data, part, method, _forest(settings, seed, **own))
                )
    return out


_SWEEPS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "Fig. 2a: sets": (FULL, "n_sets", (10, 100, 500)),
    "Fig. 2b: assignments": (FULL, "side_search", (10, 50, 100)),
    "Fig. 2c: λ_reg": (FULL, "lambda_reg", (0.1, 0.01, 0.005, 0.001, 0.0)),
    "Fig. 3: λ of joint": ("joint", "lambda_coarse", (0.01, 0.1, 1.0, 10.0)),
    "Fig. 3: λ of h": ("h", "lambda_coarse", (0.01, 0.1, 1.0, 10.0)),
    "Fig. 4: c": (FULL, "c", (1.0, 5.0, 10.0, 20.0)),
}


def sweeps(name: str, settings: Settings, say: Say) -> list[Measured]:
    """Figures 2 to 4, and Table 1's NCM forest beside the regularised one."""
    out = []
    for title, (method, parameter, values) in _SWEEPS.items():
        found = Measured(title)
        for seed in range(settings.seeds):
            data = load(name, seed)
            part = data.part(0.5, 0.5, seed)
            for value in values:
                say(f"{name}: seed {seed}, {parameter} {value}")
                own = {parameter: value}
                if method in METHODS:
                    own["coarse_method"] = method
                result = _fit(data, part, method, _forest(settings, seed, **own))
                found.add(method, f"{value:g}", *result)
        out.append(found)
    table = Measured("Table 1: NCM forest and regularised NCM forest")
    for seed in range(settings.seeds):
        data = load(name, seed)
        part = data.part(0.5, 0.5, seed)
        plain = {"n_sets": 0, "lambda_reg": 0.0, "side_search": 1024}
        for label, own in (("NCMF", plain), ("RNCMF", {})):
            table.add(label, "full", *_fit(data, part, FULL, _forest(settings, seed, **own)))
    return [*out, table]
