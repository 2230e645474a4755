"""One row through all trees of a stream forest step by step, so that no tree waits for another's memory
(`ahead`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.prefetch import prefetch
from streamforest.kernels.stream.layout import NODE, STAT, TreeArrays, goes_right

_NODE_BYTES = NODE.itemsize
_STAT_BYTES = STAT.itemsize


@kernel
def descend_all(
    g: TreeArrays, first: int, last: int, x: NDArray[np.float32], leaf: NDArray[np.int64]
) -> None:
    """The leaf of each tree that votes, `first` to `last`, that row 0 of `x` falls into: the same as
    `descend` finds.
    """
    nodes = g.node.ctypes.data
    stats = g.stat.ctypes.data
    room = g.node.shape[1]
    for t in range(first, last):
        leaf[t] = 0
        prefetch(nodes + (2 * t + g.voter[t].active) * room * _NODE_BYTES)
    moving = last - first
    while moving > 0:
        for t in range(first, last):
            i = leaf[t]
            if i < 0:
                continue
            s = 2 * t + g.voter[t].active
            here = g.node[s, i]
            if here.feature >= 0:
                leaf[t] = here.left + goes_right(x[0, here.feature], here, i)
                prefetch(nodes + (s * room + leaf[t]) * _NODE_BYTES)
            else:
                leaf[t] = -1 - i  # arrived
                prefetch(stats + (s * room + i) * _STAT_BYTES)
                moving -= 1
    for t in range(first, last):
        leaf[t] = -1 - leaf[t]
