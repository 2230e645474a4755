"""NCM trees process the rows of a batch: each tree predicts and then learns, row by row."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import VOTE_UNIT
from streamforest.kernels.core.array_table import ROW, array
from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.ncm.blending import Blend
from streamforest.kernels.ncm.class_means import (
    answer_of_means,
    learn_mean,
    update_lead,
    vote_of_means,
)
from streamforest.kernels.ncm.descend import descend_all, descend_rows, newest_of_all
from streamforest.kernels.ncm.grow import FITS, HIST
from streamforest.kernels.ncm.layout import (
    PARAMS,
    TARGETS,
    TREES,
    Columns,
    MeanAnswers,
    Means,
    Memory,
    Record,
    Tree,
    descend,
    view,
)
from streamforest.kernels.ncm.leaf_growth import grow_leaf, has_room, learn
from streamforest.kernels.ncm.neighbours import newest, vote_of_neighbours
from streamforest.kernels.ncm.novelty import far_from_means, far_from_rows

WANT_TREE, WANT_ARRAY, WANT_ROWS = range(3)
"""What `want` says when an array is too small: of which tree, which array, for how many rows."""
LEAF, BEST = range(2)
"""What `routes` keeps of a tree and the last row: its leaf, and the class with the most votes there."""

_MEANS = -1  # where `progress` says whether the class means have processed the batch
_ERROR_RATE = 0.01
_AT_ONCE = 8  # rows that descend a tree side by side


class ForestArrays(NamedTuple):
    """What belongs to the forest and to none of its parts."""

    params: Annotated[NDArray[np.void], array(PARAMS, 1)]
    # the tables of addresses of all trees
    trees: Annotated[NDArray[np.int64], array(np.int64, "trees", len(Tree._fields), ROW)]
    # rows in memory of each class
    of_class: Annotated[NDArray[np.int64], array(np.int64, "classes")]
    categorical: Annotated[NDArray[np.uint8], array(np.uint8, "known features")]
    # half rows that each tree is done with, see `advance`; then the class means
    progress: Annotated[NDArray[np.int64], array(np.int64, "trees and means")]
    # of the last row in each tree: LEAF and BEST, and the squared distance of its nearest neighbour
    routes: Annotated[NDArray[np.int64], array(np.int64, "trees", 2)]
    nearest: Annotated[NDArray[np.float64], array(np.float64, "trees")]
    blends: Annotated[NDArray[np.float64], array(np.float64, "blends", 3)]
    xlogx: Annotated[NDArray[np.int64], array(np.int64, "xlogx")]
    # GROW_AT and SPLIT_AT
    functions: Annotated[NDArray[np.int64], array(np.int64, 2)]


@kernel
def vote(
    tree: Tree, i: int, of_class: NDArray[np.int64], balanced: int, votes: NDArray[np.int64], r: int
) -> int:
    """Add the answer of leaf `i` to `votes[r, TREES]`; its most probable class, -1 for an empty leaf.

    Balanced: a class' count is divided by its rows in memory, so that a class with few rows wins where
    most of them are.
    """
    here = tree.node[i]
    total = 0.0
    highest = 0.0
    best = -1
    for k in range(here.n_classes):
        y = tree.hist[here.hist + k]
        share = float(tree.hist[here.hist + here.room + k])
        if balanced:
            share /= of_class[y]
        total += share
        if share > highest:
            highest = share
            best = y
    if best < 0:
        return -1
    unit = VOTE_UNIT / total
    for k in range(here.n_classes):
        y = tree.hist[here.hist + k]
        share = float(tree.hist[here.hist + here.room + k])
        if balanced:
            share /= of_class[y]
        votes[r, TREES, y] += np.int64(np.rint(share * unit))
    return best


@kernel
def advance(
    memory: Memory,
    columns: Columns,
    means: Means,
    answers: MeanAnswers,
    blend: Blend,
    own: ForestArrays,
    first: int,
    last: int,
    want: NDArray[np.int64],
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    slots: NDArray[np.int32],
    number: int,
    classes: int,
    active_metric: int,
    reuse: bool,
    count_only: bool,
    votes: NDArray[np.int64],
    distances: NDArray[np.float32],
) -> bool:
    """Take trees `first` to `last` through the rows of a batch: predict, then learn, row by row.

    Every row that is learned is answered too, whatever `op` says, since trees are judged by their
    answers; with `count_only` rows enter their leaves without an answer and without a split. The class
    means go with tree 0. `number` is that of the first row learned, `classes` and `of_class` are as of
    the first row; later rows are counted here. `progress[t]` counts half rows (a row answered and
    counted, its leaf not yet tried). Returns False when an array of a tree is too small, with `want`
    filled in. `distances`, if it has columns, gets how far each row is from what each tree and, in its
    last row, the class means know.
    """
    trees, of_class, progress, routes = own.trees, own.of_class, own.progress, own.routes
    p = own.params[0]
    fill, scales, usual, nearest = columns.fill, columns.scales, blend.usual, own.nearest
    answers_rows = not count_only
    grows = p.grows and answers_rows
    n = x.shape[0]
    if first == 0 and progress[_MEANS] == 0:
        _advance_means(
            means, answers, scales, p, x, y, op, number, active_metric, reuse, answers_rows, votes,
            distances,
        )  # fmt: skip
        progress[_MEANS] = 1
    now_of = of_class.copy() if n > 1 else of_class
    alone = n == 1 and not reuse  # then the row descends all trees together
    if alone:
        leaves = np.empty(last, np.int64)
        descend_all(trees, first, last, x, leaves)
    else:
        leaves = np.empty(_AT_ONCE, np.int64)
    n_near = np.empty(last, np.int64)
    near_slots = np.empty((last, p.neighbours + 1), np.int64)
    square = np.empty(p.neighbours, np.float32)
    if alone and answers_rows and p.neighbours:
        newest_of_all(trees, first, last, memory, leaves, p.neighbours, near_slots, n_near)
    only_predicts = not alone and not (op & LEARN).any()  # then rows descend side by side
    for t in range(first, last):
        tree = view(trees, t)
        info = tree.info[0]
        seen = classes
        row_number = number
        begin = progress[t] >> 1
        if n > 1:
            for c in range(of_class.shape[0]):
                now_of[c] = of_class[c]
            for r in range(begin):  # what was learned before the call was interrupted
                if op[r] & LEARN:
                    now_of[y[r]] += 1
                    seen = max(seen, y[r] + 1)
                    row_number += 1
        for r in range(begin, n):
            learns = op[r] & LEARN
            leaf = routes[t, LEAF]
            due = progress[t] & 1
            if not due:
                if alone:
                    leaf = leaves[t]
                elif only_predicts:
                    if (r - begin) % _AT_ONCE == 0:
                        descend_rows(tree, x, r, min(n, r + _AT_ONCE), leaves)
                    leaf = leaves[(r - begin) % _AT_ONCE]
                elif not reuse:
                    leaf = descend(tree, 0, x, r)
                if learns and not has_room(tree, leaf):  # before anything has changed
                    want[WANT_TREE] = t
                    want[WANT_ARRAY] = HIST
                    want[WANT_ROWS] = 1
                    return False
                if not reuse:
                    routes[t, LEAF] = leaf
                    if answers_rows:
                        routes[t, BEST] = vote(tree, leaf, now_of, p.balanced, votes, r)
                        if p.neighbours:
                            if not alone:
                                n_near[t] = newest(tree, leaf, p.neighbours, near_slots, t)
                            nearest[t] = vote_of_neighbours(
                                tree, near_slots, t, n_near[t], memory, scales, usual, x, r,
                                square, votes,
                            )  # fmt: skip
                            if r < distances.shape[1] and nearest[t] >= 0.0:
                                distances[t, r] = far_from_rows(tree, nearest[t], usual)
                if learns:
                    due = learn(tree, leaf, slots[r], y[r], row_number, p, grows)
                    if answers_rows:
                        wrong = 0 if routes[t, BEST] == y[r] else 1
                        rate = max(_ERROR_RATE, 1.0 / (1.0 + row_number - info.born))
                        info.error += (wrong - info.error) * rate
                        info.errors += wrong
                        if nearest[t] >= 0.0:
                            info.near += nearest[t]
                            info.nears += 1
            if due:
                progress[t] = 2 * r + 1
                short = grow_leaf(
                    tree, leaf, memory, fill, max(seen, y[r] + 1), p, own.xlogx, own.functions
                )
                if short != FITS:
                    want[WANT_TREE] = t
                    want[WANT_ARRAY] = short
                    want[WANT_ROWS] = tree.node[leaf].n
                    return False
            if learns:
                if n > 1:
                    now_of[y[r]] += 1
                seen = max(seen, y[r] + 1)
                row_number += 1
            progress[t] = 2 * (r + 1)
    progress[first:last] = 0
    if first == 0:
        progress[_MEANS] = 0
    return True


@kernel
def _advance_means(
    means: Means,
    answers: MeanAnswers,
    scales: NDArray[np.float32],
    p: Record,
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    number: int,
    active_metric: int,
    reuse: bool,
    answers_rows: bool,
    votes: NDArray[np.int64],
    distances: NDArray[np.float32],
) -> None:
    """Take the class means through the rows. `answers` gets what they say of rows that are learned."""
    compares = answers_rows and p.covariance
    classes = min(votes.shape[2], means.n.shape[0])  # labels of later rows may be known already
    score = np.empty(classes, np.float32)
    off = np.empty((1, x.shape[1]), np.float32)
    for r in range(x.shape[0]):
        learns = op[r] & LEARN
        if r < distances.shape[1]:
            distances[distances.shape[0] - 1, r] = far_from_means(means, scales, x, r)
        if compares and not reuse:
            for target in range(TARGETS):
                if target != active_metric and r >= answers.best.shape[0]:
                    continue
                best, lead = answer_of_means(means, target, x, r, classes, score)
                if r < answers.best.shape[0]:
                    answers.best[r, target] = best
                    answers.lead[r, target] = lead
                if target == active_metric and best >= 0:
                    vote_of_means(means, target, best, score, votes, r)
        if learns:
            if compares:
                for target in range(TARGETS):
                    update_lead(means, target, answers.lead[r, target], number)
            learn_mean(means, x, r, y[r], scales, p.covariance, off)
            number += 1
