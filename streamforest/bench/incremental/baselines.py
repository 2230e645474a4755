"""Our forests with their defaults beside other models, all trained on all classes at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from streamforest import NCMForestClassifier
from streamforest.bench.incremental.low_rank_metric import LowRankMetric
from streamforest.bench.incremental.protocol import Say
from streamforest.bench.incremental.splits import ClassSet, Floats, Ints, per_class
from streamforest.bench.machine import require_scikit_learn

_AMF_ROWS = 3_000  # learned by River's AMF, which takes milliseconds a row
_PASSES = 30

Model = Callable[[Floats, Ints, Floats], tuple[Ints, float, float]]
"""(training rows, classes, test rows) -> (answers, CPU seconds of training, of testing)."""


@dataclass(frozen=True)
class Baseline:
    """What a model reached."""

    model: str
    accuracy: float
    train_s: float
    test_us: float

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return asdict(self)


def _timed(
    fit: Callable[[Floats, Ints], object], ask: Callable[[Floats], Any]
) -> Callable[[Floats, Ints, Floats], tuple[Ints, float, float]]:
    def run(X: Floats, y: Ints, test: Floats) -> tuple[Ints, float, float]:
        begun = time.process_time()
        fit(X, y)
        fitted = time.process_time()
        answers = np.asarray(ask(test))
        return answers, fitted - begun, time.process_time() - fitted

    return run


def _sklearn(model: Any) -> Model:
    return _timed(model.fit, model.predict)


def _ours(trees: int, split: str, rows: int) -> Model:
    forest = NCMForestClassifier(n_trees=trees, split=split, memory=max(2, rows), seed=1)
    return _timed(
        forest.fit_many,
        lambda X: np.array(forest.classes_)[forest.advance(X).argmax(axis=1)],
    )


def _mondrian(trees: int) -> Model:
    from river.forest import AMFClassifier

    model: Any = AMFClassifier(n_estimators=trees, seed=1)

    def fit(X: Floats, y: Ints) -> None:
        chosen = np.random.default_rng(0).permutation(len(y))[:_AMF_ROWS]
        for row, label in zip(X[chosen].tolist(), y[chosen].tolist()):
            model.learn_one(dict(enumerate(row)), label)

    def ask(X: Floats) -> list[Any]:
        return [model.predict_one(dict(enumerate(row))) for row in X.tolist()]

    return _timed(fit, ask)


def models(trees: int, rows: int, splits: tuple[str, ...]) -> dict[str, Model]:
    """All models by the names of the table, ours first."""
    require_scikit_learn()
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
    from sklearn.linear_model import SGDClassifier
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    names = {"ncm": "NCM forest", "svm": "SVM forest"}
    ours = {f"{names[split]}, {trees} trees": _ours(trees, split, rows) for split in splits}
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
    svm = SGDClassifier(loss="hinge", average=True, random_state=1, n_jobs=1)
    return ours | {
        "nearest class mean, raw": _sklearn(NearestCentroid()),
        "nearest class mean, standardised": _sklearn(
            make_pipeline(StandardScaler(), NearestCentroid())
        ),
        "nearest class mean, within-class metric (LDA)": _sklearn(lda),
        "MET + NCM": _metric(None),
        "MET_10 + NCM (metric of 10 classes)": _metric(10),
        "MET_20 + NCM (metric of 20 classes)": _metric(20),
        "kNN, 5 by distance": _sklearn(
            make_pipeline(StandardScaler(), KNeighborsClassifier(5, weights="distance"))
        ),
        "linear SVM": _sklearn(make_pipeline(StandardScaler(), svm)),
        "random forest, 100 trees": _sklearn(RandomForestClassifier(100, random_state=1)),
        "ExtraTrees, 100 trees": _sklearn(ExtraTreesClassifier(100, random_state=1)),
        f"River AMF, {trees} trees, at most {_AMF_ROWS:,} rows": _mondrian(trees),
    }


def _metric(initial: int | None) -> Model:
    model = LowRankMetric(passes=_PASSES, seed=1)
    return _timed(lambda X, y: model.fit(X, y, initial), model.predict)


def run(
    data: ClassSet,
    trees: int,
    splits: tuple[str, ...],
    only: tuple[str, ...] = (),
    say: Say = lambda text: None,
) -> list[Baseline]:
    """Every model on all classes; `only` those whose name contains one of these words."""
    out = []
    for name, model in models(trees, len(data.y), splits).items():
        if only and not any(word.lower() in name.lower() for word in only):
            continue
        say(f"{data.name}: {name}")
        answers, train, test = model(data.X, data.y, data.X_test)
        reached = per_class(answers, data.y_test)
        out.append(Baseline(name, reached, train, 1e6 * test / len(data.y_test)))
    return out


def print_baselines(console: Console, data: ClassSet, found: list[Baseline]) -> None:
    """One table a set."""
    title = f"{data.name}: all {data.classes} classes at once, {len(data.y):,} rows"
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    for head in ("accuracy per class", "training s", "test µs/event"):
        table.add_column(head, justify="right")
    for one in found:
        table.add_row(one.model, f"{one.accuracy:.4f}", f"{one.train_s:.1f}", f"{one.test_us:,.0f}")
    console.print(table)
