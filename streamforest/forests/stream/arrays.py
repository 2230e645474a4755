"""Making and enlarging the arrays of a stream forest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.kernels.core.simd_distance import CAP, LANES
from streamforest.kernels.stream import export as ring_state
from streamforest.kernels.stream import histogram
from streamforest.kernels.stream.advance import WANT_HIST, WANT_NODES
from streamforest.kernels.stream.layout import HISTORY, NODE, PLACE, STAT, VOTER, Grove

_FEWEST_ROWS = 64


def padded(features: int) -> int:
    """The width of a row with so many features."""
    return max(1, -(-features // LANES)) * LANES


def ring_bytes(features: int, n_trees: int) -> int:
    """What one row of the ring takes: its values, its label and a link for each place."""
    return 4 * padded(features) + 4 + 8 * n_trees


def readable_rows(ring_rows: int, max_ring_bytes: int, features: int, n_trees: int) -> int:
    """How many rows may be read so that all slots, an epoch more, stay within the bound."""
    room = max_ring_bytes // ring_bytes(features, n_trees) - EPOCH
    return max(_FEWEST_ROWS, min(ring_rows, room))


def allocate(n_trees: int, nodes: int, hist: int, slots: int, width: int) -> Grove:
    """Zeroed arrays of these capacities (nodes and histograms: per place)."""
    places = 2 * n_trees
    return Grove(
        voter=np.zeros(n_trees, VOTER),
        place=np.zeros(places, PLACE),
        node=np.zeros((places, nodes), NODE),
        stat=np.zeros((places, nodes), STAT),
        hist=np.zeros((places, hist), np.int32),
        link=np.zeros((places, slots), np.int32),
        errors=np.zeros((n_trees, HISTORY), np.int32),
        rows=np.zeros((slots, width), np.float32),
        labels=np.zeros(slots, np.int32),
    )


def plant(seeds: NDArray[np.uint64]) -> Grove:
    """A forest of trees that are one leaf each."""
    grove = allocate(len(seeds), nodes=8, hist=64, slots=EPOCH, width=LANES)
    grove.voter["seed"] = seeds
    grove.place["test"] = -1
    grove.place["n_nodes"][::2] = 1
    grove.place["cursor"][::2] = 1
    for field, value in (("feature", -1), ("left", -1)):
        grove.node[field][:, 0] = value
    for field in ("head", "parent"):
        grove.stat[field][:, 0] = -1
    return grove


def new_metric(width: int) -> NDArray[np.float32]:
    """Metrics in which nothing counts yet."""
    metric = np.zeros((2, 3, width), np.float32)
    metric[:, CAP] = np.inf
    return metric


def wider(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A copy in a larger array, zeros beyond it."""
    out = np.zeros(shape, array.dtype)
    out[tuple(slice(0, n) for n in array.shape)] = array
    return out


def enlarge(grove: Grove, want: NDArray[np.int64]) -> Grove:
    """Arrays that hold at least what the kernel wants; histograms packed.

    The arena only grows at the top, so part of what is full may be left-overs: the new size is twice
    what is live, or what is wanted beyond it. Each entry is copied O(1) times on average.
    """
    places, nodes = grove.node.shape
    if want[WANT_NODES] > nodes:
        shape = places, max(2 * nodes, int(want[WANT_NODES]))
        grove = grove._replace(node=wider(grove.node, shape), stat=wider(grove.stat, shape))
    if want[WANT_HIST] > grove.hist.shape[1]:
        live = max(histogram.live(grove, s) for s in range(places))
        extra = max(0, int(want[WANT_HIST]) - int(grove.place["hist_top"].min()))
        size = max(64, 2 * live + extra)
        hist = np.zeros((places, size), np.int32)
        for s in range(places):
            histogram.pack(grove, s, hist)
        grove = grove._replace(hist=hist)
    return grove


def enlarge_ring(grove: Grove, rows: int, slots: int, features: int, known: int) -> Grove:
    """A ring with at least `rows` slots (but no more than `slots`) and so many features.

    Rows that were there before a feature was lack it: NaN. Slots beyond the first turn are never
    needed, so numbers keep their slots while the ring grows to its full size.
    """
    have, width = grove.rows.shape
    if rows > have:
        new = min(slots, max(2 * have, rows))
        grove = grove._replace(
            rows=wider(grove.rows, (new, width)),
            labels=wider(grove.labels, (new,)),
            link=wider(grove.link, (len(grove.link), new)),
        )
    if padded(features) > width:
        grove = grove._replace(rows=wider(grove.rows, (len(grove.rows), padded(features))))
    if features > known:
        grove.rows[:, known:features] = np.nan
    return grove


def flatten(grove: Grove, learned: int, rows: int, slots: int) -> ring_state.Flat:
    """Trees without slack, with the newest `rows` rows."""
    nodes, classes = ring_state.measure(grove)
    flat = ring_state.empty(len(grove.place), nodes, classes, rows)
    ring_state.export(grove, learned, rows, slots, flat)
    return flat


def shrink_ring(
    grove: Grove,
    learned: int,
    slots: int,
    rows: int,
    p_structure: float,
    categorical: NDArray[np.uint8],
) -> Grove:
    """The same forest with a ring of `rows` readable rows: its features have become too many."""
    kept = min(learned, rows)
    flat = flatten(grove, learned, kept, slots)
    numbers = np.arange(learned - kept, learned)
    now = numbers % (rows + EPOCH)
    size = min(rows + EPOCH, len(grove.rows))
    small = grove._replace(
        rows=np.zeros((size, grove.rows.shape[1]), np.float32),
        labels=np.zeros(size, np.int32),
        link=np.zeros((len(grove.link), size), np.int32),
        hist=np.zeros_like(grove.hist),
    )
    small.rows[now] = grove.rows[numbers % slots]
    small.labels[now] = grove.labels[numbers % slots]
    ring_state.restore(small, learned, kept, rows + EPOCH, p_structure, categorical, flat)
    return small
