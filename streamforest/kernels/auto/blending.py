"""One answer of three: stream forest and NCM forest are blended, and the recent neighbours with both."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.operations import LEARN

VOICES = 3
SHARES: NDArray[np.float64] = np.array([0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0])
"""What the second of two may have of the say."""
SHARES.flags.writeable = False
_UNIT = float(1 << 32)


@kernel
def _first_best(votes: NDArray[np.int64]) -> int:
    """The class with the most votes, the first of equals; -1 without any."""
    best, most = -1, 0
    for k in range(votes.shape[0]):
        if votes[k] > most:
            best, most = k, votes[k]
    return best


@kernel
def _unit(votes: NDArray[np.int64]) -> float:
    """What a vote counts, so that all of them are one unit."""
    total = 0
    for k in range(votes.shape[0]):
        total += votes[k]
    return _UNIT / max(total, 1)


@kernel
def _mix(
    one: NDArray[np.int64],
    other: NDArray[np.int64],
    share: float,
    out: NDArray[np.int64],
) -> None:
    """In whole units: sums of integers do not depend on how many classes stand beside them."""
    own, others = (1.0 - share) * _unit(one), share * _unit(other)
    for k in range(out.shape[0]):
        out[k] = np.int64(np.rint(own * one[k] + others * other[k]))


@kernel
def _judge(
    one: NDArray[np.int64], other: NDArray[np.int64], y: int, hits: NDArray[np.int64]
) -> None:
    """Note which shares would have had the class."""
    best = _first_best(one)
    if best == _first_best(other):  # then it is the answer of every blend
        if best == y:
            for s in range(hits.shape[0]):
                hits[s] += 1
        return
    own, others = _unit(one), _unit(other)
    for s in range(hits.shape[0]):
        best, most = -1, 0.0
        for k in range(one.shape[0]):
            mixed = (1.0 - SHARES[s]) * own * one[k] + SHARES[s] * others * other[k]
            if mixed > most:
                best, most = k, mixed
        if best == y:
            hits[s] += 1


@routine
def blend(
    votes: NDArray[np.int64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    share: NDArray[np.float64],
    hits: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """One score per row and class of votes [rows, VOICES, classes]; hits of learned rows are counted.

    `share[0]` is the NCM forest's in the two forests, `share[1]` the recent neighbours' in all.
    """
    forests = np.empty(votes.shape[2], np.int64)
    for r in range(votes.shape[0]):
        _mix(votes[r, 0], votes[r, 1], share[0], forests)
        _mix(forests, votes[r, 2], share[1], out[r])
        if op[r] & LEARN:
            _judge(votes[r, 0], votes[r, 1], y[r], hits[0])
            _judge(forests, votes[r, 2], y[r], hits[1])
