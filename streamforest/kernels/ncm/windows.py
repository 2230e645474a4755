"""Whether the newest rows alone know better than the whole memory: how a stream's change is found.

Rows that were just learned are answered once more by their nearest neighbours among the rows before them:
among the last 64, 128, … 2,048, and among the last 4,096. Where the world has not changed, more rows are
better or as good. Where it has, older rows contradict the newest, and a shorter window is right more often.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.simd_distance import lane_distance
from streamforest.kernels.ncm.layout import Memory
from streamforest.kernels.ncm.neighbours import STANDARDISED
from streamforest.kernels.ncm.row_memory import fill_in

WINDOWS: NDArray[np.int64] = np.array([64, 128, 256, 512, 1024, 2048])
"""Rows back that a window looks, by their numbers."""
WINDOWS.flags.writeable = False
LONGEST = 4_096
"""Rows back that all windows are compared with."""
NEAREST = 5
WON, LOST = range(2)


@kernel
def _most(label: NDArray[np.int32], n: int) -> int:
    """The label that most of the nearest have; of equals that of the nearer one. -1 without any."""
    best, most = -1, 0
    for q in range(n):
        same = 0
        for other in range(n):
            if label[other] == label[q]:
                same += 1
        if same > most:
            best, most = label[q], same
    return best


@routine
def judge_windows(
    memory: Memory,
    slots: NDArray[np.int32],
    fill: NDArray[np.float32],
    scales: NDArray[np.float32],
    begin: int,
    step: int,
    tally: NDArray[np.int64],
) -> None:
    """Count in `tally` [windows, 2] who was right where a window and the longest one disagree.

    `slots` are those of the rows in memory by number; every `step`th from place `begin` on is answered.
    """
    x = np.empty((1, memory.rows.shape[1]), np.float32)
    near = np.empty(NEAREST, np.float32)
    label = np.empty(NEAREST, np.int32)
    answers = np.empty(WINDOWS.shape[0], np.int64)
    for a in range(begin, slots.shape[0], step):
        for f in range(x.shape[1]):
            x[0, f] = memory.rows[slots[a], f]
        fill_in(x, fill)
        number = memory.number[slots[a]]
        n, w = 0, 0
        b = a - 1
        while b >= 0:
            age = number - memory.number[slots[b]]
            while w < WINDOWS.shape[0] and age > WINDOWS[w]:
                answers[w] = _most(label, n)
                w += 1
            if age > LONGEST:
                break
            d = lane_distance(memory.rows, slots[b], x, 0, scales, STANDARDISED)
            if n < NEAREST or d < near[NEAREST - 1]:
                n = min(n + 1, NEAREST)
                q = n - 1
                while q > 0 and near[q - 1] > d:
                    near[q] = near[q - 1]
                    label[q] = label[q - 1]
                    q -= 1
                near[q] = d
                label[q] = memory.label[slots[b]]
            b -= 1
        true = memory.label[slots[a]]
        whole = _most(label, n) == true
        for v in range(w):
            right = answers[v] == true
            if right and not whole:
                tally[v, WON] += 1
            elif whole and not right:
                tally[v, LOST] += 1
