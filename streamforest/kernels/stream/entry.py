"""A stream forest's way through a batch: rows enter the ring, the trees and the baselines process them, and
the answers are mixed.

A single event is one call with all parts. Batches are staged and mixed by themselves, and their trees
may be on several threads.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.array_table import ArrayTable, array
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.stream import advance, baseline_learning, mixing, shared
from streamforest.kernels.stream.baselines import SILENT, Baselines
from streamforest.kernels.stream.layout import PARAMS, TreeArrays
from streamforest.kernels.stream.mixing import MIXTURES
from streamforest.kernels.stream.votes import NEAR

STAGE, TREES, BASELINES, MIX, JUDGE = (1 << part for part in range(5))
"""Parts of processing a batch."""

DONE, SHORT_TREES, SHORT_BASELINES = range(3)
"""What came of it: finished, or arrays of the trees or of the baselines are too small."""

_BASELINES_ROW = -1
"""Where `progress` counts the half rows of the baselines."""


class ForestArrays(NamedTuple):
    """What belongs to the forest and to no single tree."""

    params: Annotated[NDArray[np.void], array(PARAMS, 1)]
    metric: Annotated[NDArray[np.float32], array(np.float32, 2, 3, "width")]
    stats: Annotated[NDArray[np.float64], array(np.float64, 5, "width")]
    # mean, variance, 1/deviation of each feature
    spread: Annotated[NDArray[np.float64], array(np.float64, 3, "width")]
    categorical: Annotated[NDArray[np.uint8], array(np.uint8, "known features")]
    routes: Annotated[NDArray[np.int64], array(np.int64, "trees", 3)]
    progress: Annotated[NDArray[np.int64], array(np.int64, "trees and baselines")]
    loss: Annotated[NDArray[np.float64], array(np.float64, len(MIXTURES))]
    want_baselines: Annotated[NDArray[np.int64], array(np.int64, 3)]
    steps: Annotated[NDArray[np.int64], array(np.int64, "steps")]
    xlogx: Annotated[NDArray[np.int64], array(np.int64, "xlogx")]


ARRAYS = ArrayTable(TreeArrays, Baselines, ForestArrays)
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
    known: NDArray[np.int64],
    power: float,
    bound: int,
) -> int:
    """Process the rows of a batch, in the parts that are asked for; the first learned row is `number`.

    `out` gets the mixed votes. When arrays are too small nothing is lost: the same call, less the parts
    that are done, goes on after enlarging.
    """
    trees, baselines, own = _view(addresses)
    p = own.params[0]
    progress = own.progress
    if parts & STAGE:
        shared.stage(trees.rows, trees.labels, own.stats, batch, y, op, number, p.slots)
    if parts & TREES and not advance.advance(
        trees, p, own.metric, power, own.steps, own.xlogx, first, last, progress, want,
        batch, y, op, known, own.categorical, own.routes, reuse, votes,
    ):  # fmt: skip
        return SHORT_TREES
    if parts & BASELINES and not baselines.size[SILENT]:
        done = baseline_learning.advance(
            baselines, bound, own.spread, batch, y, op, known, own.categorical, p.zero,
            progress[_BASELINES_ROW], reuse, votes, NEAR + 1, own.want_baselines,
        )  # fmt: skip
        if done < 2 * batch.shape[0]:
            progress[_BASELINES_ROW] = done
            return SHORT_BASELINES
        progress[_BASELINES_ROW] = 0
    if parts & MIX:
        mixing.mix(votes, own.loss, out)
    if parts & JUDGE:
        mixing.mix_and_judge(votes, y, op, own.loss, out)
    return DONE
