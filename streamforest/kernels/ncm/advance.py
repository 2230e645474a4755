"""NCM trees move through the rows of a batch: each predicts and then learns, row by row."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.candidate.layout import VOTE_UNIT
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.ncm.class_means import (
    LENSES,
    Means,
    answer_of_means,
    learn_mean,
    note_gap,
    vote_of_means,
)
from streamforest.kernels.ncm.descend import descend_all, descend_rows, newest_of_all
from streamforest.kernels.ncm.grow import FITS, HIST, grow
from streamforest.kernels.ncm.layout import Memory, Record, Tree, descend, times_in_bag, view
from streamforest.kernels.ncm.leaves import count, hist_room, link
from streamforest.kernels.ncm.neighbours import newest, vote_of_neighbours
from streamforest.kernels.ncm.novelty import far_from_means, far_from_rows
from streamforest.kernels.ncm.row_memory import fill_in, ground_of_leaf

WANT_TREE, WANT_ARRAY, WANT_ROWS = range(3)
LEAF, BEST = range(2)
"""What `routes` keeps of a tree and the last row: its leaf, and the class it favours."""

SQRT, LOG, SHARE, FIXED = range(4)
"""How many centroids a node may have, by the number of classes."""

MEANS = -1
"""Where `progress` says whether the class means have been moved."""

_ERROR_RATE = 0.01
_AT_ONCE = 8  # rows that go down a tree side by side


@kernel
def centroids_for(classes: int, p: Record) -> int:
    """Centroids of a node when so many classes are known."""
    k = float(p.amount)
    if p.rule == SQRT:
        k *= math.sqrt(classes)
    elif p.rule == LOG:
        k *= math.log(max(classes, 1))
    elif p.rule == SHARE:
        k *= classes
    return max(2, math.ceil(k))


@kernel
def vote(
    tree: Tree, i: int, of_class: NDArray[np.int64], balanced: int, votes: NDArray[np.int64], r: int
) -> int:
    """Add the answer of leaf `i` to `votes[r, 0]`; the class it favours, -1 for an empty leaf.

    Balanced: a class' count over its rows in memory, so that a class with few rows is heard where
    most of them lie.
    """
    here = tree.node[i]
    total = 0.0
    most = 0.0
    best = -1
    for k in range(here.n_classes):
        y = tree.hist[here.hist + k]
        share = float(tree.hist[here.hist + here.room + k])
        if balanced:
            share /= of_class[y]
        total += share
        if share > most:
            most = share
            best = y
    if best < 0:
        return -1
    unit = VOTE_UNIT / total
    for k in range(here.n_classes):
        y = tree.hist[here.hist + k]
        share = float(tree.hist[here.hist + here.room + k])
        if balanced:
            share /= of_class[y]
        votes[r, 0, y] += np.int64(np.rint(share * unit))
    return best


@kernel
def has_room(tree: Tree, i: int) -> bool:
    """Whether one more class fits into the histogram of leaf `i`."""
    return bool(tree.info[0].hist_top + hist_room(tree.node[i]) <= tree.hist.shape[0])


@kernel
def learn(tree: Tree, i: int, slot: int, y: int, number: int, p: Record) -> int:
    """The row in `slot` joins leaf `i`, which has room: 1 if the leaf is due for a split, else 0."""
    info = tree.info[0]
    here = tree.node[i]
    link(tree, i, slot)
    w = times_in_bag(info.seed, info.bag, number, p.bagged)
    if w == 0:
        return 0
    count(tree, i, y, w)
    due = p.grows and here.n_classes > 1 and here.n > 2 * p.mu and here.n >= here.due
    return 1 if due else 0


@routine
def grow_leaf(
    tree: Tree,
    i: int,
    memory: Memory,
    fill: NDArray[np.float32],
    classes: int,
    p: Record,
    table: NDArray[np.int64],
) -> int:
    """Try to split leaf `i` by its own rows. FITS, or which array is too small."""
    n_centroids = centroids_for(classes, p)
    info = tree.info[0]
    here = tree.node[i]
    k = 1 if p.svm else max(2, min(n_centroids, here.n_classes))
    if info.n_nodes + 2 > p.max_nodes or info.n_rows + k > p.max_rows:
        here.due = 0  # the tree is full: not worth a look at the rows
        return FITS
    ground = ground_of_leaf(memory, tree, i, fill, p.bagged)
    return grow(tree, i, False, ground, p, n_centroids, classes, table)


@routine
def grow_leaves(
    tree: Tree,
    begin: int,
    memory: Memory,
    fill: NDArray[np.float32],
    classes: int,
    p: Record,
    table: NDArray[np.int64],
) -> tuple[int, int]:
    """Try every leaf from node `begin` on that can be split (IGT). FITS, or what is too small, and
    the node to go on with.
    """
    n = tree.info[0].n_nodes
    for i in range(begin, n):
        here = tree.node[i]
        if here.left < 0 and here.n_classes > 1 and here.n > 2 * p.mu and here.n >= here.due:
            short = grow_leaf(tree, i, memory, fill, classes, p, table)
            if short != FITS:
                return short, i
    return FITS, n


@kernel
def advance(
    trees: NDArray[np.int64],
    memory: Memory,
    means: Means,
    near: NDArray[np.float32],
    usual: NDArray[np.float64],
    of_class: NDArray[np.int64],
    fill: NDArray[np.float32],
    p: Record,
    table: NDArray[np.int64],
    first: int,
    last: int,
    progress: NDArray[np.int64],
    want: NDArray[np.int64],
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    slots: NDArray[np.int32],
    number: int,
    classes: int,
    routes: NDArray[np.int64],
    picks: NDArray[np.int64],
    leads: NDArray[np.float64],
    nears: NDArray[np.float64],
    speaker: int,
    reuse: bool,
    votes: NDArray[np.int64],
    strange: NDArray[np.float32],
) -> bool:
    """Move trees `first` to `last` through the rows of a batch: predict, then learn, row by row.

    Every row that is learned is answered too, whatever `op` says, since trees are judged by their
    answers. The class means move with tree 0. `number` is that of the first row learned, `classes`
    and `of_class` (rows in memory, by class) are as of the first row; later rows are counted here.
    `progress[t]` counts half rows (a row answered and counted, its leaf not yet tried). Returns False
    when an array of a tree is too small, with `want` filled in. `strange`, if it has columns, gets what
    each tree and, in its last row, the class means say about how far each row is from what they know.
    """
    n = x.shape[0]
    if first == 0 and progress[MEANS] == 0:
        _move_means(means, near, x, y, op, number, reuse, p, speaker, picks, leads, votes, strange)
        progress[MEANS] = 1
    now_of = of_class.copy() if n > 1 else of_class
    alone = n == 1 and not reuse  # then all trees go down together
    if alone:
        leaves = np.empty(last, np.int64)
        descend_all(trees, first, last, x, leaves)
    else:
        leaves = np.empty(_AT_ONCE, np.int64)
    found = np.empty(last, np.int64)
    rows = np.empty((last, p.neighbours + 1), np.int64)
    square = np.empty(p.neighbours, np.float32)
    if alone and p.judges and p.neighbours:
        newest_of_all(trees, first, last, memory, leaves, p.neighbours, rows, found)
    still = not alone and not (op & LEARN).any()  # then rows go down side by side
    for t in range(first, last):
        tree = view(trees, t)
        info = tree.info[0]
        seen = classes
        at = number
        begin = progress[t] >> 1
        if n > 1:
            now_of[:] = of_class
            for r in range(begin):  # what was learned before the call was interrupted
                if op[r] & LEARN:
                    now_of[y[r]] += 1
                    seen = max(seen, y[r] + 1)
                    at += 1
        for r in range(begin, n):
            learns = op[r] & LEARN
            leaf = routes[t, LEAF]
            due = progress[t] & 1
            if not due:
                if alone:
                    leaf = leaves[t]
                elif still:
                    if (r - begin) % _AT_ONCE == 0:
                        descend_rows(tree, x, r, min(n, r + _AT_ONCE), leaves)
                    leaf = leaves[(r - begin) % _AT_ONCE]
                elif not reuse:
                    leaf = descend(tree, 0, x, r)
                if learns and not has_room(tree, leaf):  # before anything has been said or done
                    want[WANT_TREE] = t
                    want[WANT_ARRAY] = HIST
                    want[WANT_ROWS] = 1
                    return False
                if not reuse:
                    routes[t, LEAF] = leaf
                    if p.judges:
                        routes[t, BEST] = vote(tree, leaf, now_of, p.balanced, votes, r)
                        if p.neighbours:
                            if not alone:
                                found[t] = newest(tree, leaf, p.neighbours, rows, t)
                            nears[t] = vote_of_neighbours(
                                tree, rows, t, found[t], memory, near, usual, x, r, square, votes
                            )
                            if r < strange.shape[1] and nears[t] >= 0.0:
                                strange[t, r] = far_from_rows(tree, nears[t], usual)
                if learns:
                    due = learn(tree, leaf, slots[r], y[r], at, p)
                    if p.judges:
                        wrong = 0 if routes[t, BEST] == y[r] else 1
                        rate = max(_ERROR_RATE, 1.0 / (1.0 + at - info.born))
                        info.error += (wrong - info.error) * rate
                        info.errors += wrong
                        if nears[t] >= 0.0:
                            info.near += nears[t]
                            info.nears += 1
            if due:
                progress[t] = 2 * r + 1
                short = grow_leaf(tree, leaf, memory, fill, max(seen, y[r] + 1), p, table)
                if short != FITS:
                    want[WANT_TREE] = t
                    want[WANT_ARRAY] = short
                    want[WANT_ROWS] = tree.node[leaf].n
                    return False
            if learns:
                if n > 1:
                    now_of[y[r]] += 1
                seen = max(seen, y[r] + 1)
                at += 1
            progress[t] = 2 * (r + 1)
    progress[first:last] = 0
    if first == 0:
        progress[MEANS] = 0
    return True


@kernel
def _move_means(
    means: Means,
    near: NDArray[np.float32],
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    number: int,
    reuse: bool,
    p: Record,
    speaker: int,
    picks: NDArray[np.int64],
    leads: NDArray[np.float64],
    votes: NDArray[np.int64],
    strange: NDArray[np.float32],
) -> None:
    """The class means through the rows. `picks` gets each lens' class for rows that are judged."""
    judges = p.judges and p.lenses
    classes = min(votes.shape[2], means.n.shape[0])  # labels of later rows may be known already
    score = np.empty(classes, np.float32)
    off = np.empty((1, x.shape[1]), np.float32)
    for r in range(x.shape[0]):
        learns = op[r] & LEARN
        if r < strange.shape[1]:
            strange[strange.shape[0] - 1, r] = far_from_means(means, near, x, r)
        if judges and not reuse:
            for lens in range(LENSES):
                if lens != speaker and r >= picks.shape[0]:
                    continue
                best, lead = answer_of_means(means, lens, x, r, classes, score)
                if r < picks.shape[0]:
                    picks[r, lens] = best
                    leads[r, lens] = lead
                if lens == speaker and best >= 0:
                    vote_of_means(means, lens, best, score, votes, r)
        if learns:
            if judges:
                for lens in range(LENSES):
                    note_gap(means, lens, leads[r, lens], number)
            learn_mean(means, x, r, y[r], near, p.lenses, off)
            number += 1


@routine
def catch_up(
    trees: NDArray[np.int64],
    t: int,
    rows: NDArray[np.float32],
    label: NDArray[np.int32],
    numbers: NDArray[np.int64],
    fill: NDArray[np.float32],
    params: NDArray[np.void],
    table: NDArray[np.int64],
    slots: NDArray[np.int32],
    classes: int,
    progress: NDArray[np.int64],
) -> int:
    """A tree that was grown aside learns the rows that came meanwhile. FITS, or what is too small.

    `progress[0]` counts half rows, as in `advance`; the same call goes on after enlarging.
    """
    memory = Memory(rows, label, numbers)
    p = params[0]
    tree = view(trees, t)
    z = np.empty((1, rows.shape[1]), np.float32)
    for a in range(progress[0] >> 1, slots.shape[0]):
        slot = slots[a]
        leaf = tree.leaf[slot]
        due = progress[0] & 1
        if not due:
            z[0] = rows[slot]
            fill_in(z, fill)
            leaf = descend(tree, 0, z, 0)
            if not has_room(tree, leaf):
                return HIST
            due = learn(tree, leaf, slot, label[slot], numbers[slot], p)
        if due:
            progress[0] = 2 * a + 1
            short = grow_leaf(tree, leaf, memory, fill, classes, p, table)
            if short != FITS:
                return short
        progress[0] = 2 * (a + 1)
    return FITS
