"""What happens to an NCM forest as a whole: how its votes are mixed, and what all trees forget."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import VOTE_UNIT
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.ncm.layout import view
from streamforest.kernels.ncm.row_memory import forget

TREES, MEANS, NEIGHBOURS = range(3)
"""The opinions of a forest, in the order of the votes."""

_PARTS = 4


def _blends() -> NDArray[np.float64]:
    """All ways to give three opinions quarters of the say."""
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
"""What `tally` counts since the last epoch."""

_BLEND_RATE = 0.005


@kernel
def _shares(
    votes: NDArray[np.int64],
    r: int,
    n_trees: int,
    blend: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """What a vote of each opinion counts; an opinion that is silent leaves its share to the trees."""
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
def blend_to(
    votes: NDArray[np.int64], n_trees: int, weights: NDArray[np.float64], out: NDArray[np.int64]
) -> None:
    """One score per row and class: the opinions by their shares.

    In whole units again: sums of integers do not depend on how many classes stand beside them.
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
    picks: NDArray[np.int64],
    n_trees: int,
    blends: NDArray[np.float64],
    step: int,
    right: NDArray[np.float64],
    lens_right: NDArray[np.float64],
    tally: NDArray[np.int64],
) -> None:
    """Note which blends and lenses had the class of each row that was learned, and whether the
    blend in use had.
    """
    classes = votes.shape[2]
    share = np.empty(3)
    for r in range(votes.shape[0]):
        if not op[r] & LEARN:
            continue
        tally[EVENTS] += 1
        for lens in range(lens_right.shape[0]):
            good = picks[r, lens] == y[r]
            lens_right[lens] += ((1.0 if good else 0.0) - lens_right[lens]) * _BLEND_RATE
        hit = False
        for s in range(blends.shape[0]):
            _shares(votes, r, n_trees, blends[s], share)
            best = -1
            most = 0.0
            for k in range(classes):
                mixed = _score(votes, r, k, share)
                if mixed > most:
                    most = mixed
                    best = k
            good = best == y[r]
            right[s] += ((1.0 if good else 0.0) - right[s]) * _BLEND_RATE
            if s == step:
                hit = good
        if not hit:
            tally[MISTAKES] += 1


@routine
def tell(y: NDArray[np.int64], op: NDArray[np.uint8], of_class: NDArray[np.int64]) -> int:
    """Count the rows that were learned by class; classes known now, if any of them is new."""
    known = 0
    for r in range(y.shape[0]):
        if op[r] & LEARN:
            of_class[y[r]] += 1
            known = max(known, y[r] + 1)
    return known


@routine
def tell_codes(
    x: NDArray[np.float64],
    op: NDArray[np.uint8],
    categorical: NDArray[np.uint8],
    codes: NDArray[np.int32],
) -> None:
    """Note the categories that were learned."""
    for r in range(x.shape[0]):
        if op[r] & LEARN:
            for j in range(min(x.shape[1], codes.shape[0])):
                if categorical[j] and x[r, j] >= codes[j]:
                    codes[j] = np.int32(x[r, j]) + 1


@routine
def forget_all(
    trees: NDArray[np.int64],
    slots: NDArray[np.int32],
    labels: NDArray[np.int32],
    numbers: NDArray[np.int64],
    bagged: int,
) -> None:
    """Rows that left the memory leave every tree."""
    for t in range(trees.shape[0]):
        forget(view(trees, t), slots, labels, numbers, bagged)
