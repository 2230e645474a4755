"""How the votes of the three experts of an NCM forest are blended, and how blends are judged."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import VOTE_UNIT
from streamforest.kernels.core.array_table import array
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.ncm.layout import MEANS, NEIGHBOURS, TARGETS, TREES

_PARTS = 4


def _blends() -> NDArray[np.float64]:
    """All ways to share four quarters among three experts."""
    return np.array(
        [
            ((_PARTS - a - b) / _PARTS, a / _PARTS, b / _PARTS)
            for a in range(_PARTS + 1)
            for b in range(_PARTS + 1 - a)
        ]
    )


BLENDS: NDArray[np.float64] = _blends()
BLENDS.flags.writeable = False

EVENTS, MISTAKES = range(2)
"""What `tally` counts."""

_RATE = 0.005  # of an event, in the running shares


class Blend(NamedTuple):
    """How the experts do."""

    # running share of events that each blend got right, and the class means by each shrunk covariance
    blend_correct: Annotated[NDArray[np.float64], array(np.float64, len(BLENDS))]
    metric_correct: Annotated[NDArray[np.float64], array(np.float64, TARGETS)]
    # squared distance of the nearest row of a leaf, on average, for each distance of `neighbours`
    usual: Annotated[NDArray[np.float64], array(np.float64, 2)]
    # EVENTS and MISTAKES since the last epoch
    tally: Annotated[NDArray[np.int64], array(np.int64, 2)]


@kernel
def _shares(
    votes: NDArray[np.int64],
    r: int,
    n_trees: int,
    blend: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """The weight of a vote of each expert. Where the neighbours have no answer, the trees get their share."""
    total = 0.0
    for k in range(votes.shape[2]):
        total += votes[r, NEIGHBOURS, k]
    out[TREES] = blend[TREES] / n_trees
    out[MEANS] = blend[MEANS]
    out[NEIGHBOURS] = 0.0
    if total > 0.0:
        out[NEIGHBOURS] = blend[NEIGHBOURS] * VOTE_UNIT / total
    else:
        out[TREES] += blend[NEIGHBOURS] / n_trees


@kernel
def _score(votes: NDArray[np.int64], r: int, k: int, share: NDArray[np.float64]) -> float:
    mixed = share[TREES] * votes[r, TREES, k] + share[MEANS] * votes[r, MEANS, k]
    return float(np.rint(mixed + share[NEIGHBOURS] * votes[r, NEIGHBOURS, k]))


@routine
def blend_votes(
    votes: NDArray[np.int64], n_trees: int, weights: NDArray[np.float64], out: NDArray[np.int64]
) -> None:
    """One score per row and class: the experts by their weights.

    Scores are integers, so that later sums do not depend on the number of classes.
    """
    share = np.empty(3)
    for r in range(votes.shape[0]):
        _shares(votes, r, n_trees, weights, share)
        for k in range(votes.shape[2]):
            out[r, k] = np.int64(_score(votes, r, k, share))


@routine
def judge(
    votes: NDArray[np.int64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    best_of_means: NDArray[np.int64],
    n_trees: int,
    blends: NDArray[np.float64],
    active: int,
    state: Blend,
) -> None:
    """Note which blends and which shrunk covariances got each learned row right, and whether the
    `active` blend did.
    """
    right, metric_right, tally = state.blend_correct, state.metric_correct, state.tally
    classes = votes.shape[2]
    share = np.empty(3)
    for r in range(votes.shape[0]):
        if not op[r] & LEARN:
            continue
        tally[EVENTS] += 1
        for target in range(TARGETS):
            good = best_of_means[r, target] == y[r]
            metric_right[target] += ((1.0 if good else 0.0) - metric_right[target]) * _RATE
        hit = False
        for s in range(blends.shape[0]):
            _shares(votes, r, n_trees, blends[s], share)
            best = -1
            highest = 0.0
            for k in range(classes):
                mixed = _score(votes, r, k, share)
                if mixed > highest:
                    highest = mixed
                    best = k
            good = best == y[r]
            right[s] += ((1.0 if good else 0.0) - right[s]) * _RATE
            if s == active:
                hit = good
        if not hit:
            tally[MISTAKES] += 1


@routine
def count_classes(y: NDArray[np.int64], op: NDArray[np.uint8], of_class: NDArray[np.int64]) -> int:
    """Count the learned rows by class; returns how many classes they show that there are."""
    known = 0
    for r in range(y.shape[0]):
        if op[r] & LEARN:
            of_class[y[r]] += 1
            known = max(known, y[r] + 1)
    return known


@routine
def count_categories(
    x: NDArray[np.float64],
    op: NDArray[np.uint8],
    categorical: NDArray[np.uint8],
    categories: NDArray[np.int32],
) -> None:
    """Count the categories of each feature that were learned."""
    for r in range(x.shape[0]):
        if op[r] & LEARN:
            for j in range(min(x.shape[1], categories.shape[0])):
                if categorical[j] and x[r, j] >= categories[j]:
                    categories[j] = np.int32(x[r, j]) + 1
