"""Figures 4 to 14 and Tables 1 and 2 of Ristin 2016, on a set that can be had.

The paper's settings: 50 trees, µ = 10, 1024 assignments of sides (20 planes), √classes centroids, π = .05 by
quality; from 3 classes one by one to 50, or from 20 ten by ten to all. Its ILSVRC 2010 has 1,000 classes of
some 1,200 images; the sets here have fewer rows of a class: shares of the retrained forest can be compared,
accuracies cannot. Fig. 15 shows images and has no counterpart. Of Fig. 13 the rival MULTIpLE is left out, and
ridge regression stands in for its least-squares SVM, whose solution it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamforest.bench.incremental import baselines
from streamforest.bench.incremental.low_rank_metric import LowRankMetric
from streamforest.bench.incremental.protocol import (
    RETRAINED,
    Found,
    Point,
    Say,
    Settings,
    point,
    run_set,
)
from streamforest.bench.incremental.sheet import Sheet
from streamforest.bench.incremental.splits import ClassSet, per_class
from streamforest.bench.machine import require_scikit_learn

STRATEGIES = ("uls", "igt", "rust", "rtst")
_SMALL = 50  # classes of the paper's first experiments
_MU = (1, 5, 10, 20, 50)
_PI = (0.01, 0.05, 0.2, 0.5)
_SAMPLINGS = ("quality", "size", "uniform")
_ORDERS = 10


@dataclass(frozen=True)
class Asked:
    """What is run: a set, the paper's settings, and how many orders of the classes."""

    data: ClassSet
    settings: Settings
    orders: int
    say: Say

    @property
    def small(self) -> Settings:
        """From 3 classes one by one to 50, or to all there are."""
        return replace(self.settings, classes=min(_SMALL, self.data.classes), initial=3, chunk=1)

    def large(self, initial: int = 20) -> Settings:
        """From 20 classes ten by ten to all."""
        few = max(2, min(initial, self.data.classes // 2))
        return replace(self.settings, initial=few, chunk=min(10, max(1, self.data.classes // 5)))

    def found(self, settings: Settings) -> Found:
        """The protocol with these settings."""
        return run_set(self.data, settings, range(self.orders), self.say)

    def offline(self, settings: Settings, split: str, order: int, classes: int) -> Point:
        """A forest of all of these classes at once."""
        data = self.data.in_order(order).first(classes)
        self.say(f"{data.name}, order {order}: {split}, {classes} classes at once")
        forest = settings.forest("igt", split, len(data.y))
        forest.warm_up()
        begun = time.process_time()
        forest.fit_many(data.X, data.y)
        return point(forest, data, classes, time.process_time() - begun)

    def counts(self, *wanted: int) -> list[int]:
        """Those of these numbers of classes that the set has; all of its classes if it has fewer."""
        return sorted({min(n, self.data.classes) for n in wanted})


def _title(asked: Asked, figure: str, what: str) -> str:
    s = asked.settings
    return f"{asked.data.name}, {figure}: {what} ({s.trees} trees, µ {s.mu}, {asked.orders} orders)"


def figure_4(asked: Asked) -> Sheet:
    """Size of the sets of centroids."""
    sheet = Sheet(
        "4",
        _title(asked, "Fig. 4", "centroids of a node"),
        ("centroids", "classes", "accuracy", "test µs"),
    )
    for n in ("log", "sqrt", 0.2):
        for classes in asked.counts(50, 100, 200):
            settings = replace(asked.settings, n_centroids=n)
            got = [asked.offline(settings, "ncm", o, classes) for o in range(asked.orders)]
            sheet.add(
                centroids=str(n),
                classes=classes,
                accuracy=[p.accuracy for p in got],
                test_us=[p.test_us for p in got],
            )
    return sheet


def figure_5(asked: Asked) -> Sheet:
    """Rows of a leaf at least, NCM and SVM trees."""
    sheet = Sheet(
        "5",
        _title(asked, "Fig. 5", "µ"),
        ("split", "µ", "accuracy", "test µs", "training s"),
    )
    classes = min(_SMALL, asked.data.classes)
    for split in asked.settings.splits:
        for mu in _MU:
            settings = replace(asked.settings, mu=mu)
            got = [asked.offline(settings, split, o, classes) for o in range(asked.orders)]
            sheet.add(
                split=split,
                mu=mu,
                accuracy=[p.accuracy for p in got],
                test_us=[p.test_us for p in got],
                train_s=[p.train_s for p in got],
            )
    return sheet


def figure_6(asked: Asked) -> Sheet:
    """RUST from several numbers of initial classes."""
    at = asked.counts(30, 40, 50)
    heads = ("initial", *(f"at {n}" for n in at), "test µs")
    sheet = Sheet("6", _title(asked, "Fig. 6", "RUST, share of the retrained forest"), heads)
    for initial in (3, 5, 10, 20):
        if initial >= at[0]:
            continue
        settings = replace(
            asked.small, strategies=("rust",), splits=("ncm",), initial=initial, measured=tuple(at)
        )
        found = asked.found(settings)
        courses = found.of("rust", "ncm")
        sheet.add(
            initial=initial,
            **{f"at_{n}": [found.relative(c, n) for c in courses] for n in at},
            test_us=[c.last.test_us for c in courses],
        )
    return sheet


def figure_7(asked: Asked) -> Sheet:
    """How RTST draws nodes, and how many: crossed."""
    heads = ("nodes by", "π", "of retrained", "training time", "test µs")
    sheet = Sheet("7", _title(asked, "Fig. 7", "RTST"), heads)
    for sampling in _SAMPLINGS:
        for pi in _PI:
            settings = replace(
                asked.small, strategies=("rtst",), splits=("ncm",), node_sampling=sampling, pi=pi
            )
            found = asked.found(settings)
            courses = found.of("rtst", "ncm")
            sheet.add(
                sampling=sampling,
                pi=str(pi),
                relative=[found.relative(c) for c in courses],
                time=[found.time_ratio(c) for c in courses],
                test_us=[c.last.test_us for c in courses],
            )
    return sheet


def _strategies(sheet: Sheet, found: Found, at: Sequence[int]) -> Sheet:
    for split in found.settings.splits:
        for name in (RETRAINED, *found.settings.strategies):
            courses = found.of(name, split)
            base = name == RETRAINED
            sheet.add(
                split=split,
                strategy=name,
                **{f"at_{n}": [1.0 if base else found.relative(c, n) for c in courses] for n in at},
                accuracy=[c.last.accuracy for c in courses],
                time=[1.0 if base else found.time_ratio(c) for c in courses],
                test_us=[c.last.test_us for c in courses],
            )
    return sheet


def figures_8_and_9(asked: Asked) -> Sheet:
    """The strategies from 3 classes one by one."""
    at = asked.counts(10, 20, 30, 40, 50)
    heads = ("split", "strategy", *(f"at {n}" for n in at), "accuracy", "training time", "test µs")
    title = _title(asked, "Figs 8 and 9", "share of the retrained forest from 3 classes on")
    settings = replace(asked.small, strategies=STRATEGIES, measured=tuple(at))
    return _strategies(Sheet("8", title, heads), asked.found(settings), at)


def figure_10(asked: Asked) -> Sheet:
    """RUST over ten orders of the classes, however many are asked for elsewhere."""
    asked = replace(asked, orders=_ORDERS)
    heads = ("initial", "of retrained", "spread over mean", "training s", "test µs")
    sheet = Sheet("10", _title(asked, "Fig. 10", "RUST"), heads)
    for initial in (3, 10, 20):
        if initial >= min(_SMALL, asked.data.classes):
            continue
        settings = replace(asked.small, strategies=("rust",), splits=("ncm",), initial=initial)
        found = asked.found(settings)
        courses = found.of("rust", "ncm")
        relative = [found.relative(c) for c in courses]
        sheet.add(
            initial=initial,
            relative=relative,
            spread=float(np.std(relative) / np.mean(relative)),
            train_s=[c.last.train_s for c in courses],
            test_us=[c.last.test_us for c in courses],
        )
    return sheet


def figure_11(asked: Asked) -> Sheet:
    """RUST with batches of several sizes from 20 classes on."""
    heads = ("split", "batch", "of retrained", "training s", "test µs")
    sheet = Sheet("11", _title(asked, "Fig. 11", "RUST from 20 classes"), heads)
    last = min(100, asked.data.classes)
    for split in asked.settings.splits:
        for chunk in (1, 10, 20, 40):
            settings = replace(
                asked.settings,
                strategies=("rust",),
                splits=(split,),
                classes=last,
                initial=min(20, last // 2),
                chunk=chunk,
            )
            found = asked.found(settings)
            courses = found.of("rust", split)
            sheet.add(
                split=split,
                chunk=chunk,
                relative=[found.relative(c) for c in courses],
                train_s=[c.last.train_s for c in courses],
                test_us=[c.last.test_us for c in courses],
            )
    return sheet


def figure_12(asked: Asked) -> Sheet:
    """From 20 classes ten by ten to all: accuracy, time, test time (Table 2 too)."""
    heads = ("split", "strategy", "of retrained", "accuracy", "training time", "test µs")
    title = _title(asked, "Fig. 12 and Table 2", "all classes, ten by ten")
    settings = replace(asked.large(), strategies=STRATEGIES)
    return _strategies(Sheet("12", title, heads), asked.found(settings), [asked.data.classes])


def figure_13(asked: Asked) -> Sheet:
    """Ridge regression and RTST from 10 classes one by one."""
    require_scikit_learn()
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    heads = ("model", "classes", "accuracy", "of its retrained forest")
    sheet = Sheet("13", _title(asked, "Fig. 13", "ridge for the least-squares SVM"), heads)
    for classes in asked.counts(50, 100):
        got = []
        for order in range(asked.orders):
            data = asked.data.in_order(order).first(classes)
            ridge = make_pipeline(StandardScaler(), RidgeClassifier(alpha=10.0))
            got.append(per_class(ridge.fit(data.X, data.y).predict(data.X_test), data.y_test))
        sheet.add(model="ridge, all at once", classes=classes, accuracy=got, relative="")
        settings = replace(
            asked.settings,
            strategies=("rtst",),
            classes=classes,
            initial=min(10, classes // 2),
            chunk=1,
        )
        found = asked.found(settings)
        for split in settings.splits:
            base, courses = found.of(RETRAINED, split), found.of("rtst", split)
            sheet.add(
                model=f"{split} forest, all at once",
                classes=classes,
                accuracy=[c.last.accuracy for c in base],
                relative="",
            )
            sheet.add(
                model=f"{split} forest, RTST",
                classes=classes,
                accuracy=[c.last.accuracy for c in courses],
                relative=[found.relative(c) for c in courses],
            )
    return sheet


def figure_14(asked: Asked) -> Sheet:
    """Two numbers of columns: all, and a quarter of them by principal components."""
    heads = ("columns", "model", "accuracy", "of retrained", "training s")
    sheet = Sheet("14", _title(asked, "Fig. 14", "columns"), heads)
    whole = asked.data
    centred = whole.X - whole.X.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    few = axes[: max(2, whole.X.shape[1] // 4)].T
    reduced = replace(whole, X=whole.X @ few, X_test=whole.X_test @ few)
    for data in (reduced, whole):
        columns = data.X.shape[1]
        here = replace(asked, data=data)
        found = here.found(replace(here.large(10), strategies=STRATEGIES))
        for split in found.settings.splits:
            for name in (RETRAINED, *STRATEGIES):
                courses = found.of(name, split)
                base = name == RETRAINED
                sheet.add(
                    columns=columns,
                    model=f"{split} {name}",
                    accuracy=[c.last.accuracy for c in courses],
                    relative="" if base else [found.relative(c) for c in courses],
                    train_s=[c.last.train_s for c in courses],
                )
        for k in (None, 10):
            got = [_met(here, o, data.classes, k) for o in range(asked.orders)]
            name = "MET + NCM" if k is None else f"MET_{k} + NCM"
            sheet.add(columns=columns, model=name, accuracy=got, relative="", train_s="")
    return sheet


def _met(asked: Asked, order: int, classes: int, initial: int | None) -> float:
    data = asked.data.in_order(order).first(classes)
    asked.say(f"{data.name}, order {order}: MET, {classes} classes")
    model = LowRankMetric(seed=1).fit(data.X, data.y, initial)
    return per_class(model.predict(data.X_test), data.y_test)


def table_1(asked: Asked) -> Sheet:
    """Baselines of all classes at once, then MET_k and the strategies from k classes."""
    counts = asked.counts(50, asked.data.classes)
    heads = ("model", *(f"{n} classes" for n in counts), *(f"share at {n}" for n in counts))
    sheet = Sheet("table1", _title(asked, "Table 1", "baselines, then from k classes on"), heads)
    names = ("nearest class mean, standardised", "linear SVM", "kNN", "River AMF", "random forest")
    met: dict[int, list[float]] = {}
    rows: dict[str, dict[int, list[float]]] = {}
    for n in counts:
        for order in range(asked.orders):
            data = asked.data.in_order(order).first(n)
            for one in baselines.run(data, asked.settings.trees, (), names, asked.say):
                rows.setdefault(one.model, {}).setdefault(n, []).append(one.accuracy)
        met[n] = [_met(asked, o, n, None) for o in range(asked.orders)]
    rows["MET + NCM"] = met
    for name, reached in rows.items():
        sheet.add(
            model=name,
            **{f"at_{n}": reached.get(n, []) for n in counts},
            **{f"share_at_{n}": "" for n in counts},
        )
    for k in (10, 20):
        if k >= counts[0]:
            continue
        own = {n: [_met(asked, o, n, k) for o in range(asked.orders)] for n in counts}
        sheet.add(
            model=f"MET_{k} + NCM",
            **{f"at_{n}": own[n] for n in counts},
            **{f"share_at_{n}": [a / b for a, b in zip(own[n], met[n])] for n in counts},
        )
        settings = replace(asked.large(k), strategies=STRATEGIES, chunk=10, measured=tuple(counts))
        found = asked.found(settings)
        for split in settings.splits:
            for name in (RETRAINED, *STRATEGIES):
                if name == RETRAINED and k > 10:
                    continue
                courses = found.of(name, split)
                base = name == RETRAINED
                sheet.add(
                    model=f"{split} forest, all at once" if base else f"{split} {name}, k = {k}",
                    **{f"at_{n}": [c.at(n).accuracy for c in courses] for n in counts},
                    **{
                        f"share_at_{n}": "" if base else [found.relative(c, n) for c in courses]
                        for n in counts
                    },
                )
    return sheet


FIGURES: dict[str, Callable[[Asked], Sheet]] = {
    "4": figure_4,
    "5": figure_5,
    "6": figure_6,
    "7": figure_7,
    "8": figures_8_and_9,
    "10": figure_10,
    "11": figure_11,
    "12": figure_12,
    "13": figure_13,
    "14": figure_14,
    "table1": table_1,
}
"""By the key that `--paper` takes; 9 and Table 2 are in 8 and 12."""
