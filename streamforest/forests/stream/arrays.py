"""Making and enlarging the arrays of a stream forest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.kernels.core.array_table import grown, zeros
from streamforest.kernels.core.simd_distance import CAP, LANES
from streamforest.kernels.stream import export, histogram
from streamforest.kernels.stream.advance import WANT_HIST, WANT_NODES
from streamforest.kernels.stream.layout import TreeArrays

_FEWEST_ROWS = 64


def padded(features: int) -> int:
    """The width of a row with so many features."""
    return max(1, -(-features // LANES)) * LANES


def stepped(features: int) -> int:
    """How many features there is room for at once where they come by the thousand: words.

    In steps of a quarter, so that a ring of wide rows is copied a few times and not with every word.

    >>> [stepped(n) for n in (10, 256, 257, 5_000)]
    [10, 256, 320, 5813]
    """
    room = features if features <= 256 else 256
    while room < features:
        room += room // 4
    return room


def ring_bytes(features: int, n_trees: int) -> int:
    """What one row of the ring takes: its values, its label and a link for each tree slot."""
    return 4 * padded(features) + 4 + 8 * n_trees


def readable_rows(ring_rows: int, max_ring_bytes: int, features: int, n_trees: int) -> int:
    """How many rows may be read so that all slots, an epoch more, stay within the bound."""
    room = max_ring_bytes // ring_bytes(features, n_trees) - EPOCH
    return max(_FEWEST_ROWS, min(ring_rows, room))


def allocate(n_trees: int, nodes: int, hist: int, slots: int, width: int) -> TreeArrays:
    """Zeroed arrays of these capacities (nodes and histograms: per tree slot)."""
    sizes = {"trees": n_trees, "tree slots": 2 * n_trees, "nodes": nodes}
    sizes |= {"histogram entries": hist, "ring slots": slots, "width": width}
    return zeros(TreeArrays, **sizes)


def plant(seeds: NDArray[np.uint64]) -> TreeArrays:
    """A forest of trees that are one leaf each."""
    trees = allocate(len(seeds), nodes=8, hist=64, slots=EPOCH, width=LANES)
    trees.voter["seed"] = seeds
    trees.tree_slot["test"] = -1
    trees.tree_slot["n_nodes"][::2] = 1
    trees.tree_slot["cursor"][::2] = 1
    for field, value in (("feature", -1), ("left", -1)):
        trees.node[field][:, 0] = value
    for field in ("head", "parent"):
        trees.stat[field][:, 0] = -1
    return trees


def new_metric(width: int) -> NDArray[np.float32]:
    """Metrics in which nothing counts yet."""
    metric = np.zeros((2, 3, width), np.float32)
    metric[:, CAP] = np.inf
    return metric


def enlarge(trees: TreeArrays, want: NDArray[np.int64]) -> TreeArrays:
    """Arrays that hold at least what the kernel wants; histograms packed.

    The arena only grows at the top, so part of what is full may be left-overs: the new size is twice
    what is live, or what is wanted beyond it. Each entry is copied O(1) times on average.
    """
    tree_slots, nodes = trees.node.shape
    if want[WANT_NODES] > nodes:
        trees = grown(trees, nodes=max(2 * nodes, int(want[WANT_NODES])))
    if want[WANT_HIST] > trees.hist.shape[1]:
        live = max(histogram.live(trees, s) for s in range(tree_slots))
        extra = max(0, int(want[WANT_HIST]) - int(trees.tree_slot["hist_top"].min()))
        size = max(64, 2 * live + extra)
        hist = np.zeros((tree_slots, size), np.int32)
        for s in range(tree_slots):
            histogram.pack(trees, s, hist)
        trees = trees._replace(hist=hist)
    return trees


def enlarge_ring(
    trees: TreeArrays, rows: int, slots: int, known: int, new: NDArray[np.float64], room: int = 0
) -> TreeArrays:
    """A ring with at least `rows` slots (but no more than `slots`), the `new` features and `room` for more.

    Rows that were there before a feature was have in it what `new` says: NaN, or 0. Slots beyond the first
    turn are never needed, so numbers keep their slots while the ring grows to its full size.
    """
    have, width = trees.rows.shape
    if rows > have:
        trees = grown(trees, **{"ring slots": min(slots, max(2 * have, rows))})
    features = known + len(new)
    if padded(features) > width:
        trees = grown(trees, width=padded(max(features, room)))
    if len(new):
        trees.rows[:, known:features] = new
    return trees


def flatten(trees: TreeArrays, learned: int, rows: int, slots: int) -> export.Flat:
    """Trees without slack, with the newest `rows` rows."""
    nodes, classes = export.measure(trees)
    flat = export.empty(len(trees.tree_slot), nodes, classes, rows)
    export.export(trees, learned, rows, slots, flat)
    return flat


def shrink_ring(
    trees: TreeArrays,
    learned: int,
    slots: int,
    rows: int,
    p_structure: float,
    categorical: NDArray[np.uint8],
) -> TreeArrays:
    """The same forest with a ring of `rows` readable rows: its features have become too many."""
    kept = min(learned, rows)
    flat = flatten(trees, learned, kept, slots)
    numbers = np.arange(learned - kept, learned)
    now = numbers % (rows + EPOCH)
    size = min(rows + EPOCH, len(trees.rows))
    small = trees._replace(
        rows=np.zeros((size, trees.rows.shape[1]), np.float32),
        labels=np.zeros(size, np.int32),
        link=np.zeros((len(trees.link), size), np.int32),
        hist=np.zeros_like(trees.hist),
    )
    small.rows[now] = trees.rows[numbers % slots]
    small.labels[now] = trees.labels[numbers % slots]
    export.restore(small, learned, kept, rows + EPOCH, p_structure, categorical, flat)
    return small
