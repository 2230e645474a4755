"""Fig. 2: the forest against its own trees and the Bayes rule, on a mixture of five Gaussians.

Section 5.1 of Denil et al. 2013: every tree is a consistent classifier by itself, yet the forest
gets near the Bayes rate with far fewer events. The paper's settings: 100 trees, λ = 1, m = 10, τ
= .001, α(d) = 1.1^d, β(d) = 1000·α(d), 10 runs. The paper's forest takes a majority vote of its
trees; averaging their posteriors is shown beside it, measured on the same forest.
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
_TEST_ROWS = 10_000
_TEST_SEED = 1_000_000  # apart from the seeds of the training streams
UNBOUNDED_BYTES = 1 << 40


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
    from streamforest.datasets import gaussians, gaussians_bayes_rate

    runs = options.runs or (2 if options.quick else 10)
    trees = options.trees or (20 if options.quick else 100)
    last = options.events or (2_000 if options.quick else 30_000)
    points = log_spaced(100, last, 6 if options.quick else 12)
    test_rows = 2_000 if options.quick else _TEST_ROWS

    measured: list[list[tuple[float, float, float]]] = []
    best_on_rows: list[float] = []
    for r in range(runs):
        stream = gaussians(last, seed=options.seed + r)
        test = gaussians(test_rows, seed=_TEST_SEED + options.seed + r)
        best_on_rows.append(float(test.bayes_rate or 0.0))
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
            learn(model, stream.X[done:n], stream.y[done:n])
            done = n
            truth = class_indices(model, test.y)
            vote, tree = votes_right(model.predict_trees(test.X), truth, len(model.classes_))
            measured[-1].append((vote, accuracy(model, test.X, test.y), tree))
            watcher.update(n)

    x = [float(n) for n in points]
    curves = [
        Curve(name, x, values)
        for name, values in zip((VOTE, MEAN, TREES), transposed(measured), strict=True)
    ]
    panel = Panel(
        "Five Gaussian classes in the plane",
        "training events",
        "accuracy on held-out events",
        curves,
        levels={BAYES: gaussians_bayes_rate()},
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
