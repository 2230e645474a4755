"""The stream forest's kernel: trees move through the rows of a batch, predict and then learn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.core.simd_distance import LANES
from streamforest.kernels.stream.descend import descend_all
from streamforest.kernels.stream.drift import (
    better_expert,
    challenge,
    compare,
    decide,
    judge,
    launch,
    vote_weight,
)
from streamforest.kernels.stream.histogram import count_path, path_room
from streamforest.kernels.stream.layout import (
    FULL,
    Record,
    TreeArrays,
    descend,
    is_estimation,
    push,
)
from streamforest.kernels.stream.split import try_split
from streamforest.kernels.stream.votes import COUNTS, NEAR, Answers, answer, favourite, heard, vote

WANT_NODES, WANT_HIST = range(2)
LEAF, BEST_COUNTS, BEST_NEAR = range(3)
"""What `routes` keeps of a tree and the last row: its leaf, and the class each expert favours."""

_BUILD_WORK = 10_000
"""Row·features a challenger under construction may sort an event: about one test of a full leaf."""

_START, _GROWING = range(2)


@kernel
def narrow(x: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows as the ring holds them: float32, padded with zeros; zero has no sign."""
    n = x.shape[0]
    d = x.shape[1]
    out = np.zeros((n, (d + LANES - 1) // LANES * LANES), np.float32)
    for r in range(n):
        for f in range(d):
            out[r, f] = np.float32(x[r, f]) + np.float32(0.0)
    return out


@kernel
def _room_to_learn(
    g: TreeArrays, t: int, leaf: int, challenger_leaf: int, want: NDArray[np.int64]
) -> bool:
    """Whether the histograms that one row can touch fit; asked before anything is changed."""
    active = 2 * t + g.voter[t].active
    other = 2 * t + 1 - g.voter[t].active
    need = g.tree_slot[active].hist_top + path_room(g, active, leaf)
    if challenger_leaf >= 0:
        need = max(need, g.tree_slot[other].hist_top + path_room(g, other, challenger_leaf))
    # a new challenger's root may see every class, and its histogram moves as it fills
    need = max(need, 8 * (g.voter[t].n_classes + 2))
    want[WANT_NODES] = 0
    want[WANT_HIST] = need
    return bool(need <= g.hist.shape[1])


@kernel
def _learn(g: TreeArrays, t: int, s: int, leaf: int, y: int, p: Record) -> None:
    """The current row joins its leaf; whether the leaf is due for a test is noted in the tree slot."""
    voter = g.voter[t]
    tree_slot = g.tree_slot[s]
    flag = is_estimation(voter.seed, tree_slot.generation, voter.n_seen, p.p_structure)
    push(g, s, leaf, voter.n_seen, flag, p.slots, p.ring_rows)
    if flag:
        count_path(g, s, leaf, y)
        return
    stat = g.stat[s, leaf]
    if stat.n_structure >= FULL:
        return
    stat.n_structure += 1
    due = max(1.0, p.test_growth * min(stat.tested, p.test_rows))
    if leaf < tree_slot.cursor and stat.n_structure - stat.tested >= due:
        tree_slot.test = leaf


@routine
def grow(
    g: TreeArrays,
    t: int,
    s: int,
    now: int,
    p: Record,
    n_features: int,
    categorical: NDArray[np.uint8],
    steps: NDArray[np.int64],
    table: NDArray[np.int64],
    want: NDArray[np.int64],
) -> bool:
    """Test the leaf that is due, and every leaf made by that. False if an array is too small.

    Where it stopped stands in the tree slot, so the same call goes on after enlarging. A challenger under
    construction does no more than `_BUILD_WORK` an event: the stream is never held up by it.
    """
    tree_slot = g.tree_slot[s]
    seed = g.voter[t].seed
    classes = min(g.voter[t].n_classes, p.ring_rows)
    while tree_slot.test >= 0 or tree_slot.cursor < tree_slot.n_nodes:
        i = tree_slot.test if tree_slot.test >= 0 else tree_slot.cursor
        stat = g.stat[s, i]
        full = tree_slot.n_nodes + 2 > p.max_nodes
        if not full and g.node[s, i].feature < 0 and stat.n_structure > stat.tested:
            if tree_slot.building and tree_slot.work > _BUILD_WORK:
                return True
            want[WANT_NODES] = tree_slot.n_nodes + 2
            want[WANT_HIST] = tree_slot.hist_top + 16 * (classes + 2)
            if want[WANT_NODES] > g.node.shape[1] or want[WANT_HIST] > g.hist.shape[1]:
                return False
            stat.tested = stat.n_structure
            tree_slot.work += try_split(
                g, s, i, now, seed, p, n_features, categorical, steps, table
            )
        if tree_slot.test >= 0:
            tree_slot.test = -1
        else:
            tree_slot.cursor += 1
    tree_slot.building = 0
    return True


@kernel
def _idle(tree_slot: Record) -> bool:
    """Whether nothing waits for a test here."""
    return bool(tree_slot.test < 0 and tree_slot.cursor >= tree_slot.n_nodes)


@kernel
def advance(
    g: TreeArrays,
    p: Record,
    metric: NDArray[np.float32],
    power: float,
    steps: NDArray[np.int64],
    table: NDArray[np.int64],
    first: int,
    last: int,
    progress: NDArray[np.int64],
    want: NDArray[np.int64],
    batch: NDArray[np.float64],
    y: NDArray[np.int64],
    op: NDArray[np.uint8],
    n_features: NDArray[np.int64],
    categorical: NDArray[np.uint8],
    routes: NDArray[np.int64],
    reuse: bool,
    votes: NDArray[np.int64],
) -> bool:
    """Move trees `first` to `last` through the rows of a batch: predict, then learn, row by row.

    Every row is answered and voted on, since learning it needs to know what the forest would have
    said, whatever `op` says. `progress[t]` counts half rows (a row answered and counted, its growth
    still to be done); all zero when the batch is finished. Returns False when an array is too small
    for what comes next, with `want` filled in. With `reuse`, `routes` holds what was found for row 0
    before.
    """
    voter, tree_slot = g.voter, g.tree_slot
    x = narrow(batch)
    alone = x.shape[0] == 1 and not reuse  # then all trees go down together
    leaves = np.empty(last if alone else 0, np.int64)
    if alone:
        descend_all(g, first, last, x, leaves)
    out = Answers(
        np.zeros((2, votes.shape[2] + 1), np.float32),
        np.empty(p.neighbours, np.int32),
        np.empty(p.neighbours, np.float32),
        np.empty(p.neighbours, np.float32),
    )
    for t in range(first, last):
        this = voter[t]
        for r in range(progress[t] >> 1, x.shape[0]):
            learns = op[r] & LEARN
            now = this.n_seen
            if progress[t] & 1 == _START:
                active = 2 * t + this.active
                other = 2 * t + 1 - this.active
                leaf = routes[t, LEAF]
                if alone:
                    leaf = leaves[t]
                elif not reuse:
                    leaf = descend(g, active, x, r)
                challenger_leaf = -1
                if learns:
                    if this.racing:
                        challenger_leaf = descend(g, other, x, r)
                    if not _room_to_learn(g, t, leaf, challenger_leaf, want):
                        return False
                if not reuse:
                    most = heard(p, n_features[r])
                    answer(g, active, leaf, now, p, most, metric, x, r, this.n_classes, out)
                    routes[t, LEAF] = leaf
                    routes[t, BEST_COUNTS] = favourite(out, COUNTS, this.n_classes)
                    routes[t, BEST_NEAR] = favourite(out, NEAR, this.n_classes)
                    vote(out, vote_weight(this, power), this.n_classes, votes, r)
                if learns:
                    expert = better_expert(this)
                    wrong = judge(
                        g, t, routes[t, BEST_COUNTS] != y[r], routes[t, BEST_NEAR] != y[r]
                    )
                    if challenger_leaf >= 0 and not tree_slot[other].building:
                        answer(
                            g, other, challenger_leaf, now, p, heard(p, n_features[r]),
                            metric, x, r, this.n_classes, out,
                        )  # fmt: skip
                        compare(this, wrong, favourite(out, expert, this.n_classes) != y[r])
                    this.n_classes = max(this.n_classes, y[r] + 1)
                    tree_slot[active].work = 0
                    tree_slot[other].work = 0
                    _learn(g, t, active, leaf, y[r], p)
                    if challenger_leaf >= 0:
                        _learn(g, t, other, challenger_leaf, y[r], p)
                progress[t] += 1
            if learns:
                for s in range(2 * t, 2 * t + 2):
                    if not _idle(tree_slot[s]) and not grow(
                        g, t, s, now, p, n_features[r], categorical, steps, table, want
                    ):
                        return False
                if p.drift:
                    if this.racing:
                        if not tree_slot[2 * t + 1 - this.active].building:
                            decide(g, t, p.trial_events)
                    else:
                        size = challenge(g, t, p)
                        if size > 0:
                            launch(g, t, size, p)
                this.n_seen += 1
            progress[t] += 1
    progress[first:last] = 0
    return True
