"""Which metrics and experts suit a recorded set: forests judged by a holdout, rows they were not grown from.

On a stream every event judges the forest before it is learned; a set that is learned at once has to be cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from streamforest.forests.core.batch import INTO_MEMORY

if TYPE_CHECKING:
    from streamforest.forests.ncm.forest import NCMForestClassifier

_SHARE = 8  # one over the share of rows in the holdout
_MAX_ROWS = 2_000  # of it
_FEWEST = 512  # rows of a set that is cut
_TREES = 25  # at most: with few trees the other experts seem better than they are


def judge(forest: NCMForestClassifier, X: Any, y: list[Any]) -> None:
    """Let the forest know how metrics and blends of experts do on rows like these.

    The usual lead of class means and the usual distance of neighbours are known after this, too.
    """
    metrics = forest._retraining.metrics
    kinds = forest._retraining.metric_kinds()
    choices = len(kinds) > 1 or forest.mean_vote or forest.neighbours > 0
    if not choices or len(y) < _FEWEST or forest.n_trees < 2:
        return
    rng = np.random.default_rng(int(forest._memory.seed))
    order = rng.permutation(len(y))
    few = min(len(y) // _SHARE, _MAX_ROWS)
    held_out, growing = order[:few], np.sort(order[few:])
    asked, labels = _rows(X, held_out), [y[k] for k in held_out.tolist()]
    training = _rows(X, growing), [y[k] for k in growing.tolist()]
    if len(kinds) > 1:
        one_each = _small(forest, len(kinds), training)
        answers = one_each.predict_trees(asked)
        known = np.array([*one_each._labels.labels, None], dtype=object)  # -1: no answer
        wrong = known[answers] != np.array(labels, dtype=object)
        metrics.error[kinds] = wrong.mean(axis=1)
    small = _small(forest, min(_TREES, forest.n_trees), training, metrics.error)
    small.advance(asked, labels)
    forest._blend.adopt(small._blend)
    forest._means.arrays.lead[:] = small._means.arrays.lead


def _small(
    forest: NCMForestClassifier,
    trees: int,
    rows: tuple[Any, list[Any]],
    metric_error: NDArray[np.float64] | None = None,
) -> NCMForestClassifier:
    """A forest of few trees from these rows, which get metrics by the errors of these."""
    seed = int(forest._memory.seed) % (1 << 32)
    small = forest.clone(
        {"n_trees": trees, "strategy": "igt", "bagging": None, "background": False, "seed": seed}
    )
    small._learn_set(*rows, INTO_MEMORY)
    if metric_error is not None:
        small._retraining.metrics.error[:] = metric_error
    small._grow_all()
    return small


def _rows(X: Any, rows: NDArray[np.int64]) -> Any:
    """These rows of whatever was given."""
    if isinstance(X, pd.DataFrame):
        return X.iloc[rows]
    if isinstance(X, Sequence):
        return [X[k] for k in rows.tolist()]
    return np.asarray(X)[rows]
