"""A stream forest's move through rows: they enter the ring, trees and plain opinions go through them, and
the answers are mixed.

A single event is one call with all parts. Batches are staged and mixed by themselves, and their trees
may be on several threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from streamforest.kernels.core.array_table import pointer
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.stream import advance as ring_advance
from streamforest.kernels.stream import baseline_learning, mixing
from streamforest.kernels.stream import shared as ring_store
from streamforest.kernels.stream.baselines import SILENT, Plain
from streamforest.kernels.stream.layout import NODE, PARAMS, PLACE, STAT, VOTER, Grove
from streamforest.kernels.stream.votes import NEAR

STAGE, TREES, PLAIN, MIX, JUDGE = (1 << part for part in range(5))
"""Parts of a move."""

DONE, SHORT_TREES, SHORT_PLAIN = range(3)
"""What came of it: finished, or arrays of the trees or of the plain opinions are too small."""

_AT_PLAIN = -1
"""Where `progress` counts the half rows of the plain opinions."""

_PLAIN = len(Grove._fields)
(
    _PARAMS,
    _METRIC,
    _STATS,
    _SPREAD,
    _CATEGORICAL,
    _ROUTES,
    _PROGRESS,
    _LOSS,
    _WANT_PLAIN,
    _STEPS,
    _XLOGX,
) = range(_PLAIN + len(Plain._fields), _PLAIN + len(Plain._fields) + 11)


def arrays_of(grove: Grove, plain: Plain, *others: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """The arrays of a forest in the order of its table. The others: parameters, metric, statistics and
    spread of the features, which of them are categories, routes, progress, losses of the mixtures, what
    the plain opinions want, STEPS and XLOGX.
    """
    return (*grove, *plain, *others)


@kernel
def move(
    seats: NDArray[np.int64],
    parts: int,
    first: int,
    last: int,
    want: NDArray[np.int64],
    batch: NDArray[np.float64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    known: NDArray[np.int64],
    number: int,
    power: float,
    bound: int,
    reuse: bool,
    votes: NDArray[np.int64],
    out: NDArray[np.int64],
) -> int:
    """The asked parts of a move through the rows of a batch, of which the first learned is `number`.

    `out` gets the mixed votes. When arrays are too small nothing is lost: the same call, less the parts
    that are done, goes on after enlarging.
    """
    g = Grove(
        carray(pointer(seats[0, 0]), (seats[0, 1],), VOTER),
        carray(pointer(seats[1, 0]), (seats[1, 1],), PLACE),
        carray(pointer(seats[2, 0]), (seats[2, 1], seats[2, 2]), NODE),
        carray(pointer(seats[3, 0]), (seats[3, 1], seats[3, 2]), STAT),
        carray(pointer(seats[4, 0]), (seats[4, 1], seats[4, 2]), np.int32),
        carray(pointer(seats[5, 0]), (seats[5, 1], seats[5, 2]), np.int32),
        carray(pointer(seats[6, 0]), (seats[6, 1], seats[6, 2]), np.int32),
        carray(pointer(seats[7, 0]), (seats[7, 1], seats[7, 2]), np.float32),
        carray(pointer(seats[8, 0]), (seats[8, 1],), np.int32),
    )
    i = _PLAIN
    plain = Plain(
        carray(pointer(seats[i, 0]), (seats[i, 1],), np.int64),
        carray(
            pointer(seats[i + 1, 0]),
            (seats[i + 1, 1], seats[i + 1, 2], seats[i + 1, 3]),
            np.float64,
        ),
        carray(pointer(seats[i + 2, 0]), (seats[i + 2, 1], seats[i + 2, 2]), np.float64),
        carray(pointer(seats[i + 3, 0]), (seats[i + 3, 1],), np.int32),
        carray(pointer(seats[i + 4, 0]), (seats[i + 4, 1],), np.int32),
        carray(pointer(seats[i + 5, 0]), (seats[i + 5, 1],), np.int32),
        carray(pointer(seats[i + 6, 0]), (seats[i + 6, 1], seats[i + 6, 2]), np.float64),
        carray(
            pointer(seats[i + 7, 0]),
            (seats[i + 7, 1], seats[i + 7, 2], seats[i + 7, 3]),
            np.float64,
        ),
    )
    i = _METRIC
    p = carray(pointer(seats[_PARAMS, 0]), (1,), PARAMS)[0]
    metric = carray(pointer(seats[i, 0]), (seats[i, 1], seats[i, 2], seats[i, 3]), np.float32)
    stats = carray(pointer(seats[_STATS, 0]), (seats[_STATS, 1], seats[_STATS, 2]), np.float64)
    spread = carray(pointer(seats[_SPREAD, 0]), (seats[_SPREAD, 1], seats[_SPREAD, 2]), np.float64)
    categorical = carray(pointer(seats[_CATEGORICAL, 0]), (seats[_CATEGORICAL, 1],), np.uint8)
    routes = carray(pointer(seats[_ROUTES, 0]), (seats[_ROUTES, 1], seats[_ROUTES, 2]), np.int64)
    progress = carray(pointer(seats[_PROGRESS, 0]), (seats[_PROGRESS, 1],), np.int64)
    loss = carray(pointer(seats[_LOSS, 0]), (seats[_LOSS, 1],), np.float64)
    want_plain = carray(pointer(seats[_WANT_PLAIN, 0]), (seats[_WANT_PLAIN, 1],), np.int64)
    steps = carray(pointer(seats[_STEPS, 0]), (seats[_STEPS, 1],), np.int64)
    table = carray(pointer(seats[_XLOGX, 0]), (seats[_XLOGX, 1],), np.int64)

    if parts & STAGE:
        ring_store.stage(g.rows, g.labels, stats, batch, y, op, number, p.slots)
    if parts & TREES and not ring_advance.advance(
        g, p, metric, power, steps, table, first, last, progress, want,
        batch, y, op, known, categorical, routes, reuse, votes,
    ):  # fmt: skip
        return SHORT_TREES
    if parts & PLAIN and not plain.size[SILENT]:
        done = baseline_learning.advance(
            plain, bound, spread, batch, y, op, known, categorical, progress[_AT_PLAIN], reuse,
            votes, NEAR + 1, want_plain,
        )  # fmt: skip
        if done < 2 * batch.shape[0]:
            progress[_AT_PLAIN] = done
            return SHORT_PLAIN
        progress[_AT_PLAIN] = 0
    if parts & MIX:
        mixing.mix(votes, loss, out)
    if parts & JUDGE:
        mixing.mix_and_judge(votes, y, op, loss, out)
    return DONE
