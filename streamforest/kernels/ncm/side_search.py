"""Which centroids go left: the search for the assignment of sides with the largest gain.

The rows of a node fall into cells, one per centroid; a side is chosen for each cell. All sums are of
x·log₂ x in whole units of 2⁻²⁴ (`entropy`), so that equal is equal and the first of equals wins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.entropy import xlogx

_WORD = 32  # sides drawn at a time


class Cells(NamedTuple):
    """Counts of classes by cell, without zeros: entries start[j] to start[j + 1] are those of cell j."""

    start: NDArray[np.int32]
    which: NDArray[np.int32]
    times: NDArray[np.int32]
    size: NDArray[np.int64]  # rows in each cell
    total: NDArray[np.int32]  # rows of each class
    rows: int  # in all cells


@routine
def gather_cells(
    cell: NDArray[np.int32],
    which: NDArray[np.int32],
    times: NDArray[np.int32],
    n: int,
    n_cells: int,
    n_classes: int,
) -> Cells:
    """Cells from `n` rows, each with its cell, its class (an index within the node) and its count."""
    dense = np.zeros((n_cells, n_classes), np.int32)
    size = np.zeros(n_cells, np.int64)
    total = np.zeros(n_classes, np.int32)
    rows = 0
    used = 0
    for a in range(n):
        w = times[a]
        if w > 0:
            if dense[cell[a], which[a]] == 0:
                used += 1
            dense[cell[a], which[a]] += w
            size[cell[a]] += w
            total[which[a]] += w
            rows += w
    start = np.zeros(n_cells + 1, np.int32)
    classes = np.empty(used, np.int32)
    number = np.empty(used, np.int32)
    e = 0
    for j in range(n_cells):
        for c in range(n_classes):
            if dense[j, c] > 0:
                classes[e] = c
                number[e] = dense[j, c]
                e += 1
        start[j + 1] = e
    return Cells(start, classes, number, size, total, rows)


@kernel
def start_of(
    cells: Cells, side: NDArray[np.uint8], left: NDArray[np.int32], table: NDArray[np.int64]
) -> tuple[int, int]:
    """Count the rows of each class on the left; returns the rows there, and the entropy of both sides."""
    left[:] = 0
    n_left = 0
    for j in range(side.shape[0]):
        if side[j] == 0:
            n_left += cells.size[j]
            for e in range(cells.start[j], cells.start[j + 1]):
                left[cells.which[e]] += cells.times[e]
    value = xlogx(n_left, table) + xlogx(cells.rows - n_left, table)
    for c in range(left.shape[0]):
        value -= xlogx(left[c], table) + xlogx(cells.total[c] - left[c], table)
    return n_left, value


@kernel
def flip(
    cells: Cells, j: int, sign: int, n_left: int, left: NDArray[np.int32], table: NDArray[np.int64]
) -> int:
    """How the entropy of both sides changes when cell `j` changes sides (`sign` 1: to the left)."""
    after = n_left + sign * cells.size[j]
    change = xlogx(after, table) + xlogx(cells.rows - after, table)
    change -= xlogx(n_left, table) + xlogx(cells.rows - n_left, table)
    for e in range(cells.start[j], cells.start[j + 1]):
        c = cells.which[e]
        was = left[c]
        now = was + sign * cells.times[e]
        rest = cells.total[c]
        change += xlogx(was, table) + xlogx(rest - was, table)
        change -= xlogx(now, table) + xlogx(rest - now, table)
    return change


@kernel
def draw_sides(start: np.uint64, number: int, side: NDArray[np.uint8]) -> None:
    """The `number`-th random assignment of a sequence."""
    k = side.shape[0]
    words = (k + _WORD - 1) // _WORD
    bits = np.int64(0)
    for j in range(k):
        if j % _WORD == 0:
            bits = np.int64(rng.uniform(start, number * words + j // _WORD) * (1 << _WORD))
        side[j] = np.uint8((bits >> (j % _WORD)) & 1)


@kernel
def _copy(side: NDArray[np.uint8], best: NDArray[np.uint8]) -> None:
    """A loop, since numba compiles a check of shapes with an assignment, and its message takes seconds."""
    for j in range(side.shape[0]):
        best[j] = side[j]


@routine
def search_sides(
    cells: Cells,
    mu: int,
    assignments: int,
    starts: int,
    start: np.uint64,
    table: NDArray[np.int64],
    best: NDArray[np.uint8],
) -> bool:
    """Fill `best` with the sides of the largest gain, if it is above zero and both have over µ rows.

    With `assignments` so many random ones are tried (Ristin 2016, 3.2), or all of them if there are no
    more. Otherwise single cells change sides as long as that is better, from `starts` random ones.
    """
    k = best.shape[0]
    before = xlogx(cells.rows, table)
    for c in range(cells.total.shape[0]):
        before -= xlogx(cells.total[c], table)
    least = before  # only what is below has a gain
    side = np.zeros(k, np.uint8)
    left = np.zeros(cells.total.shape[0], np.int32)
    if assignments > 0:
        every = k <= 16 and (1 << (k - 1)) - 1 <= assignments
        tries = (1 << (k - 1)) - 1 if every else assignments
        for a in range(tries):
            if every:
                for j in range(k):
                    side[j] = np.uint8(((a + 1) >> j) & 1)
            else:
                draw_sides(start, a, side)
            n_left, value = start_of(cells, side, left, table)
            if n_left > mu and cells.rows - n_left > mu and value < least:
                least = value
                _copy(side, best)
        return least < before
    for s in range(starts):
        draw_sides(start, s, side)
        n_left, value = start_of(cells, side, left, table)
        fits = n_left > mu and cells.rows - n_left > mu
        stale = 0
        j = 0
        for _ in range(8 * k):
            if stale == k:
                break
            sign = 1 if side[j] == 1 else -1
            after = n_left + sign * cells.size[j]
            room = min(after, cells.rows - after)
            change = flip(cells, j, sign, n_left, left, table)
            # better, or at least towards enough rows on both sides
            if (room > mu and change < 0) if fits else room > min(n_left, cells.rows - n_left):
                side[j] = 1 - side[j]
                n_left = after
                value += change
                fits = room > mu
                stale = 0
                for e in range(cells.start[j], cells.start[j + 1]):
                    left[cells.which[e]] += sign * cells.times[e]
            else:
                stale += 1
            j = j + 1 if j + 1 < k else 0
        if fits and value < least:
            least = value
            _copy(side, best)
    return least < before
