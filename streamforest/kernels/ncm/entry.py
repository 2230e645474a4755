"""An NCM forest's way through a batch: rows enter the memory, class means and trees process them, and the
experts' votes are blended.

A single event is one call with all parts. Batches are staged, blended and judged by themselves, and their
trees may be on several threads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.array_table import ArrayTable
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.ncm import advance, blending, row_memory
from streamforest.kernels.ncm.advance import ForestArrays
from streamforest.kernels.ncm.blending import Blend
from streamforest.kernels.ncm.layout import Columns, MeanAnswers, Means, Memory

STAGE, TREES, BLEND, JUDGE = (1 << part for part in range(4))
"""Parts of processing a batch."""

ARRAYS = ArrayTable(Memory, Columns, Means, MeanAnswers, Blend, ForestArrays)
_view = ARRAYS.view


@kernel
def process_batch(
    addresses: NDArray[np.int64],
    parts: int,
    first: int,
    last: int,
    want: NDArray[np.int64],
    batch: NDArray[np.float64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    reuse: bool,
    number: int,
    votes: NDArray[np.int64],
    out: NDArray[np.int64],
    slots: NDArray[np.int32],
    n_columns: int,
    classes: int,
    active_metric: int,
    active_blend: int,
    count_only: bool,
    distances: NDArray[np.float32],
) -> bool:
    """Process the rows of a batch, in the parts that are asked for; the first learned row is `number`.

    `out` gets the blended votes. False when an array of a tree is too small: nothing is lost, and the
    same call, less STAGE, goes on after enlarging. For the rest see `advance.advance`.
    """
    memory, columns, means, answers, blend, own = _view(addresses)
    if parts & (STAGE | TREES):
        x = row_memory.to_columns(batch, op, columns, own.categorical)
        if parts & STAGE:
            row_memory.stage(memory, columns.stats, x, y, slots, number, n_columns)
        row_memory.fill_in(x, columns.fill)
        if parts & TREES and not advance.advance(
            memory, columns, means, answers, blend, own, first, last, want, x, y, op, slots,
            number, classes, active_metric, reuse, count_only, votes, distances,
        ):  # fmt: skip
            return False
    n_trees = own.trees.shape[0]
    if parts & BLEND:
        blending.blend_votes(votes, n_trees, own.blends[active_blend], out)
    if parts & JUDGE:
        blending.count_classes(y, op, own.of_class)
        blending.count_categories(batch, op, own.categorical, columns.categories)
        blending.judge(votes, y, op, answers.best, n_trees, own.blends, active_blend, blend)
    return True
