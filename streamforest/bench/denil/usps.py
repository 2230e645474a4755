"""Fig. 3: USPS, accuracy against the amount of training data, online forests against offline.

Section 5.2 of Denil et al. 2013. Ours: 100 trees, λ = 10, m = 10, τ = .1, α(d) = 10·1.00001^d,
β(d) = 10⁴·α(d). Saffari et al. 2009: 10 features and 10 thresholds a leaf, a gain of .1 and 50
samples to split. The caption says 10 passes and the text 15: ours is shown after both, on the
same forest, the rival after 15. The offline forest is scikit-learn's, with 100 trees.
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
    learn,
    log_spaced,
    transposed,
)
from streamforest.bench.denil.mixture import UNBOUNDED_BYTES
from streamforest.bench.machine import require_scikit_learn

SETTINGS: dict[str, Any] = {
    "lam": 10.0,
    "n_splits": 10,
    "tau": 0.1,
    "alpha0": 10.0,
    "alpha_growth": 1.00001,
    "beta_factor": 10_000.0,
}
RIVAL: dict[str, Any] = {
    "n_features": 10,
    "n_thresholds": 10,
    "min_gain": 0.1,
    "min_samples": 50,
}
TITLE = "Fig. 3: USPS, online against offline"


def orders(n: int, passes: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """The order of the rows in each pass; every pass is shuffled again."""
    return [rng.permutation(n) for _ in range(passes)]


def run(options: Options, watcher: Watcher) -> Figure:
    """Measure the figure on the official test rows, or say why USPS is unavailable."""
    from streamforest import ConsistentForestClassifier, OnlineForestClassifier
    from streamforest.datasets import recorded, unavailable

    if reason := unavailable("usps"):
        return Figure(key="3", title=TITLE, skipped=reason)
    require_scikit_learn()
    from sklearn.ensemble import RandomForestClassifier

    train, test = recorded("usps").split()
    runs = options.runs or (2 if options.quick else 3)
    trees = options.trees or (10 if options.quick else 100)
    first, second = (2, 3) if options.quick else (10, 15)
    last = min(len(train), options.events or (500 if options.quick else len(train)))
    points = log_spaced(100, last, 3 if options.quick else 7)
    names = (
        f"ours, {first} passes",
        f"ours, {second} passes",
        f"Saffari et al., {second} passes",
        "random forest, offline",
    )

    measured: list[list[tuple[float, ...]]] = []
    for r in range(runs):
        rng = np.random.default_rng([options.seed, r])
        chosen = rng.permutation(len(train))
        measured.append([])
        for n in points:
            watcher.begin(f"Fig. 3, run {r + 1} of {runs}, {n:,} rows", n * second)
            X, y = train.X[chosen[:n]], train.y[chosen[:n]]
            common: dict[str, Any] = {
                "n_trees": trees,
                "max_fringe_bytes": UNBOUNDED_BYTES,
                "n_jobs": options.n_jobs,
                "seed": options.seed + r,
            }
            ours = ConsistentForestClassifier(**SETTINGS, **common)
            rival = OnlineForestClassifier(**RIVAL, **common)
            after_first = 0.0
            for p, order in enumerate(orders(n, second, rng), start=1):
                learn(ours, X[order], y[order])
                learn(rival, X[order], y[order])
                if p == first:
                    after_first = accuracy(ours, test.X, test.y)
                watcher.update(n * p)
            offline = RandomForestClassifier(trees, random_state=options.seed + r)
            measured[-1].append(
                (
                    after_first,
                    accuracy(ours, test.X, test.y),
                    accuracy(rival, test.X, test.y),
                    float(offline.fit(X, y).score(test.X, test.y)),
                )
            )

    x = [float(n) for n in points]
    curves = [
        Curve(name, x, values) for name, values in zip(names, transposed(measured), strict=True)
    ]
    ends = [curve.mean[-1] for curve in curves]
    return Figure(
        key="3",
        title=TITLE,
        settings={
            "trees": trees,
            "ours": SETTINGS,
            "rival": RIVAL,
            "passes": [first, second],
            "runs": runs,
            "test_rows": len(test),
        },
        panels=[Panel("USPS digits", "training rows", "accuracy on the test rows", curves)],
        facts={"at_the_end": {curve.name: round(curve.mean[-1], 4) for curve in curves}},
        findings=[
            f"With {x[-1]:,.0f} rows ours is {ends[1] - ends[3]:+.3f} against the offline forest "
            f"and {ends[1] - ends[2]:+.3f} against Saffari's."
        ],
    )
