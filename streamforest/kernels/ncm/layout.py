"""The NCM forest as arrays: one memory of rows for all trees, and trees that differ in size.

Every field is documented here, once. A tree owns its arrays (`Tree`), so a tree that was grown elsewhere
replaces another by a change of addresses, and a tree that needs room moves no other.

The memory keeps rows of the stream in *slots*. Each row has a number: how many rows had been learned before
it. Slots have no order: whatever depends on an order goes by number. The rows of a leaf are chained in both
directions, so that a row that leaves the memory leaves its leaf at once.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core import rng
from streamforest.kernels.core.array_table import ArrayTable, array
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.simd_dot import dot, dot2, dot4, dot8

Record = Any
"""One element of a structured array: mypy knows nothing of its fields."""

RAW, STANDARD, WITHIN, FULL_IDENTITY, FULL_DIAGONAL = range(5)
"""Metrics: columns as they are, over their variance, over their variance within the classes, and by the
whole covariance within the classes, shrunk towards the identity or towards its diagonal (`class_means`)."""

METRICS = 5

IDENTITY, DIAGONAL = range(2)
TARGETS = 2
"""What the covariance within the classes is shrunk towards: a multiple of the identity, or its diagonal."""

TREES, MEANS, NEIGHBOURS = range(3)
"""The experts of a forest, in the order of the votes."""

_FAR = np.float32(1e38)

TREE = np.dtype(
    [
        ("seed", "u8"),  # key of every random draw of this tree
        ("draws", "i8"),  # split tests so far: the index of the next test's draws
        ("rounds", "i8"),  # times it was retrained: the index of the next retraining's draws
        ("bag", "i8"),  # index of the draws of the bag that fills the leaves
        ("grown_bag", "i8"),  # and of the bag that the splits were grown from
        ("born", "i8"),  # rows learned when the splits were last grown anew
        ("kept", "i8"),  # retrainings in a row that kept its splits
        ("metric", "i8"),  # RAW … FULL_DIAGONAL
        ("n_nodes", "i8"),
        ("n_rows", "i8"),  # rows of `cen` in use
        ("hist_top", "i8"),  # first unused entry of the arena of histograms
        ("error", "f8"),  # running share of events that the tree alone got wrong
        ("errors", "i8"),  # since the last epoch: events it got wrong
        # since the last epoch: sum of the squared distances from the nearest row of a leaf
        ("near", "f8"),
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

PARAMS = np.dtype(
    [
        ("mu", "i8"),
        ("svm", "i8"),  # 1: splits are planes by hinge loss
        ("assignments", "i8"),  # sides tried at random; 0: greedy flips
        ("starts", "i8"),  # of greedy flips
        ("candidates", "i8"),  # planes tried
        ("svm_passes", "f8"),  # steps of descent for each row
        ("svm_penalty", "f8"),  # on the length of a plane
        ("planes", "i8"),  # 1: two centroids are kept as the plane between them
        ("bagged", "i8"),  # 1: each tree has each row Poisson(1) times
        ("balanced", "i8"),  # 1: a leaf's count of a class is divided by the class' rows in memory
        ("grows", "i8"),  # 1: leaves are split as rows come
        ("neighbours", "i8"),  # rows of a leaf that are compared one by one, the newest
        ("covariance", "i8"),  # 1: the covariance within the classes is kept, and class means vote
        ("rule", "i8"),  # how the number of classes gives the number of centroids of a node
        ("amount", "f8"),  # and the factor, share or number in that rule
        ("max_nodes", "i8"),
        ("max_rows", "i8"),  # centroids of a tree
        ("sets", "i8"),  # sets of centroids tried at a node; 0: one, of a fixed size
        ("lambda_reg", "f8"),  # what a centroid costs, in nats
        ("lambda_coarse", "f8"),  # weight of the gain of categories; 0: there are none
        ("joint", "i8"),  # 1: that gain is over rows without a class only
    ],
    align=True,
)
"""What the kernels need of the estimator's parameters; see there for their meaning and worth."""


class Tree(NamedTuple):
    """The arrays of one tree. Entries beyond `n_nodes`, `n_rows` and `hist_top` mean nothing.

    A centroid c is stored as c·metric with ½·c·metric·c beside it: the nearest one has the smallest
    half − x·cen, and events never have to be scaled.
    """

    info: Annotated[NDArray[np.void], array(TREE, 1)]
    node: Annotated[NDArray[np.void], array(NODE, "nodes")]
    # classes and counts of leaves
    hist: Annotated[NDArray[np.int32], array(np.int32, "histogram entries")]
    half: Annotated[NDArray[np.float32], array(np.float32, "centroids")]
    # 0 left, 1 right
    side: Annotated[NDArray[np.uint8], array(np.uint8, "centroids")]
    # the class whose mean a centroid is; -1 of a plane
    label: Annotated[NDArray[np.int32], array(np.int32, "centroids")]
    cen: Annotated[NDArray[np.float32], array(np.float32, "centroids", "width")]
    # of each row in memory: its leaf, -1 in none; the next and the previous row of that leaf, -1 at an end
    leaf: Annotated[NDArray[np.int32], array(np.int32, "slots")]
    next: Annotated[NDArray[np.int32], array(np.int32, "slots")]
    prev: Annotated[NDArray[np.int32], array(np.int32, "slots")]
    # a weight for each column, or a whole matrix
    metric: Annotated[NDArray[np.float32], array(np.float32, "metric rows", "width")]


TREE_ARRAYS = ArrayTable(Tree)
_view = TREE_ARRAYS.view

NODE_AT, HIST_AT, HALF_AT, SIDE_AT, CEN_AT, NEXT_AT = (
    Tree._fields.index(name) for name in ("node", "hist", "half", "side", "cen", "next")
)
"""Rows of a tree's table of addresses."""


class Memory(NamedTuple):
    """The rows that all trees are grown from."""

    # NaN is missing
    rows: Annotated[NDArray[np.float32], array(np.float32, "slots", "width")]
    label: Annotated[NDArray[np.int32], array(np.int32, "slots")]
    # of the row; -1: the slot is free
    number: Annotated[NDArray[np.int64], array(np.int64, "slots")]
    # code of its category, see `regularised.category_of`
    upper: Annotated[NDArray[np.int32], array(np.int32, "slots")]


class Columns(NamedTuple):
    """How features become columns of the memory, and what is known of each column."""

    # of each feature: its first column, -1: it has none yet; and how many categories were learned
    first: Annotated[NDArray[np.int32], array(np.int32, "features")]
    categories: Annotated[NDArray[np.int32], array(np.int32, "features")]
    # rows SEEN, MEAN, VARIANCE and SHIFT of `row_memory`
    stats: Annotated[NDArray[np.float64], array(np.float64, 4, "width")]
    # what stands for a missing value
    fill: Annotated[NDArray[np.float32], array(np.float32, "width")]
    # the two distances of `neighbours`, each as `simd_distance` reads it
    scales: Annotated[NDArray[np.float32], array(np.float32, 2, 3, "width")]


class Means(NamedTuple):
    """Class means, and the shrunk covariances they are compared by."""

    mean: Annotated[NDArray[np.float32], array(np.float32, "classes", "width")]
    # events of each class
    n: Annotated[NDArray[np.int64], array(np.int64, "classes")]
    # squared distance of events from the mean of their class, on average
    spread: Annotated[NDArray[np.float64], array(np.float64, "classes")]
    # sum of products of differences from the mean; one row: the diagonal
    scatter: Annotated[NDArray[np.float64], array(np.float64, "scatter rows", "width")]
    # events in that sum, fading
    weight: Annotated[NDArray[np.float64], array(np.float64, 1)]
    # inverse of each shrunk covariance, as of some epoch; one row: the diagonal
    inverse: Annotated[
        NDArray[np.float32], array(np.float32, TARGETS, "inverse rows", "inverse columns")
    ]
    # means times each inverse, target by target; and ½·mean·inverse·mean
    projected: Annotated[NDArray[np.float32], array(np.float32, "projected means", "width")]
    half: Annotated[NDArray[np.float32], array(np.float32, "projected means")]
    # running lead of the nearest mean over the second
    lead: Annotated[NDArray[np.float64], array(np.float64, TARGETS)]


class MeanAnswers(NamedTuple):
    """What the class means answered to the rows of a batch that are learned."""

    # the nearest class, -1: none; and its lead over the second
    best: Annotated[NDArray[np.int64], array(np.int64, "batch rows", TARGETS)]
    lead: Annotated[NDArray[np.float64], array(np.float64, "batch rows", TARGETS)]


class TrainingRows(NamedTuple):
    """Rows to grow a tree or a part of one from, by number: every sum over them has one order."""

    z: NDArray[np.float32]  # [rows, width]; missing values are filled in
    slot: NDArray[np.int32]
    label: NDArray[np.int32]
    times: NDArray[np.int32]  # in the bag; 0: the row gets a leaf, but chooses no split
    upper: NDArray[np.int32]  # code of the category, see `regularised.category_of`


class NodeRows(NamedTuple):
    """Training rows as a split of a node sees them: those of the node are from `low` to `high`."""

    z: NDArray[np.float32]
    upper: NDArray[np.int32]
    order: NDArray[np.int32]  # which training row
    which: NDArray[np.int32]  # its class, by place among those of the node
    times: NDArray[np.int32]  # in the bag
    cell: NDArray[np.int32]  # out: the side that it goes to
    present: NDArray[np.int32]  # the classes of the node
    n_of: NDArray[np.int32]  # rows of each


@kernel
def view(trees: NDArray[np.int64], t: int) -> Tree:
    """Tree `t` of a stack of tables of addresses."""
    tree: Tree = _view(trees[t])[0]
    return tree


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
def clipped(v: np.float32) -> np.float32:
    """The number within a range in which the difference of any two is finite; 0 for NaN."""
    if v > _FAR:
        return _FAR
    if v < -_FAR:
        return -_FAR
    return v if v == v else np.float32(0.0)


@kernel
def clipped_float32(v: float) -> np.float32:
    """The same for a double, as float32."""
    return np.float32(min(max(v, -1e38), 1e38)) if v == v else np.float32(0.0)
