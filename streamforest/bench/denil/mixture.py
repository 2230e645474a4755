"""Fig. 2: the forest against its own trees and the Bayes rule, on a mixture of five Gaussians.

Section 5.1 of Denil et al. 2013: every tree is a consistent classifier by itself, yet the forest
gets near the Bayes rate with far fewer events. The paper's settings: 100 trees, λ = 1, m = 10, τ
= .001, α(d) = 1.1^d, β(d) = 1000·α(d), 10 runs. The paper's forest takes a majority vote of its
trees; averaging their posteriors is shown beside it, measured on the same forest.

The paper does not give the mixture; weights, means and covariances are those of the authors' code. That code
departs from the paper in four things, and here the paper holds: it feeds leaf histograms from both streams,
averages posteriors instead of taking votes, takes ŝ from 1 − the largest posterior, and has one pool of
fringe places for the whole forest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.bench.denil.common import (
    Curve,
    Figure,
    Options,
    Panel,
    Watcher,
    accuracy,
    class_indices,
    learn,
    log_spaced,
    transposed,
)

SETTINGS: dict[str, Any] = {
    "lam": 1.0,
    "n_splits": 10,
    "tau": 0.001,
    "alpha0": 1.0,
    "alpha_growth": 1.1,
    "beta_factor": 1000.0,
}
VOTE, MEAN, TREES, BAYES = (
    "forest (majority vote)",
    "forest (mean posterior)",
    "mean of its trees",
    "Bayes rule",
)
WEIGHTS = np.array([0.20, 0.33, 0.30, 0.15, 0.02])
MEANS = np.array([[2.0, 2.0], [6.0, 2.0], [4.0, 0.0], [8.0, 0.0], [5.0, 2.0]])
COVARIANCES = np.array(
    [
        [[3.0, 1.5], [1.5, 3.0]],
        [[3.0, -1.5], [-1.5, 3.0]],
        [[3.0, 0.0], [0.0, 3.0]],
        [[3.0, 0.0], [0.0, 3.0]],
        [[0.1, 0.0], [0.0, 0.1]],
    ]
)
_TEST_ROWS = 10_000
_TEST_SEED = 1_000_000  # apart from the seeds of the training streams
UNBOUNDED_BYTES = 1 << 40


def draw(n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows of the authors' mixture and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(WEIGHTS), n, p=WEIGHTS)
    roots = np.linalg.cholesky(COVARIANCES)
    X = MEANS[y] + np.einsum("nij,nj->ni", roots[y], rng.normal(size=(n, 2)))
    return X, y


def densities(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weight times density of each class at each row: the largest one is the Bayes rule's answer."""
    out = np.empty((len(X), len(WEIGHTS)))
    for k, (weight, mean, covariance) in enumerate(zip(WEIGHTS, MEANS, COVARIANCES)):
        off = X - mean
        square = np.einsum("ni,ij,nj->n", off, np.linalg.inv(covariance), off)
        norm = 2 * np.pi * np.sqrt(np.linalg.det(covariance))
        out[:, k] = weight * np.exp(-0.5 * square) / norm
    return out


def bayes_rate(step: float = 0.02) -> float:
    """The accuracy that no rule can beat: the integral of the largest weighted density, on a grid.

    >>> round(bayes_rate(0.05), 4)
    0.6665
    """
    x, y = np.arange(-9.0, 19.0, step), np.arange(-11.0, 13.0, step)
    total = 0.0
    for value in x.tolist():
        total += float(densities(np.column_stack([np.full(len(y), value), y])).max(axis=1).sum())
    return total * step * step


def votes_right(
    answers: NDArray[np.int64], truth: NDArray[np.int64], n_classes: int
) -> tuple[float, float]:
    """(accuracy of the majority vote, mean accuracy of the trees) from [trees, rows] answers.

    A tree without an answer has no vote and is wrong; ties go to the class seen first.

    >>> answers = np.array([[0, 1, -1], [0, 0, 1], [1, 1, 1]])
    >>> vote, mean = votes_right(answers, np.array([0, 1, 1]), 2)
    >>> vote, round(mean, 3)
    (1.0, 0.667)
    """
    votes = np.stack([(answers == k).sum(axis=0) for k in range(n_classes)])
    return float((votes.argmax(axis=0) == truth).mean()), float((answers == truth).mean())


def run(options: Options, watcher: Watcher) -> Figure:
    """Measure the figure on held-out rows of the same mixture."""
    from streamforest import ConsistentForestClassifier

    runs = options.runs or (2 if options.quick else 10)
    trees = options.trees or (20 if options.quick else 100)
    last = options.events or (2_000 if options.quick else 30_000)
    points = log_spaced(100, last, 6 if options.quick else 12)
    test_rows = 2_000 if options.quick else _TEST_ROWS

    measured: list[list[tuple[float, float, float]]] = []
    best_on_rows: list[float] = []
    for r in range(runs):
        X, y = draw(last, options.seed + r)
        test, truth_of = draw(test_rows, _TEST_SEED + options.seed + r)
        best_on_rows.append(float((densities(test).argmax(axis=1) == truth_of).mean()))
        model = ConsistentForestClassifier(
            n_trees=trees,
            **SETTINGS,
            max_fringe_bytes=UNBOUNDED_BYTES,
            n_jobs=options.n_jobs,
            seed=options.seed + r,
        )
        watcher.begin(f"Fig. 2, run {r + 1} of {runs}", last)
        measured.append([])
        done = 0
        for n in points:
            learn(model, X[done:n], y[done:n])
            done = n
            truth = class_indices(model, truth_of)
            vote, tree = votes_right(model.predict_trees(test), truth, len(model.classes_))
            measured[-1].append((vote, accuracy(model, test, truth_of), tree))
            watcher.update(n)

    x = [float(n) for n in points]
    curves = [
        Curve(name, x, values)
        for name, values in zip((VOTE, MEAN, TREES), transposed(measured), strict=True)
    ]
    panel = Panel(
        "Five Gaussian classes in the plane (the authors' mixture)",
        "training events",
        "accuracy on held-out events",
        curves,
        levels={BAYES: bayes_rate()},
    )
    forest = np.minimum(curves[0].runs, curves[1].runs)  # the lower of the two, at each point
    trees_alone = np.array(curves[2].runs)
    not_above = np.array(x)[forest.mean(axis=0) <= trees_alone.mean(axis=0)].tolist()
    best = float(np.mean(best_on_rows))
    below = {curve.name: round(best - curve.mean[-1], 4) for curve in curves}
    facts = {
        "above_trees_at_every_point": not not_above,
        "above_trees_at_every_point_of_every_run": bool((forest > trees_alone).all()),
        "bayes_rule_on_the_test_rows": round(best, 4),
        "below_the_bayes_rule_on_the_same_rows": below,
    }
    findings = [
        f"The forest is not above the mean of its trees at {not_above} events."
        if not_above
        else f"The forest is above the mean of its trees from {x[0]:,.0f} events on.",
        f"After {x[-1]:,.0f} events it is {below[VOTE]:.4f} below the Bayes rule on the same rows "
        f"(mean posterior: {below[MEAN]:.4f}), its trees {below[TREES]:.4f}.",
    ]
    return Figure(
        key="2",
        title="Fig. 2: a forest against its own trees",
        settings={"trees": trees, **SETTINGS, "runs": runs, "test_rows": test_rows},
        panels=[panel],
        facts=facts,
        findings=findings,
    )
