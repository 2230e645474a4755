"""The stream forest as arrays: one ring of rows for all trees, and the trees that hang on it.

Every field is documented here, once. The ring keeps the newest rows of the stream; a tree keeps no rows
of its own but chains those of each leaf into a list, newest first, by one link a row. Each tree has two
*tree slots*, 2t and 2t + 1: one holds the tree that votes, the other its challenger, if there is one.

A row has a number: how many rows had been learned before it. Row n lies in slot n modulo `slots`, and
`slots` exceeds the rows that may be read by an epoch, so that a whole epoch can be written before its
first row is learned and nothing readable is lost. A row may be read while its number is at least that
of the current row less `ring_rows`: the numbers along a list follow from the slots, so rows that have
left the ring end a list by themselves and nobody has to take them out.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.array_table import array
from streamforest.kernels.core.compiling import kernel

Record = Any
"""One element of a structured array: mypy knows nothing of its fields."""

FULL = 1 << 30
"""No count goes beyond this; a node that has seen more goes on unchanged."""

HISTORY = 8192
"""Errors a tree remembers, for the alarm."""

VOTER = np.dtype(
    [
        ("seed", "u8"),  # key of every random draw of this tree
        ("n_seen", "i8"),  # rows learned: the number of the next row
        ("n_classes", "i8"),  # classes seen
        ("active", "i8"),  # 0 or 1: the tree slot of the tree that votes
        ("launches", "i8"),  # challengers grown so far: the generation of the newest
        ("swaps", "i8"),  # challengers that won
        ("swapped", "i8"),  # n_seen at the last swap; 0: there was none
        ("racing", "i8"),  # 1 while there is a challenger
        ("raced", "i8"),  # events on which tree and challenger were compared
        ("only_tree_wrong", "i8"),  # of those, events that only the tree got wrong
        ("only_challenger_wrong", "i8"),  # and only the challenger
        ("challenger_errors", "i8"),  # errors of the challenger
        ("loss_counts", "f8"),  # fading sum of errors of the leaf's counts
        ("loss_neighbours", "f8"),  # and of its neighbours
        ("accuracy", "f8"),  # running accuracy of the better of the two
        ("judged", "i8"),  # events in it
    ],
    align=True,
)

TREE_SLOT = np.dtype(
    [
        ("generation", "i8"),  # key of the draws of the tree that stands here
        ("n_nodes", "i8"),  # 0: nothing stands here
        ("hist_top", "i8"),  # first unused entry of the arena of histograms
        ("cursor", "i8"),  # nodes from here on have not been tested yet
        ("test", "i8"),  # a leaf to be tested before them; -1: none
        ("building", "i8"),  # 1 while a new challenger is grown, a few tests an event
        ("work", "i8"),  # row·features sorted since the current row came
    ],
    align=True,
)

NODE = np.dtype(
    [
        ("mask", "u8"),  # of a category: the buckets that go right, see `bucket`
        ("threshold", "f4"),  # of a number: x <= threshold goes left
        ("feature", "i4"),  # -1 in a leaf
        ("left", "i4"),  # the right child is left + 1
        ("categorical", "u1"),
        ("missing_right", "u1"),  # where an event without the feature goes
    ],
    align=True,
)

STAT = np.dtype(
    [
        ("head", "i8"),  # number of the newest row of a leaf; -1: none
        ("hist", "i4"),  # histogram: classes in hist[hist : hist + room], then their counts
        ("room", "i4"),
        ("n_classes", "i4"),  # entries in use, sorted by class
        ("n", "i4"),  # estimation events that came here or through here
        ("n_structure", "i4"),  # structure events that came here while it was a leaf
        ("tested", "i4"),  # n_structure at the last split test
        ("parent", "i4"),  # -1 at the root
        ("gain", "f4"),  # of its split, in nats, summed over the rows it was chosen by
    ],
    align=True,
)


PARAMS = np.dtype(
    [
        ("ring_rows", "i8"),  # rows that may be read, as of this epoch
        ("slots", "i8"),  # modulus of the ring
        ("max_nodes", "i8"),
        ("test_rows", "i8"),
        ("n_candidates", "i8"),
        ("neighbours", "i8"),
        ("neighbour_power", "i8"),
        ("drift", "i8"),
        ("max_challenge_rows", "i8"),
        ("trial_events", "i8"),
        ("zero", "i8"),  # 1: rows are sparse, what an event lacks is 0
        ("p_structure", "f8"),
        ("test_growth", "f8"),
        ("smoothing", "f8"),
        ("neighbour_smoothing", "f8"),
        ("alarm", "f8"),
        ("challenge_rate", "f8"),
        ("rechallenge_rate", "f8"),
    ],
    align=True,
)
"""What the kernels need of the estimator's parameters; see there for their meaning and worth."""


class TreeArrays(NamedTuple):
    """The arrays of the trees and of their ring. Entries beyond `n_nodes` and `hist_top` mean nothing."""

    voter: Annotated[NDArray[np.void], array(VOTER, "trees")]
    tree_slot: Annotated[NDArray[np.void], array(TREE_SLOT, "tree slots")]
    node: Annotated[NDArray[np.void], array(NODE, "tree slots", "nodes")]
    stat: Annotated[NDArray[np.void], array(STAT, "tree slots", "nodes")]
    # classes and counts of nodes
    hist: Annotated[NDArray[np.int32], array(np.int32, "tree slots", "histogram entries")]
    # 2·(ring slot of the next older row + 1) + is estimation
    link: Annotated[NDArray[np.int32], array(np.int32, "tree slots", "ring slots")]
    # running count of errors, by row number
    errors: Annotated[NDArray[np.int32], array(np.int32, "trees", HISTORY)]
    # features padded to simd_distance.LANES; NaN is missing
    rows: Annotated[NDArray[np.float32], array(np.float32, "ring slots", "width")]
    labels: Annotated[NDArray[np.int32], array(np.int32, "ring slots")]


@kernel
def is_estimation(seed: np.uint64, generation: int, number: int, p_structure: float) -> int:
    """Which stream row `number` belongs to in the tree of this generation: 1 estimation, 0 structure.

    By a key of its own: no split, no challenger and no label can change it.
    """
    start = rng.key(seed, rng.RING_STREAM, generation)
    return 0 if rng.uniform(start, number) < p_structure else 1


@kernel
def bucket(code: int, node: int) -> int:
    """The bit of a node's mask that stands for a category.

    Below 64 categories each has its own. Beyond that some share one, but other nodes mix others, so
    that two categories together in one node come apart in the next.
    """
    return (code + (code >> 6) * (2 * node + 1)) & 63


@kernel
def goes_right(v: float, here: Record, i: int) -> int:
    """The side of node `i` (its record is `here`) a value goes to: 0 left, 1 right. NaN is missing."""
    if v != v:
        return 1 if here.missing_right else 0
    if here.categorical:
        if v < 0.0:  # a category that no learned event had
            return 1 if here.missing_right else 0
        return 1 if (here.mask >> np.uint64(bucket(int(v), i))) & np.uint64(1) else 0
    return 0 if v <= here.threshold else 1


@kernel
def descend(g: TreeArrays, s: int, x: NDArray[np.float32], r: int) -> int:
    """The leaf of the tree in tree slot `s` that row `r` of `x` falls into."""
    i = 0
    while g.node[s, i].feature >= 0:
        here = g.node[s, i]
        i = here.left + goes_right(x[r, here.feature], here, i)
    return i


@kernel
def older(link: int, number: int, slot: int, slots: int) -> int:
    """The number of the row that a link leads to, from row `number` in `slot`; -1 at the end."""
    to = (link >> 1) - 1
    if to < 0:
        return -1
    back = slot - to
    return number - (back if back > 0 else back + slots)


@kernel
def push(
    g: TreeArrays, s: int, i: int, number: int, estimation: int, slots: int, ring_rows: int
) -> None:
    """Row `number` becomes the newest of leaf `i`."""
    head = g.stat[s, i].head
    to = head % slots if head >= 0 and head >= number - ring_rows else -1
    g.link[s, number % slots] = 2 * (to + 1) + estimation
    g.stat[s, i].head = number


@kernel
def new_leaf(g: TreeArrays, s: int, i: int, parent: int) -> None:
    """Node `i` becomes an empty leaf without a histogram."""
    node = g.node[s, i]
    node.mask = np.uint64(0)
    node.threshold = np.float32(0.0)
    node.feature = -1
    node.left = -1
    node.categorical = 0
    node.missing_right = 0
    stat = g.stat[s, i]
    stat.head = -1
    stat.hist = 0
    stat.room = 0
    stat.n_classes = 0
    stat.n = 0
    stat.n_structure = 0
    stat.tested = 0
    stat.parent = parent
    stat.gain = np.float32(0.0)
