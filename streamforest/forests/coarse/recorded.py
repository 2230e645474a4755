"""Coarse labels in a recorded set that an NCM forest learns at once (Ristin et al. 2015, section 4).

All rows are known when the first tree is grown, so a coarse row is estimated with all labelled rows, not only
with those before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from streamforest.errors import FeatureError, InputError
from streamforest.forests.coarse.taxonomy import hidden_class, refuse_hidden
from streamforest.forests.core.batch import length
from streamforest.forests.core.labels import as_list, plain_label

if TYPE_CHECKING:
    from streamforest.forests.coarse.levels import Levels
    from streamforest.forests.ncm.forest import NCMForestClassifier

_STACKED = 10.0  # times the posterior, for columns of unit variance (2015, section 5.2.1)


def prepare(forest: NCMForestClassifier, X: Any, y: Any, coarse: Any) -> tuple[Any, list[Any]]:
    """The rows that the fine forest learns, with their classes as told, estimated or hidden.

    Without a `coarse_method` a second forest learns the categories of all rows.
    """
    levels, n = forest._levels, length(X)
    labels = [None] * n if y is None else as_list(y, n)
    names = as_list(coarse, n, "coarse")
    told = _learn_pairs(levels, labels, names)
    only = np.array([label is None for label in labels], np.bool_) & (told >= 0)
    labels = [None if label is None else plain_label(label) for label in labels]
    if levels.method is None or levels.method == "stacked":
        second = levels._second(forest)
        levels.forest = second
        which = only if levels.method == "stacked" else told >= 0
        categories = [levels.taxonomy.categories.labels[g] for g in told[which].tolist()]
        if len(categories):
            second.fit_many(_rows(X, np.flatnonzero(which)), categories)  # type: ignore[attr-defined]
        found = [levels.taxonomy.categories.find(name) for name in second._labels.labels]
        levels.of_second = np.array(found, np.int64)
    if levels.hides:
        for r in np.flatnonzero(only).tolist():
            labels[r] = hidden_class(int(told[r]))
    elif levels.method != "stacked":
        _estimate(forest, X, labels, told, only)
    learned = np.array([r for r in range(n) if labels[r] is not None], np.int64)
    estimated = int(np.count_nonzero(only[learned])) if not levels.hides else 0
    levels.counts["coarse_rows"] += int(only.sum())
    levels.counts["estimated"] += estimated
    levels.n_elsewhere += n - len(learned)
    rows = _rows(X, learned)
    if levels.method == "stacked":
        rows = _augmented(levels, forest, rows)
    return rows, [labels[r] for r in learned.tolist()]


def _learn_pairs(levels: Levels, labels: list[Any], names: list[Any]) -> NDArray[np.int64]:
    """The category of each row; pairs enter the taxonomy, or none of them if one contradicts it."""
    taxonomy = levels.taxonomy
    before = len(taxonomy), len(taxonomy.categories)
    told = np.full(len(labels), -1)
    try:
        for r, (label, name) in enumerate(zip(labels, names)):
            if levels.hides and label is not None:
                refuse_hidden(label)
            if label is None:
                told[r] = -1 if name is None else taxonomy.categories.learn(name)
            elif name is None:
                told[r] = taxonomy.find(label)
            else:
                told[r] = taxonomy.learn(label, name)
    except InputError as error:
        taxonomy.truncate(*before)
        raise type(error)(f"row {r}: {error}") from None
    levels.answers.unseen = np.zeros(len(taxonomy.categories))
    return told


def _rows(X: Any, rows: NDArray[np.int64]) -> Any:
    if isinstance(X, pd.DataFrame):
        return X.iloc[rows]
    if isinstance(X, np.ndarray):
        return X[rows]
    return [X[r] for r in rows.tolist()]


def _estimate(
    forest: NCMForestClassifier,
    X: Any,
    labels: list[Any],
    told: NDArray[np.int64],
    only: NDArray[np.bool_],
) -> None:
    """Give each coarse row a class of its category, where one is known."""
    levels = forest._levels
    fine = np.array([label is not None for label in labels], np.bool_)
    if not fine.any() or not only.any():
        return
    nearest = levels.method in ("nn", "nn-h")
    if forest.refine == "own" and not nearest:
        small = forest.clone()
        at = np.flatnonzero(fine)
        small.fit_many(_rows(X, at), [labels[r] for r in at.tolist()])
        P, classes = small.advance(_rows(X, np.flatnonzero(only))), small.classes_
        category = levels.taxonomy.of_classes(classes)
        for p, r in zip(P, np.flatnonzero(only).tolist()):
            mine = np.flatnonzero(category == told[r])
            if len(mine):
                labels[r] = classes[int(mine[p[mine].argmax()])]
        return
    forest._features.begin()
    rows, _ = forest._encode(X, np.ones(len(labels), np.bool_))
    forest._features.rollback()
    for g in np.unique(told[only]).tolist():
        asked, known = (np.flatnonzero(mask & (told == g)) for mask in (only, fine))
        if len(known) == 0:
            continue
        names = [labels[r] for r in known.tolist()]
        points = rows[known]
        if not nearest and forest.refine == "mean":
            distinct = list(dict.fromkeys(names))
            of = np.array([distinct.index(name) for name in names])
            points = np.array([np.nanmean(points[of == k], axis=0) for k in range(len(distinct))])
            names = distinct
        for r in asked.tolist():
            gaps = np.nan_to_num(points - rows[r])
            labels[r] = names[int((gaps * gaps).sum(axis=1).argmin())]


# ---- stacked


def stacked(levels: Levels, fine: Any, X: Any, learns: NDArray[np.bool_]) -> Any:
    """Rows to be predicted, with the first forest's posteriors beside their features."""
    if learns.any():
        raise InputError(
            "coarse_method='stacked' learns recorded sets only: use fit_many, or coarse_method=None"
        )
    return _augmented(levels, fine, X)


def _augmented(levels: Levels, fine: Any, X: Any) -> NDArray[np.float64]:
    """Features and 10·P(category), times the mean deviation of the columns."""
    if isinstance(X, list) and X and isinstance(X[0], dict):
        X = np.array([[x[j] for j in range(len(x))] for x in X], np.float64)
    if not isinstance(X, np.ndarray):
        raise FeatureError("coarse_method='stacked' takes 2-D arrays only")
    second = levels.forest
    if second is None or not second._labels.labels:
        return X
    P = second.advance(X)
    scale = float(np.sqrt(second._columns.arrays.stats[2, : second._columns.n].mean()))  # type: ignore[attr-defined]
    return np.hstack([X, _STACKED * scale * P])
