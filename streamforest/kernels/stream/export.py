"""A stream forest without its slack: the arrays of a snapshot, and back.

A snapshot holds what cannot be derived: nodes, histograms, and for each row of the ring the leaf it
lies in. Lists, streams of rows, totals and parents follow from it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import routine
from streamforest.kernels.stream.layout import TreeArrays, is_estimation, new_leaf, older, push


class Flat(NamedTuple):
    """All tree slots one after the other."""

    # per tree slot
    generation: NDArray[np.int64]
    n_nodes: NDArray[np.int64]
    cursor: NDArray[np.int64]
    building: NDArray[np.int64]
    # per node
    mask: NDArray[np.uint64]
    threshold: NDArray[np.float32]
    feature: NDArray[np.int32]
    left: NDArray[np.int32]
    missing_right: NDArray[np.uint8]
    n_structure: NDArray[np.int32]
    tested: NDArray[np.int32]
    gain: NDArray[np.float32]
    n_classes: NDArray[np.int32]
    # per class of a node
    node_class: NDArray[np.int32]
    node_count: NDArray[np.int32]
    # per tree slot and row of the ring, oldest first: its leaf, or -1
    leaf: NDArray[np.int32]


def empty(tree_slots: int, nodes: int, classes: int, rows: int) -> Flat:
    """Arrays to export into."""
    return Flat(
        generation=np.zeros(tree_slots, np.int64),
        n_nodes=np.zeros(tree_slots, np.int64),
        cursor=np.zeros(tree_slots, np.int64),
        building=np.zeros(tree_slots, np.int64),
        mask=np.zeros(nodes, np.uint64),
        threshold=np.zeros(nodes, np.float32),
        feature=np.zeros(nodes, np.int32),
        left=np.zeros(nodes, np.int32),
        missing_right=np.zeros(nodes, np.uint8),
        n_structure=np.zeros(nodes, np.int32),
        tested=np.zeros(nodes, np.int32),
        gain=np.zeros(nodes, np.float32),
        n_classes=np.zeros(nodes, np.int32),
        node_class=np.zeros(classes, np.int32),
        node_count=np.zeros(classes, np.int32),
        leaf=np.full(tree_slots * rows, -1, np.int32),
    )


@routine
def measure(g: TreeArrays) -> tuple[int, int]:
    """Nodes, and classes of nodes, in all tree slots."""
    nodes = 0
    classes = 0
    for s in range(g.tree_slot.shape[0]):
        nodes += g.tree_slot[s].n_nodes
        for i in range(g.tree_slot[s].n_nodes):
            classes += g.stat[s, i].n_classes
    return nodes, classes


@routine
def export(g: TreeArrays, learned: int, rows: int, slots: int, out: Flat) -> None:
    """Write every tree to `out`, with the newest `rows` of the `learned` rows."""
    n = 0
    h = 0
    for s in range(g.tree_slot.shape[0]):
        tree_slot = g.tree_slot[s]
        out.generation[s] = tree_slot.generation
        out.n_nodes[s] = tree_slot.n_nodes
        out.cursor[s] = tree_slot.cursor
        out.building[s] = tree_slot.building
        for i in range(tree_slot.n_nodes):
            node = g.node[s, i]
            stat = g.stat[s, i]
            out.mask[n] = node.mask
            out.threshold[n] = node.threshold
            out.feature[n] = node.feature
            out.left[n] = node.left
            out.missing_right[n] = node.missing_right
            out.n_structure[n] = stat.n_structure
            out.tested[n] = stat.tested
            out.gain[n] = stat.gain
            out.n_classes[n] = stat.n_classes
            n += 1
            for k in range(stat.n_classes):
                out.node_class[h] = g.hist[s, stat.hist + k]
                out.node_count[h] = g.hist[s, stat.hist + stat.room + k]
                h += 1
            number = stat.head
            while number >= 0 and number >= learned - rows:
                out.leaf[s * rows + number - (learned - rows)] = i
                slot = number % slots
                number = older(g.link[s, slot], number, slot, slots)


@routine
def restore(
    g: TreeArrays,
    learned: int,
    rows: int,
    slots: int,
    p_structure: float,
    categorical: NDArray[np.uint8],
    flat: Flat,
) -> None:
    """Fill arrays of sufficient size from a validated `flat`. The ring's rows are not touched."""
    n = 0
    h = 0
    for s in range(g.tree_slot.shape[0]):
        tree_slot = g.tree_slot[s]
        seed = g.voter[s >> 1].seed
        tree_slot.generation = flat.generation[s]
        tree_slot.n_nodes = flat.n_nodes[s]
        tree_slot.cursor = flat.cursor[s]
        tree_slot.building = flat.building[s]
        tree_slot.test = -1
        tree_slot.work = 0
        tree_slot.hist_top = 0
        for i in range(tree_slot.n_nodes):
            new_leaf(g, s, i, -1)
        for i in range(tree_slot.n_nodes):
            node = g.node[s, i]
            stat = g.stat[s, i]
            node.mask = flat.mask[n]
            node.threshold = flat.threshold[n]
            node.feature = flat.feature[n]
            node.left = flat.left[n]
            node.missing_right = flat.missing_right[n]
            if node.feature >= 0:
                node.categorical = categorical[node.feature]
                g.stat[s, node.left].parent = i
                g.stat[s, node.left + 1].parent = i
            stat.n_structure = flat.n_structure[n]
            stat.tested = flat.tested[n]
            stat.gain = flat.gain[n]
            stat.n_classes = flat.n_classes[n]
            stat.room = flat.n_classes[n]
            stat.hist = tree_slot.hist_top
            tree_slot.hist_top += 2 * stat.room
            for k in range(stat.n_classes):
                g.hist[s, stat.hist + k] = flat.node_class[h]
                g.hist[s, stat.hist + stat.room + k] = flat.node_count[h]
                stat.n += flat.node_count[h]
                h += 1
            n += 1
        for a in range(rows):
            i = flat.leaf[s * rows + a]
            if i >= 0:
                number = learned - rows + a
                flag = is_estimation(seed, tree_slot.generation, number, p_structure)
                push(g, s, i, number, flag, slots, rows)
