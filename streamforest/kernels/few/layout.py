"""Trees grown to purity as arrays: nodes, the rows of each leaf, and how an event finds its leaf.

Every field is documented here, once. Rows belong to the forest and are read-only within an epoch; a tree
knows of a row from the moment it has learned it. Indices are stored plus one where 0 means none, so that
zeroed arrays are empty ones.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import goes_right
from streamforest.kernels.core.array_table import array
from streamforest.kernels.core.compiling import kernel

Record = Any
"""One element of a structured array: mypy knows nothing of its fields."""

MOST_SUPPORT = 16
"""Support classes of one class, at most."""

# Purposes of random draws, as those in core/rng.py: part of the snapshot format, never used again.
DRAW_SPLIT = 32  # features and thresholds of a split, by generation of the tree, rows and node
DRAW_LEVEL = 33  # the same for the extra level, by generation, class and leaf
DRAW_EVICTED = 34  # which row leaves the memory, by row

EMPTY, MIXED = -2, -1
"""In place of the one class of a leaf: it has no rows, or rows of several classes."""

PARAMS = np.dtype(
    [
        ("variance", "f8"),  # of the prior; 0: 1/leaves²
        ("n_candidates", "i8"),  # features tried at a split; 0: the root of their number
        ("few_rows", "i8"),  # rows up to which a class uses its prior
        ("level_rows", "i8"),  # rows up to which it uses the extra level
        ("max_nodes", "i8"),
        ("balanced", "i8"),
        ("leave_one_out", "i8"),
    ],
    align=True,
)

TREE = np.dtype(
    [
        ("seed", "u8"),  # key of every random draw of this tree
        ("generation", "i8"),  # how often it was grown anew
        ("grown", "i8"),  # events learned when it last was
        ("n_nodes", "i8"),
        ("known", "i8"),  # features that were known at the last row it learned
    ],
    align=True,
)

NODE = np.dtype(
    [
        ("threshold", "f8"),  # x <= threshold goes left; for categories see in_right_set
        ("feature", "i4"),  # -1 in a leaf
        ("left", "i4"),  # the right child is left + 1; -1 in a leaf
        ("parent", "i4"),  # -1 of the root
        ("head", "i4"),  # newest row of a leaf, plus one
        ("n", "i4"),  # rows of a leaf
        ("only", "i4"),  # their class, if it is one; else EMPTY or MIXED
        ("wait", "i4"),  # rows a mixed leaf must have before it is tried again
        ("categorical", "u1"),
        ("missing_right", "u1"),  # where an event without the feature goes
    ],
    align=True,
)


class Trees(NamedTuple):
    """What belongs to each tree."""

    tree: Annotated[NDArray[np.void], array(TREE, "trees")]
    node: Annotated[NDArray[np.void], array(NODE, "trees", "nodes")]
    leaf: Annotated[NDArray[np.int32], array(np.int32, "trees", "slots")]  # of each row, plus one
    next: Annotated[NDArray[np.int32], array(np.int32, "trees", "slots")]  # older row, plus one
    totals: Annotated[NDArray[np.int64], array(np.int64, "trees", "classes")]  # rows of each class
    # of each helped class: u = λσ² of its MAP estimate, and whether the tree uses it
    multiplier: Annotated[NDArray[np.float64], array(np.float64, "trees", "helped")]
    uses_map: Annotated[NDArray[np.uint8], array(np.uint8, "trees", "helped")]


class Memory(NamedTuple):
    """Rows that the forest keeps, by slot."""

    rows: Annotated[NDArray[np.float64], array(np.float64, "slots", "width")]
    label: Annotated[NDArray[np.int32], array(np.int32, "slots")]
    number: Annotated[NDArray[np.int64], array(np.int64, "slots")]  # -1: no row


class Helped(NamedTuple):
    """Classes of few rows that have support classes."""

    label: Annotated[NDArray[np.int32], array(np.int32, "helped")]  # -1: none
    support: Annotated[NDArray[np.int32], array(np.int32, "helped", MOST_SUPPORT)]  # then -1
    member: Annotated[NDArray[np.int32], array(np.int32, "helped", "members")]  # slots, by number
    n_members: Annotated[NDArray[np.int64], array(np.int64, "helped")]


class SharedArrays(NamedTuple):
    """What else belongs to the forest and to no single tree."""

    params: Annotated[NDArray[np.void], array(PARAMS, 1)]
    progress: Annotated[NDArray[np.int64], array(np.int64, "trees")]
    routes: Annotated[NDArray[np.int64], array(np.int64, "trees")]
    categorical: Annotated[NDArray[np.uint8], array(np.uint8, "known features")]


@kernel
def descend(trees: Trees, t: int, i: int, x: NDArray[np.float64]) -> int:
    """The leaf below node `i` of tree `t` that `x` falls into."""
    node = trees.node
    while node[t, i].feature >= 0:
        here = node[t, i]
        i = here.left + goes_right(
            x[here.feature], here.threshold, here.categorical, here.missing_right
        )
    return i


@kernel
def add_row(trees: Trees, memory: Memory, t: int, i: int, slot: int) -> None:
    """Put a row, newer than all that are there, into leaf `i`."""
    node = trees.node[t, i]
    trees.next[t, slot] = node.head
    node.head = slot + 1
    trees.leaf[t, slot] = i + 1
    node.n += 1
    y = memory.label[slot]
    if node.only == EMPTY:
        node.only = y
    elif node.only != y:
        node.only = MIXED


@kernel
def remove_row(trees: Trees, memory: Memory, t: int, slot: int) -> None:
    """Take a row out of its leaf and out of the totals of its tree."""
    node = trees.node[t, trees.leaf[t, slot] - 1]
    trees.leaf[t, slot] = 0
    trees.totals[t, memory.label[slot]] -= 1
    node.n -= 1
    before = -1
    at = node.head - 1
    while at != slot:
        before = at
        at = trees.next[t, at] - 1
    if before < 0:
        node.head = trees.next[t, slot]
    else:
        trees.next[t, before] = trees.next[t, slot]
    trees.next[t, slot] = 0
    set_only(trees, memory, node, t)


@kernel
def set_only(trees: Trees, memory: Memory, node: Record, t: int) -> None:
    """Look what classes the rows of a leaf are of. A leaf of one class, or none, has not been tried."""
    node.only = EMPTY
    at = node.head - 1
    while at >= 0:
        if node.only == EMPTY:
            node.only = memory.label[at]
        elif node.only != memory.label[at]:
            node.only = MIXED
            return
        at = trees.next[t, at] - 1
    node.wait = 0


@kernel
def new_leaf(trees: Trees, t: int, i: int, parent: int) -> None:
    """Node `i` becomes a leaf without rows."""
    node = trees.node[t, i]
    node.threshold = 0.0
    node.feature = -1
    node.left = -1
    node.parent = parent
    node.head = 0
    node.n = 0
    node.only = EMPTY
    node.wait = 0
    node.categorical = 0
    node.missing_right = 0
