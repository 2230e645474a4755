"""Retraining one tree: growing it anew, or one of the papers' strategies.

A job reads the memory as it was when the job was started: slots that become free meanwhile are not written
to before it is done. So it may run in any thread, at once or later, and gives the same tree.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import demand
from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.forests.ncm.column_scales import Take
from streamforest.forests.ncm.width import compacted
from streamforest.kernels.core.entropy import XLOGX
from streamforest.kernels.ncm import filling, leaf_growth, node_sampling, rust
from streamforest.kernels.ncm.grow import FITS, HIST, grow
from streamforest.kernels.ncm.layout import FULL_IDENTITY, Memory, Record, TrainingRows, Tree
from streamforest.kernels.ncm.metric import metric_of
from streamforest.kernels.ncm.row_memory import sort_by_number, training_rows

NODE_SAMPLING = {
    "quality": node_sampling.QUALITY,
    "size": node_sampling.SIZE,
    "uniform": node_sampling.UNIFORM,
}

MAX_ROUNDS = (1 << 30) - 1
"""Where a tree stops counting its retrainings: they are the upper half of its draws' index."""

MAX_KEPT = 1_024
"""Where a tree stops counting the retrainings in a row that kept it: judging it takes a step for each."""


@dataclass
class TrainingView:
    """What all jobs that are started together see: the memory, and what the forest knows of it."""

    born: int  # rows learned
    memory: Memory
    slots: NDArray[np.int32]  # of the rows in memory, in the order of their numbers
    columns: int  # in use
    fill: NDArray[np.float32]  # what stands for a missing value
    classes: int
    params: NDArray[np.void]
    functions: NDArray[np.int64]  # that kernels call by address
    inverses: NDArray[np.float32]  # of the shrunk covariances
    scale: NDArray[np.float32] | None  # a metric that was fixed once and for all
    pi: float  # share of the nodes that are drawn
    sampling: int  # how they are drawn
    new_classes: NDArray[np.int32]  # since the last retraining of all trees

    @classmethod
    def past(cls, born: int, columns: int, params: NDArray[np.void]) -> TrainingView:
        """What is left of a view when its jobs are done."""
        empty = np.zeros((0, 0), np.float32)
        return cls(
            born=born,
            memory=Memory(
                empty, np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int32)
            ),
            slots=np.zeros(0, np.int32),
            columns=columns,
            fill=empty.ravel(),
            classes=0,
            params=params,
            functions=np.zeros(2, np.int64),
            inverses=empty[None],
            scale=None,
            pi=0.0,
            sampling=0,
            new_classes=np.zeros(0, np.int32),
        )

    @property
    def p(self) -> Record:
        """The kernels' parameters."""
        return self.params[0]

    @property
    def bagged(self) -> int:
        """1 if each tree has each row Poisson(1) times."""
        return int(self.p["bagged"])

    @property
    def n_centroids(self) -> int:
        """Centroids of a node."""
        return leaf_growth.centroids_for(self.classes, self.p)

    def metric(self, kind: int, rows: TrainingRows) -> NDArray[np.float32]:
        """The metric of a kind by these rows."""
        if self.scale is not None:
            out = np.zeros((1, rows.z.shape[1]), np.float32)
            out[:, : self.scale.shape[1]] = self.scale
            out[:, self.scale.shape[1] : self.columns] = 1.0
            return out
        if kind >= FULL_IDENTITY:
            inverse: NDArray[np.float32] = self.inverses[kind - FULL_IDENTITY].copy()
            return inverse
        return metric_of(kind, rows.z, rows.label, self.classes, self.columns)

    def rows(self, tree: Tree, slots: NDArray[np.int32]) -> TrainingRows:
        """Rows to grow a part of a tree from."""
        info = tree.info[0]
        return training_rows(
            self.memory,
            slots,
            self.fill,
            tree.cen.shape[1],
            info["seed"],
            int(info["bag"]),
            self.bagged,
        )


@dataclass
class RetrainJob:
    """A tree that replaces tree `t` after `swap_at` rows."""

    t: int
    kind: str
    """`fresh`, `refill`, `prune` or the name of a strategy."""
    view: TrainingView
    swap_at: int
    before: Tree | None
    """The tree it is made from; of one grown anew only the seed and the counters are used. None: done."""
    metric: int
    future: Future[Tree] | None = None
    result: Tree | None = None
    process: int = field(default_factory=os.getpid)

    def work(self) -> Tree:
        """Make the tree: the same one in any thread at any time."""
        assert self.before is not None
        if self.kind == "fresh":
            return grown(self.view, root(self.view, self.before, self.metric))
        tree = ncm_arrays.copied(self.before)
        tree.info["rounds"] = _next_round(tree)
        return _STRATEGIES[self.kind](self.view, tree)

    def tree(self) -> Tree:
        """The finished tree; waits if it must. A forked child has no thread to wait for."""
        if self.result is None:
            waits = self.future is not None and (self.process == os.getpid() or self.future.done())
            self.result = self.future.result() if waits and self.future else self.work()
            self.future = None
        return self.result


def _next_round(tree: Tree) -> int:
    return min(int(tree.info["rounds"][0]) + 1, MAX_ROUNDS)


def root(view: TrainingView, before: Tree, metric: int) -> Tree:
    """A tree that is nothing but a root, to be grown in place of `before`, with a bag of its own.

    It has room for more than trees of so many rows usually take, since growing starts again where room
    is short; a grown tree is trimmed. Histograms always fit: a leaf takes at most four entries a row.
    """
    rounds = _next_round(before)
    m = len(view.slots)
    tree = ncm_arrays.new_tree(
        int(before.info["seed"][0]),
        nodes=min(int(view.p["max_nodes"]), m) + 64,
        hist=4 * m + 256,
        rows=min(int(view.p["max_rows"]), m + m // 2) + 64,
        slots=len(view.memory.label),
        metric=np.ones((1, view.memory.rows.shape[1]), np.float32),
    )
    info = tree.info
    info["rounds"] = info["bag"] = info["grown_bag"] = rounds
    info["draws"] = rounds << 32  # draws of its own, whatever the tree before it has used
    info["born"] = view.born
    info["metric"] = metric
    return tree


def grown(view: TrainingView, tree: Tree) -> Tree:
    """The root grown to a tree."""
    rows = view.rows(tree, view.slots)
    tree = tree._replace(metric=view.metric(int(tree.info["metric"][0]), rows))
    return ncm_arrays.trimmed(_grow(view, tree, 0, rows))


def _grow(view: TrainingView, tree: Tree, top: int, rows: TrainingRows) -> Tree:
    """A new subtree at leaf `top`."""
    split = int(view.functions[leaf_growth.SPLIT_AT])
    while True:
        short = grow(tree, top, True, rows, view.p, view.n_centroids, view.classes, XLOGX, split)
        if short == FITS:
            return tree
        tree = ncm_arrays.enlarged(tree, short, len(rows.slot))


def _igt(view: TrainingView, tree: Tree) -> Tree:
    """Incrementally grow tree (Ristin 2016, 4.2): split the leaves that can be split now."""
    begin = 0
    while True:
        short, begin = leaf_growth.grow_leaves(
            tree, begin, view.memory, view.fill, view.classes, view.p, XLOGX, view.functions
        )
        if short == FITS:
            return tree
        tree = ncm_arrays.enlarged(tree, short, len(view.slots))


def _draw(view: TrainingView, tree: Tree) -> tuple[node_sampling.Survey, NDArray[np.int32]]:
    survey = node_sampling.survey(tree, view.slots)
    drawn = node_sampling.draw_nodes(
        tree, view.memory, survey, view.pi, view.sampling, view.bagged, view.classes, XLOGX
    )
    return survey, drawn


def _slots_below(view: TrainingView, survey: node_sampling.Survey, q: int) -> NDArray[np.int32]:
    slots = survey.row[survey.start[q] : survey.start[survey.end[q]]].copy()
    sort_by_number(slots, view.memory.number)
    return slots


def _rtst(view: TrainingView, tree: Tree) -> Tree:
    """Retrain subtree (Ristin 2016, 4.3): drawn nodes become leaves again and are grown anew."""
    survey, drawn = _draw(view, tree)
    if len(drawn) == 0:
        return _igt(view, tree)
    done = 0  # places up to here lie below a node that was grown anew
    for q in sorted(survey.place[drawn].tolist()):
        if q < done:
            continue
        done = int(survey.end[q])
        i = int(survey.node[q])
        rows = view.rows(tree, _slots_below(view, survey, q))
        here = tree.node[i : i + 1]
        here["left"], here["first"], here["k"] = -1, 0, 0
        tree = _grow(view, tree, i, rows)
    return _igt(view, compacted(tree, view.slots))


def _rust(view: TrainingView, tree: Tree) -> Tree:
    """Reuse subtree (Ristin 2016, 4.4): drawn nodes take in the new classes, upper ones first."""
    _, drawn = _draw(view, tree)
    for i in drawn.tolist():
        survey = node_sampling.survey(tree, view.slots)
        rows = view.rows(tree, _slots_below(view, survey, int(survey.place[i])))
        while True:
            short = rust.take_in(
                tree, i, rows, view.new_classes, view.n_centroids, view.classes, view.p, XLOGX
            )
            if short == FITS:
                break
            tree = ncm_arrays.enlarged(tree, short, 0)
        right = int(survey.place[tree.node["left"][i] + 1])
        while rust.pass_again(tree, i, rows, survey.place, right) != FITS:
            tree = ncm_arrays.enlarged(tree, HIST, len(rows.slot))
    tree = _cut(view, tree, int(view.p["mu"]))
    return _igt(view, compacted(tree, view.slots))


def _prune(view: TrainingView, tree: Tree) -> Tree:
    """Cut empty leaves."""
    return compacted(_cut(view, tree, 1), view.slots)


def _cut(view: TrainingView, tree: Tree, least: int) -> Tree:
    """Cut leaves with fewer than `least` rows."""
    rows = len(view.slots)
    while rust.cut_small(tree, view.memory, view.slots, view.fill, least, view.bagged) != FITS:
        tree = ncm_arrays.enlarged(tree, HIST, rows)
        rows *= 2  # a leaf of many classes takes more than four entries a row
    return tree


def _refill(view: TrainingView, tree: Tree) -> Tree:
    """Keep the splits, fill the leaves from a new bag (hi-RF's RLP)."""
    info = tree.info
    info["bag"] = info["rounds"]
    info["kept"] = min(int(info["kept"][0]) + 1, MAX_KEPT)
    while filling.refill(tree, view.memory, view.slots, view.bagged) != FITS:
        tree = tree._replace(hist=np.zeros(2 * len(tree.hist), np.int32))
    return tree


def _refill_and_grow(view: TrainingView, tree: Tree) -> Tree:
    return _igt(view, _refill(view, tree))


_STRATEGIES = {
    "igt": _igt,
    "rtst": _rtst,
    "rust": _rust,
    "prune": _prune,
    "refill": _refill,
    "refill-and-grow": _refill_and_grow,
}


# ---- snapshots


def dump_jobs(jobs: list[RetrainJob]) -> dict[str, NDArray[Any]]:
    """The arrays of a snapshot, less the trees themselves."""

    def column(values: list[int], dtype: type[np.generic] = np.int64) -> NDArray[Any]:
        return np.array(values, dtype)

    return {
        "retraining_jobs.tree": column([job.t for job in jobs]),
        "retraining_jobs.swap_at": column([job.swap_at for job in jobs]),
        "retraining_jobs.fresh": column([job.kind == "fresh" for job in jobs], np.uint8),
        "retraining_jobs.started": column([job.view.born for job in jobs]),
        "retraining_jobs.columns": column([job.view.columns for job in jobs]),
    }


def restore_jobs(
    take: Take, n_trees: int, learned: int, swap_after: int, counting: int, params: NDArray[np.void]
) -> list[RetrainJob]:
    """The jobs that `dump_jobs` described, checked; their trees are still missing.

    Trees are stored finished, so all that is left of their view is when it was.
    """
    t = take("retraining_jobs.tree", np.int64)
    n = len(t)
    demand(len(np.unique(t)) == n and n <= n_trees, "retraining_jobs.tree")
    demand((t >= 0) & (t < n_trees), "retraining_jobs.tree")
    swap_at = take("retraining_jobs.swap_at", np.int64, n)
    fresh = take("retraining_jobs.fresh", np.uint8, n)
    started = take("retraining_jobs.started", np.int64, n)
    columns = take("retraining_jobs.columns", np.int64, n)
    demand(fresh <= 1, "retraining_jobs.fresh")
    demand((started >= 1) & (started <= learned), "retraining_jobs.started")
    demand((swap_at > learned) & (swap_at <= started + swap_after), "retraining_jobs.swap_at")
    demand((started % EPOCH == 0) & (swap_at % EPOCH == 0), "retraining_jobs.swap_at")
    demand((columns >= 0) & (columns <= counting), "retraining_jobs.columns")
    return [
        RetrainJob(
            t=int(t[k]),
            kind="fresh" if fresh[k] else "refill",
            view=TrainingView.past(int(started[k]), int(columns[k]), params),
            swap_at=int(swap_at[k]),
            before=None,
            metric=0,
        )
        for k in range(n)
    ]
