"""What coarse rows are worth to the forests as they are: on a stream, and for classes never seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamforest.bench.coarse.methods import FINE_ONLY, Measured, Say, Settings
from streamforest.bench.coarse.splits import LevelSet, load
from streamforest.forests.core import registry
from streamforest.forests.ncm.forest import NCMForestClassifier

WITH = "with coarse rows"


def forests(name: str, settings: Settings, say: Say, kinds: tuple[str, ...]) -> Measured:
    """Each forest on the rows in a random order, with and without those that have only a category."""
    out = Measured("forests on a stream")
    for seed in range(settings.seeds):
        data = load(name, seed)
        for share in (0.1, 0.5):
            rows, labels, categories = data.part(share, 0.5, seed)
            for kind in kinds:
                cls: Any = registry.get(kind).load()
                for what in (FINE_ONLY, WITH):
                    say(f"{name}: seed {seed}, {share} fine, {kind} {what}")
                    model = cls(seed=seed)
                    if what == FINE_ONLY:
                        told = [r for r, label in enumerate(labels) if label is not None]
                        model.learn_many(data.X[rows[told]], [labels[r] for r in told])
                        P = model.advance(data.X[data.test])
                        upper = np.nan
                    else:
                        model.learn_many(data.X[rows], labels, coarse=categories)
                        said = model.answers(data.X[data.test])
                        P = said.posteriors
                        best = np.array(model.categories_)[said.coarse.argmax(axis=1)]
                        upper = float((best == data.category[data.test]).mean())
                    answers = np.array(model.classes_)[P.argmax(axis=1)]
                    right = float((answers == data.y[data.test]).mean())
                    out.add(f"{kind} {what}", f"{share}", right, upper)
    return out


def unknown_classes(name: str, settings: Settings, say: Say) -> Measured:
    """Half of each category's classes are never seen: AUROC of novelty, and how often `novel_in` is right."""
    out = Measured("unknown classes of known categories")
    for seed in range(settings.seeds):
        say(f"{name}: seed {seed}, unknown classes")
        data = load(name, seed)
        seen = _half(data, seed)
        rows = np.concatenate([data.train[k] for k in np.flatnonzero(seen)])
        rows = np.random.default_rng([seed, 2]).permutation(rows)
        model = NCMForestClassifier(seed=seed)
        model.learn_many(data.X[rows], data.y[rows].tolist(), coarse=data.category[rows].tolist())
        told = model.answers(data.X[data.test])
        assert told.novelty is not None
        assert told.novel_in is not None
        new = ~seen[data.y[data.test]]
        best = np.array(model.categories_)[told.novel_in]
        right = float((best == data.category[data.test])[new].mean())
        out.add("unknown classes", "", _auroc(told.novelty, new), right)
    return out


def _half(data: LevelSet, seed: int) -> Any:
    """Half of the classes of each category; a category of one class is known."""
    rng = np.random.default_rng([seed, 3])
    seen = np.zeros(int(data.y.max()) + 1, np.bool_)
    of_class = np.array([data.category[data.y == k][0] for k in range(len(seen))])
    for g in np.unique(of_class):
        classes = rng.permutation(np.flatnonzero(of_class == g))
        seen[classes[: -(-len(classes) // 2)]] = True
    return seen


def _auroc(score: Any, positive: Any) -> float:
    """The chance that a new row scores higher than a known one; ties count half."""
    order = np.argsort(score, kind="stable")
    rank = np.empty(len(score))
    rank[order] = np.arange(1, len(score) + 1)
    for value in np.unique(score):
        same = score == value
        rank[same] = rank[same].mean()
    n = int(positive.sum())
    rest = len(score) - n
    return float((rank[positive].sum() - n * (n + 1) / 2) / (n * rest))
