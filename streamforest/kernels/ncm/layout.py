"""The NCM forest as arrays: one memory of rows for all trees, and trees that differ in size.

Every field is documented here, once. A tree owns its arrays (`Tree`): it can be grown elsewhere and put in
the place of another by exchanging a few addresses, and one tree that needs room moves no other. Kernels
get a table of addresses and make views of it (`view`); whoever owns the arrays keeps them alive.

The memory keeps rows of the stream in *slots*, with a number each: how many rows had been learned before
it. Slots mean nothing: whatever depends on an order goes by number. Rows of a leaf are chained in both
directions, so that a row that leaves the memory leaves its leaf at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.array_table import borrowed, pointer
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.simd_dot import dot, dot2, dot4, dot8

Record = Any
"""One element of a structured array: mypy knows nothing of its fields."""

RAW, STANDARD, WITHIN, FULL_PLAIN, FULL_SCALED = range(5)
"""Metrics: columns as they are, over their variance, over their variance within the classes, and through
the two lenses of `class_means`, which know the whole covariance within the classes."""

METRICS = 5

_FAR = np.float32(1e38)

TREE = np.dtype(
    [
        ("seed", "u8"),  # key of every random draw of this tree
        ("draws", "i8"),  # split tests so far: the index of the next test's draws
        ("rounds", "i8"),  # rounds so far: the index of the next round's draws
        ("bag", "i8"),  # index of the draws of the bag that fills the leaves
        ("grown_bag", "i8"),  # and of the bag that the splits were grown from
        ("born", "i8"),  # rows learned when the splits were last grown anew
        ("kept", "i8"),  # rounds in a row that the tree was kept by
        ("metric", "i8"),  # RAW … FULL_SCALED
        ("n_nodes", "i8"),
        ("n_rows", "i8"),  # rows of `cen` in use
        ("hist_top", "i8"),  # first unused entry of the arena of histograms
        ("error", "f8"),  # running share of events that the tree alone got wrong
        ("errors", "i8"),  # since the last epoch: events it got wrong
        (
            "near",
            "f8",
        ),  # since the last epoch: sum of squared distances of the nearest row of a leaf
        ("nears", "i8"),  # and how many
    ],
    align=True,
)

NODE = np.dtype(
    [
        ("left", "i4"),  # the right child is left + 1; -1 in a leaf
        ("first", "i4"),  # first centroid
        ("k", "i4"),  # centroids; 1: a plane, left is where x·cen > half
        ("n", "i4"),  # leaf: rows in it, each as often as the bag has it
        ("hist", "i4"),  # leaf: classes in hist[hist : hist + room], then their counts
        ("room", "i4"),
        ("n_classes", "i4"),  # entries in use
        ("head", "i4"),  # leaf: the slot of one of its rows; -1: none
        ("due", "i4"),  # leaf: n from which on a split is tried
    ],
    align=True,
)


class Tree(NamedTuple):
    """The arrays of one tree. Entries beyond `n_nodes`, `n_rows` and `hist_top` mean nothing.

    A centroid c is stored as c·metric with ½·c·metric·c beside it: the nearest one has the smallest
    half − x·cen, and events never have to be scaled.
    """

    info: NDArray[np.void]  # TREE [1]
    node: NDArray[np.void]  # NODE [nodes]
    hist: NDArray[np.int32]  # classes and counts of leaves
    half: NDArray[np.float32]  # [rows]
    side: NDArray[np.uint8]  # [rows] 0 left, 1 right
    label: NDArray[np.int32]  # [rows] the class whose mean a centroid is; -1 of a plane
    cen: NDArray[np.float32]  # [rows, width]
    leaf: NDArray[np.int32]  # [slots] the leaf a row lies in; -1: in none
    next: NDArray[np.int32]  # [slots] the next row of the same leaf; -1
    prev: NDArray[np.int32]  # [slots]
    metric: NDArray[np.float32]  # [1, width] or, through a lens, [width, width]


FIELDS = Tree._fields
_SHAPE = len(FIELDS)  # in the table: addresses, then nodes, hist, rows, width, slots, metric's rows
TABLE_WIDTH = _SHAPE + 6
NODE_AT, HIST_AT, HALF_AT, SIDE_AT, CEN_AT, NEXT_AT = (
    FIELDS.index(name) for name in ("node", "hist", "half", "side", "cen", "next")
)
WIDTH_AT = _SHAPE + 3
"""Columns of the table."""


class Memory(NamedTuple):
    """The rows that all trees were grown from, by slot."""

    rows: NDArray[np.float32]  # [slots, width]; NaN is missing
    label: NDArray[np.int32]  # [slots]
    number: NDArray[np.int64]  # [slots] of the row; -1: free


PARAMS = np.dtype(
    [
        ("mu", "i8"),
        ("svm", "i8"),  # 1: splits are planes by hinge loss
        ("assignments", "i8"),  # sides tried at random; 0: greedy flips
        ("starts", "i8"),  # of greedy flips
        ("candidates", "i8"),  # planes tried
        ("planes", "i8"),  # 1: two centroids are kept as the plane between them
        ("bagged", "i8"),  # 1: each tree has each row Poisson(1) times
        ("balanced", "i8"),  # 1: a leaf's count of a class counts by the class' rows in memory
        ("grows", "i8"),  # 1: leaves are split as rows come
        ("neighbours", "i8"),  # rows of a leaf that are looked at one by one, the newest
        ("lenses", "i8"),  # 1: the class means are seen through lenses, and vote
        ("judges", "i8"),  # 1: trees are judged by their answers to what they learn
        ("rule", "i8"),  # how the classes say how many centroids a node has
        ("amount", "f8"),  # and the factor, share or number in that rule
        ("max_nodes", "i8"),
        ("max_rows", "i8"),  # centroids of a tree
    ],
    align=True,
)
"""What the kernels need of the estimator's parameters; see there for their meaning and worth."""


def addresses(tree: Tree) -> list[int]:
    """The row of the table that `view` makes the same tree of."""
    shape = (
        len(tree.node),
        len(tree.hist),
        *tree.cen.shape,
        len(tree.leaf),
        len(tree.metric),
    )
    return [array.ctypes.data for array in tree] + list(shape)


@kernel
def view(table: NDArray[np.int64], t: int) -> Tree:
    """Tree `t` of a table of addresses."""
    at = table[t]
    nodes = at[_SHAPE]
    hist = at[_SHAPE + 1]
    rows = at[_SHAPE + 2]
    width = at[_SHAPE + 3]
    slots = at[_SHAPE + 4]
    return Tree(
        carray(pointer(at[0]), (1,), TREE),
        carray(pointer(at[1]), (nodes,), NODE),
        carray(pointer(at[2]), (hist,), np.int32),
        carray(pointer(at[3]), (rows,), np.float32),
        carray(pointer(at[4]), (rows,), np.uint8),
        carray(pointer(at[5]), (rows,), np.int32),
        carray(pointer(at[6]), (rows, width), np.float32),
        carray(pointer(at[7]), (slots,), np.int32),
        carray(pointer(at[8]), (slots,), np.int32),
        carray(pointer(at[9]), (slots,), np.int32),
        carray(pointer(at[10]), (at[_SHAPE + 5], width), np.float32),
    )


@kernel
def lent(tree: Tree) -> Tree:
    """The same tree, borrowed (`seats.borrowed`)."""
    return Tree(
        borrowed(tree.info),
        borrowed(tree.node),
        borrowed(tree.hist),
        borrowed(tree.half),
        borrowed(tree.side),
        borrowed(tree.label),
        borrowed(tree.cen),
        borrowed(tree.leaf),
        borrowed(tree.next),
        borrowed(tree.prev),
        borrowed(tree.metric),
    )


@kernel
def nearest(
    x: NDArray[np.float32],
    r: int,
    cen: NDArray[np.float32],
    half: NDArray[np.float32],
    first: int,
    k: int,
) -> int:
    """Which of the `k` centroids from `first` on is nearest to row `r` of `x`; the first of equals."""
    best = 0
    least = np.float32(np.inf)
    j = 0
    while j + 8 <= k:
        eight = dot8(x, r, cen, first + j)
        for i in range(8):
            a = half[first + j + i] - eight[i]
            if a < least:
                least = a
                best = j + i
        j += 8
    while j + 4 <= k:
        a, b, c, d = dot4(x, r, cen, first + j)
        a = half[first + j] - a
        b = half[first + j + 1] - b
        c = half[first + j + 2] - c
        d = half[first + j + 3] - d
        if a < least:
            least = a
            best = j
        if b < least:
            least = b
            best = j + 1
        if c < least:
            least = c
            best = j + 2
        if d < least:
            least = d
            best = j + 3
        j += 4
    if j + 2 <= k:
        a, b = dot2(x, r, cen, first + j)
        a = half[first + j] - a
        b = half[first + j + 1] - b
        if a < least:
            least = a
            best = j
        if b < least:
            least = b
            best = j + 1
        j += 2
    if j < k and half[first + j] - dot(x, r, cen, first + j) < least:
        best = j
    return best


@kernel
def goes_right(tree: Tree, here: Record, x: NDArray[np.float32], r: int) -> int:
    """The side of a splitting node (its record is `here`) that row `r` of `x` goes to."""
    if here.k == 1:
        return 0 if dot(x, r, tree.cen, here.first) > tree.half[here.first] else 1
    return int(tree.side[here.first + nearest(x, r, tree.cen, tree.half, here.first, here.k)])


@kernel
def descend(tree: Tree, i: int, x: NDArray[np.float32], r: int) -> int:
    """The leaf below node `i` that row `r` of `x` falls into."""
    while tree.node[i].left >= 0:
        here = tree.node[i]
        i = here.left + goes_right(tree, here, x, r)
    return i


@kernel
def times_in_bag(seed: np.uint64, bag: int, number: int, bagged: int) -> int:
    """How often a bag of a tree holds row `number`: Poisson(1), or once where nothing is bagged."""
    if not bagged:
        return 1
    u = rng.uniform(rng.key(seed, rng.NCM_BAG, bag), number)
    times = 0
    share = 0.36787944117144233  # exp(-1)
    below = share
    while u >= below and times < 12:
        times += 1
        share /= times
        below += share
    return times


@kernel
def held(v: np.float32) -> np.float32:
    """A number that differences of two can hold: what float32 cannot is far away, or nothing."""
    if v > _FAR:
        return _FAR
    if v < -_FAR:
        return -_FAR
    return v if v == v else np.float32(0.0)


@kernel
def within(v: float) -> np.float32:
    """A number that float32 holds, and that differences of two can hold."""
    return np.float32(min(max(v, -1e38), 1e38)) if v == v else np.float32(0.0)
