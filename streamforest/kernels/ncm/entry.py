"""An NCM forest's move through rows: they enter the memory, class means and trees go through them, and the
opinions are blended.

A single event is one call with all parts. Batches are staged, blended and judged by themselves, and their
trees may be on several threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from streamforest.kernels.core.array_table import pointer
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.ncm import advance as ncm_advance
from streamforest.kernels.ncm import blending, row_memory
from streamforest.kernels.ncm.class_means import LENSES, Means
from streamforest.kernels.ncm.layout import PARAMS, TABLE_WIDTH, Memory

STAGE, TREES, BLEND, JUDGE = (1 << part for part in range(4))
"""Parts of a move."""

_MEANS = len(Memory._fields)
(
    _NEAR,
    _USUAL,
    _OF_CLASS,
    _FILL,
    _COLUMN,
    _CATEGORICAL,
    _CODES,
    _STATS,
    _PARAMS,
    _PROGRESS,
    _ROUTES,
    _PICKS,
    _LEADS,
    _NEARS,
    _RIGHT,
    _LENS_RIGHT,
    _TALLY,
    _TREES,
    _XLOGX,
    _BLENDS,
) = range(_MEANS + len(Means._fields), _MEANS + len(Means._fields) + 20)


def arrays_of(memory: Memory, means: Means, *others: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """The arrays of a forest in the order of its table. The others: distances of neighbours and how far
    they usually are, rows by class, usual values, columns of features, which of those are categories,
    codes, statistics of columns, parameters, progress, routes, picks and leads of the lenses, distances
    of the nearest rows, how often blends and lenses were right, tally, the trees' addresses, XLOGX, BLENDS.
    """
    return (*memory, *means, *others)


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
    slots: NDArray[np.int32],
    number: int,
    columns: int,
    classes: int,
    speaker: int,
    step: int,
    reuse: bool,
    votes: NDArray[np.int64],
    strange: NDArray[np.float32],
    out: NDArray[np.int64],
) -> bool:
    """The asked parts of a move through the rows of a batch, of which the first learned is `number`.

    `out` gets the blended votes. False when an array of a tree is too small: nothing is lost, and the
    same call, less STAGE, goes on after enlarging. For the rest see `ncm_advance.advance`.
    """
    s = seats
    memory = Memory(
        carray(pointer(s[0, 0]), (s[0, 1], s[0, 2]), np.float32),
        carray(pointer(s[1, 0]), (s[1, 1],), np.int32),
        carray(pointer(s[2, 0]), (s[2, 1],), np.int64),
    )
    i = _MEANS
    means = Means(
        carray(pointer(s[i, 0]), (s[i, 1], s[i, 2]), np.float32),
        carray(pointer(s[i + 1, 0]), (s[i + 1, 1],), np.int64),
        carray(pointer(s[i + 2, 0]), (s[i + 2, 1],), np.float64),
        carray(pointer(s[i + 3, 0]), (s[i + 3, 1], s[i + 3, 2]), np.float64),
        carray(pointer(s[i + 4, 0]), (1,), np.float64),
        carray(pointer(s[i + 5, 0]), (LENSES, s[i + 5, 2], s[i + 5, 3]), np.float32),
        carray(pointer(s[i + 6, 0]), (s[i + 6, 1], s[i + 6, 2]), np.float32),
        carray(pointer(s[i + 7, 0]), (s[i + 7, 1],), np.float32),
        carray(pointer(s[i + 8, 0]), (LENSES,), np.float64),
    )
    near = carray(pointer(s[_NEAR, 0]), (s[_NEAR, 1], s[_NEAR, 2], s[_NEAR, 3]), np.float32)
    usual = carray(pointer(s[_USUAL, 0]), (s[_USUAL, 1],), np.float64)
    of_class = carray(pointer(s[_OF_CLASS, 0]), (s[_OF_CLASS, 1],), np.int64)
    fill = carray(pointer(s[_FILL, 0]), (s[_FILL, 1],), np.float32)
    column = carray(pointer(s[_COLUMN, 0]), (s[_COLUMN, 1],), np.int32)
    categorical = carray(pointer(s[_CATEGORICAL, 0]), (s[_CATEGORICAL, 1],), np.uint8)
    codes = carray(pointer(s[_CODES, 0]), (s[_CODES, 1],), np.int32)
    stats = carray(pointer(s[_STATS, 0]), (s[_STATS, 1], s[_STATS, 2]), np.float64)
    p = carray(pointer(s[_PARAMS, 0]), (1,), PARAMS)[0]
    progress = carray(pointer(s[_PROGRESS, 0]), (s[_PROGRESS, 1],), np.int64)
    routes = carray(pointer(s[_ROUTES, 0]), (s[_ROUTES, 1], s[_ROUTES, 2]), np.int64)
    picks = carray(pointer(s[_PICKS, 0]), (s[_PICKS, 1], LENSES), np.int64)
    leads = carray(pointer(s[_LEADS, 0]), (s[_LEADS, 1], LENSES), np.float64)
    nears = carray(pointer(s[_NEARS, 0]), (s[_NEARS, 1],), np.float64)
    right = carray(pointer(s[_RIGHT, 0]), (s[_RIGHT, 1],), np.float64)
    lens_right = carray(pointer(s[_LENS_RIGHT, 0]), (LENSES,), np.float64)
    tally = carray(pointer(s[_TALLY, 0]), (s[_TALLY, 1],), np.int64)
    trees = carray(pointer(s[_TREES, 0]), (s[_TREES, 1], TABLE_WIDTH), np.int64)
    table = carray(pointer(s[_XLOGX, 0]), (s[_XLOGX, 1],), np.int64)
    blends = carray(pointer(s[_BLENDS, 0]), (s[_BLENDS, 1], s[_BLENDS, 2]), np.float64)

    if parts & (STAGE | TREES):
        x = row_memory.to_columns(
            batch, op, column, categorical, codes, stats, memory.rows.shape[1]
        )
        if parts & STAGE:
            row_memory.stage(memory, stats, x, y, slots, number, columns)
        row_memory.fill_in(x, fill)
        if parts & TREES and not ncm_advance.advance(
            trees, memory, means, near, usual, of_class, fill, p, table, first, last, progress,
            want, x, y, op, slots, number, classes, routes, picks, leads, nears, speaker, reuse,
            votes, strange,
        ):  # fmt: skip
            return False
    n_trees = trees.shape[0]
    if parts & BLEND:
        blending.blend_to(votes, n_trees, blends[step], out)
    if parts & JUDGE:
        blending.tell(y, op, of_class)
        blending.tell_codes(batch, op, categorical, codes)
        blending.judge(
            votes, y, op, picks, n_trees, blends, step, right, lens_right, tally
        )  # fmt: skip
    return True
