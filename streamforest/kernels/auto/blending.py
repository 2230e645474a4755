"""One answer of three: stream forest and NCM forest are blended, young classes get their lift, and the recent
neighbours are blended with all that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.operations import LEARN

VOICES = 3
SHARES: NDArray[np.float64] = np.array([0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0])
"""What the second of two may have of the say."""
SHARES.flags.writeable = False
AGES: NDArray[np.int64] = np.array([5, 20, 80])
"""Rows of a class below which it is of the first, second and third age; from the last on it is grown up."""
AGES.flags.writeable = False
LIFTS: NDArray[np.float64] = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
"""By what the votes of classes of an age may be multiplied."""
LIFTS.flags.writeable = False
GROWN_UP = 80
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


@kernel
def _age(rows: int) -> int:
    """The age of a class with so many rows; len(AGES) is grown up."""
    age = 0
    while age < AGES.shape[0] and rows >= AGES[age]:
        age += 1
    return age


@kernel
def _lift(
    votes: NDArray[np.int64],
    rows: NDArray[np.int64],
    lift: NDArray[np.float64],
    age: NDArray[np.int64],
    out: NDArray[np.int64],
) -> bool:
    """The votes, those of young classes lifted; whether there are any. `age` gets that of each class."""
    young = False
    for k in range(votes.shape[0]):
        age[k] = _age(rows[k])
        out[k] = votes[k]
        if age[k] < AGES.shape[0] and votes[k] > 0:
            young = True
            out[k] = np.int64(np.rint(lift[age[k]] * votes[k]))
    return young


@kernel
def _judge_lifts(
    votes: NDArray[np.int64],
    age: NDArray[np.int64],
    lift: NDArray[np.float64],
    y: int,
    hits: NDArray[np.int64],
) -> None:
    """Note which lifts of each age would have had the class, the others being what they are.

    Rows on which no class of an age has a vote say nothing of its lifts.
    """
    for a in range(AGES.shape[0]):
        concerned = False
        for k in range(votes.shape[0]):
            if age[k] == a and votes[k] > 0:
                concerned = True
        if not concerned:
            continue
        for s in range(LIFTS.shape[0]):
            best, most = -1, 0.0
            for k in range(votes.shape[0]):
                by = 1.0
                if age[k] < AGES.shape[0]:
                    by = LIFTS[s] if age[k] == a else lift[age[k]]
                if by * votes[k] > most:
                    best, most = k, by * votes[k]
            if best == y:
                hits[a, s] += 1


@routine
def blend(
    votes: NDArray[np.int64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    share: NDArray[np.float64],
    hits: NDArray[np.int64],
    rows: NDArray[np.int64],
    lift: NDArray[np.float64],
    lift_hits: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """One score per row and class of votes [rows, VOICES, classes]; hits of learned rows are counted.

    `share[0]` is the NCM forest's in the two forests, `share[1]` the recent neighbours' in all. `rows` counts
    those of each class up to GROWN_UP, and `lift` is what each age has.
    """
    forests = np.empty(votes.shape[2], np.int64)
    lifted = np.empty(votes.shape[2], np.int64)
    age = np.empty(votes.shape[2], np.int64)
    for r in range(votes.shape[0]):
        _mix(votes[r, 0], votes[r, 1], share[0], forests)
        young = _lift(forests, rows, lift, age, lifted)
        _mix(lifted, votes[r, 2], share[1], out[r])
        if op[r] & LEARN:
            _judge(votes[r, 0], votes[r, 1], y[r], hits[0])
            _judge(lifted, votes[r, 2], y[r], hits[1])
            if young:
                _judge_lifts(forests, age, lift, y[r], lift_hits)
            rows[y[r]] = min(rows[y[r]] + 1, GROWN_UP)
