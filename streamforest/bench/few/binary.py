"""Experiment 2 of Rodner and Denzler 2011: a class of few rows against background, helped by another.

The paper has okapi and zebra (Fink and Ullman's mammals) and 300 background images of a web search. Here they
are classes of caltech101, deep features; its background is a web search too. The forest is grown on support
class and background; the new class's MAP shares then take the support class's place. (Rows of the new class
split the leaves that they fall into first, as on a stream: in the paper they do not.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.bench.denil.common import Curve, Figure, Panel, Watcher
from streamforest.bench.few import Options
from streamforest.bench.few.protocol import missing_data
from streamforest.bench.machine import require_scikit_learn
from streamforest.datasets import recorded

DATA = "caltech101"
BACKGROUND = "BACKGROUND_Google"
PAIRS = (("okapi", "llama"), ("llama", "okapi"), ("schooner", "ketch"), ("ketch", "schooner"))
"""New class and its support."""
ROWS = (1, 2, 4, 8, 16)
BACKGROUND_ROWS = 200
ALONE, OTHER, OURS = "ExtraTrees, new class alone", "support class in its place", "MAP"


MEASURES = ("recognition rate", "area under the ROC curve")


def _rates(score: NDArray[Any], positive: NDArray[np.bool_]) -> tuple[float, float]:
    """For the probability of the class against background: the mean rate of the two, and the area under the
    ROC curve, that is, how often a row of the class scores above one of the background.
    """
    up, down = score[positive], score[~positive]
    rate = 0.5 * (float((up > 0.5).mean()) + float((down <= 0.5).mean()))
    above = (up[:, None] > down[None]).mean() + 0.5 * (up[:, None] == down[None]).mean()
    return rate, float(above)


def _one(
    data: dict[str, NDArray[np.float64]], pair: tuple[str, str], rows: int, trees: int, seed: int
) -> dict[str, tuple[float, float]]:
    from sklearn.ensemble import ExtraTreesClassifier

    from streamforest import FewShotForestClassifier

    rng = np.random.default_rng([seed, rows])
    new, other, background = (
        data[name][rng.permutation(len(data[name]))] for name in (*pair, BACKGROUND)
    )
    X_test = np.concatenate([new[max(ROWS) :], background[BACKGROUND_ROWS:]])
    positive = np.arange(len(X_test)) < len(new) - max(ROWS)
    B = background[:BACKGROUND_ROWS]

    model = FewShotForestClassifier.paper(
        "rodner", n_trees=trees, level_rows=0, n_support=0, seed=seed
    )
    names = ["support"] * len(other) + ["background"] * len(B)
    model.fit_many(np.concatenate([other, B]), names)
    P = model.advance(X_test)
    out = {OTHER: _rates(P[:, 0], positive)}
    model.announce("new", ["support"])
    model.learn_many(new[:rows], ["new"] * rows)  # type: ignore[arg-type]
    P = model.advance(X_test)
    both = P[:, 1] + P[:, 2]  # the support class is no answer
    score = np.divide(P[:, 2], both, out=np.full(len(P), 0.5), where=both > 0)
    out[OURS] = _rates(score, positive)
    offline = ExtraTreesClassifier(trees, criterion="entropy", random_state=seed)
    offline.fit(np.concatenate([new[:rows], B]), [1] * rows + [0] * len(B))
    out[ALONE] = _rates(offline.predict_proba(X_test)[:, 1], positive)
    return out


def binary(options: Options, watcher: Watcher) -> Figure:
    """Experiment 2, for four pairs of classes."""
    title = "Experiment 2: a class against background, with one support class (Fig. 7)"
    if skipped := missing_data(DATA, "2", title):
        return skipped
    require_scikit_learn()
    stream = recorded(DATA)
    labels = np.asarray(stream.y)
    data = {name: stream.X[labels == name] for name in {BACKGROUND, *(n for p in PAIRS for n in p)}}
    runs = options.runs or (2 if options.quick else 10)
    trees = 10 * options.trees
    watcher.begin("experiment 2", runs * len(ROWS) * len(PAIRS))
    done = 0
    panels = []
    facts = {}
    x = [float(f) for f in ROWS]
    for pair in PAIRS:
        measured: dict[str, list[list[tuple[float, float]]]] = {ALONE: [], OTHER: [], OURS: []}
        for run in range(runs):
            points = []
            for rows in ROWS:
                points.append(_one(data, pair, rows, trees, options.seed + run))
                done += 1
                watcher.update(done)
            for way, of_it in measured.items():
                of_it.append([point[way] for point in points])
        for which, measure in enumerate(MEASURES):
            name = f"{pair[0]} from {pair[1]}, {measure}"
            curves = [
                Curve(way, x, [[point[which] for point in run] for run in of_it])
                for way, of_it in measured.items()
            ]
            panels.append(Panel(name, "rows of the new class", measure, curves))
            facts[name] = {
                way: [round(a - b, 4) for a, b in zip(curves[2].mean, curve.mean)]
                for way, curve in zip((ALONE, OTHER), curves)
            }
    findings = [
        f"{name}: MAP is ahead of the new class alone by "
        + ", ".join(f"{value:+.3f}" for value in of_it[ALONE])
        + f" at {', '.join(map(str, ROWS))} rows, and of the support class by "
        + ", ".join(f"{value:+.3f}" for value in of_it[OTHER])
        + "."
        for name, of_it in facts.items()
    ]
    settings = {"trees": trees, "runs": runs, "background_rows": BACKGROUND_ROWS}
    return Figure("2", title, settings, panels, facts, findings)
