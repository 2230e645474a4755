"""Which metrics and opinions suit a recorded set: forests judged by rows they were not grown from.

On a stream every event judges before it is learned; a set that is taken in at once has to be cut for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

if TYPE_CHECKING:
    from streamforest.forests.ncm.forest import NCMForestClassifier

_SHARE = 8  # one over the share of rows that judge
_MOST = 2_000  # of them
_FEWEST = 512  # rows that are worth a trial
_TREES = 25  # at most: with few, the opinions beside the trees seem better than they are


def judge(forest: NCMForestClassifier, X: Any, y: list[Any]) -> None:
    """Let the forest know how metrics, lenses and blends of opinions do on rows like these.

    What is usual (leads of class means, distances of neighbours) is known after this, too.
    """
    kinds = forest._rounds.kinds(forest)
    choices = len(kinds) > 1 or forest.mean_vote or forest.neighbours > 0
    if not choices or len(y) < _FEWEST or forest.n_trees < 2:
        return
    rng = np.random.default_rng(int(forest._memory_seed))
    order = rng.permutation(len(y))
    few = min(len(y) // _SHARE, _MOST)
    judging, growing = order[:few], np.sort(order[few:])
    asked, labels = _rows(X, judging), [y[k] for k in judging.tolist()]
    grown_from = _rows(X, growing), [y[k] for k in growing.tolist()]
    if len(kinds) > 1:
        one_each = _small(forest, len(kinds), grown_from)
        answers = one_each.predict_trees(asked)
        known = np.array([*one_each._labels.labels, None], dtype=object)  # -1: no answer
        wrong = known[answers] != np.array(labels, dtype=object)
        forest._rounds.metric_error[kinds] = wrong.mean(axis=1)
    small = _small(forest, min(_TREES, forest.n_trees), grown_from, forest._rounds.metric_error)
    small.advance(asked, labels)
    forest._blend_right[:] = small._blend_right
    forest._lens_right[:] = small._lens_right
    forest._means.gap[:] = small._means.gap
    forest._usual[:] = small._usual


def _small(
    forest: NCMForestClassifier,
    trees: int,
    rows: tuple[Any, list[Any]],
    metric_error: NDArray[np.float64] | None = None,
) -> NCMForestClassifier:
    """A forest of few trees from these rows, whose metrics are spread by their errors."""
    seed = int(forest._memory_seed) % (1 << 32)
    small = forest.clone(
        {"n_trees": trees, "strategy": "igt", "bagging": None, "background": False, "seed": seed}
    )
    small._take_in(*rows, trees=False)
    if metric_error is not None:
        small._rounds.metric_error[:] = metric_error
    small._rounds.plant(small)
    small._settle_blend()
    return small


def _rows(X: Any, rows: NDArray[np.int64]) -> Any:
    """These rows of whatever was given."""
    if isinstance(X, pd.DataFrame):
        return X.iloc[rows]
    if isinstance(X, Sequence):
        return [X[k] for k in rows.tolist()]
    return np.asarray(X)[rows]
