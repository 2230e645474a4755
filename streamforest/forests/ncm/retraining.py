"""When the trees of an NCM forest are retrained: what is due at the end of an epoch, and the jobs that run.

Everything here happens between epochs. A job is started at one boundary, and its tree is swapped in at a
later one, `swap_after` events on, whether it was grown in another thread or not: the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import LARGEST, demand
from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.forests.ncm.class_means import ClassMeans
from streamforest.forests.ncm.column_scales import ColumnTable, Take
from streamforest.forests.ncm.metric_choice import MetricChoice
from streamforest.forests.ncm.row_memory import RowMemory
from streamforest.forests.ncm.training import (
    NODE_SAMPLING,
    RetrainJob,
    TrainingView,
    dump_jobs,
    restore_jobs,
)
from streamforest.forests.ncm.trees import TreeStore
from streamforest.forests.ncm.vote_blend import VoteBlend
from streamforest.kernels.core.entropy import XLOGX
from streamforest.kernels.ncm import leaf_growth
from streamforest.kernels.ncm.grow import FITS
from streamforest.kernels.ncm.layout import STANDARD
from streamforest.kernels.ncm.metric import metric_of
from streamforest.kernels.ncm.row_memory import forget

STRATEGIES = ("rolling", "hirf", "uls", "igt", "rtst", "rust")
_FIRST_ROWS = 32  # rows before the first trees are grown
_BATCHES = 25  # a batch of new classes is a share of all of one over this
_FULL = 0.9  # of the nodes a tree may have, from which on empty leaves are cut
_ROUND_COST = 0.5  # credit that retraining all trees costs, in trees grown anew per tree


class Parts(NamedTuple):
    """The parts of a forest that retraining reads, and the trees that it replaces."""

    columns: ColumnTable
    memory: RowMemory
    means: ClassMeans
    blend: VoteBlend
    trees: TreeStore


class Now(NamedTuple):
    """The end of an epoch."""

    learned: int  # rows
    threads: int  # that retrain trees; 0: they are retrained in line


class RetrainScheduler:
    """Which trees are retrained when, and the jobs that do it.

    Parameters
    ----------
    parameters
        Those of the forest.
    parts
        The rest of the forest.
    """

    def __init__(self, parameters: Mapping[str, Any], parts: Parts) -> None:
        self._parameters = parameters
        self._parts = parts
        self.metrics = MetricChoice(parameters["metric"], parameters["split"], parts.memory.seed)
        self.trees_are_grown = False  # the first ones
        self.credit = 0.0  # trees that may be grown anew
        self.ready = 0  # classes with enough rows at the last retraining of all trees
        self.known = 0  # classes known at that time
        self.scale: NDArray[np.float32] | None = None  # a metric that was fixed once and for all
        self.started = np.zeros(len(parts.trees), np.int64)  # when each tree was last grown anew
        self.jobs: list[RetrainJob] = []
        self.n_grown = 0  # trees grown anew so far
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = 0  # a child made by fork() has none of its parent's threads

    def __getstate__(self) -> dict[str, object]:
        for job in self.jobs:
            job.tree()  # a copy has finished trees only
        return {**self.__dict__, "_pool": None}

    # ---- the end of an epoch

    def end_epoch(self, now: Now) -> None:
        """Swap in trees that are due, and start new jobs."""
        strategy = self._parameters["strategy"]
        self._swap(now)
        self._note_epoch(now)
        if not self.trees_are_grown:
            if self._parts.means.n_classes >= 2 and now.learned >= _FIRST_ROWS:
                self.grow_all(now)
        elif strategy not in ("uls", "igt"):
            self._earn()
            if strategy == "rolling":
                self._roll(now)
            elif self._classes_ready() or self.credit >= _ROUND_COST * len(self._parts.trees):
                self.credit = 0.0
                self.retrain_all(now, self._delay())
        self._prune(now)
        self._swap(now)
        self._release(now)

    def end_counting_epoch(self, now: Now) -> None:
        """The same after rows that were only counted: swap in trees that are due, start nothing.

        Such rows judge nobody, so what trees counted in this epoch is dropped.
        """
        self._swap(now, count_only=True)
        self._parts.trees.reset_counts()
        self._release(now)

    def _note_epoch(self, now: Now) -> None:
        """Use and reset what the trees counted in this epoch."""
        trees, blend = self._parts.trees, self._parts.blend
        info = trees.info()
        if self.trees_are_grown:
            self.metrics.note_errors(info, blend.events, now.learned)
        blend.note_distances(info)
        trees.reset_counts()

    def _prune(self, now: Now) -> None:
        """Cut empty leaves of trees that are nearly as large as they may be."""
        trees = self._parts.trees
        bound = _FULL * trees.params["max_nodes"][0]
        full = [t for t in self._idle() if trees[t].info["n_nodes"][0] > bound]
        if full:
            view = self.view(now)
            for t in full:
                self._start(now, self._job(t, "prune", view, view.born + self._delay()))

    # ---- all trees

    def grow_all(self, now: Now) -> None:
        """Grow the first trees, or all of them anew, at once."""
        trees = self._parts.trees
        self.trees_are_grown = True
        self.jobs.clear()
        trees.params["grows"] = self._parameters["strategy"] != "uls"
        view = self.view(now)
        if self._parameters["metric"] == "whitened" and self.scale is None:
            rows = view.rows(trees[0], view.slots)
            scale = metric_of(STANDARD, rows.z, rows.label, view.classes, view.columns)
            self.scale = view.scale = scale[:, : view.columns]
        for t, kind in enumerate(self.metrics.spread(self.metric_kinds(), len(trees))):
            self._start(now, RetrainJob(t, "fresh", view, view.born, trees[t], kind))
        self.known = self._parts.means.n_classes
        self._swap(now)

    def retrain_all(self, now: Now, delay: int = 0) -> None:
        """Apply the strategy once to all trees that no job works on."""
        strategy = self._parameters["strategy"]
        idle = self._idle()
        view = self.view(now)
        swap_at = view.born + delay
        if strategy == "hirf":
            self._replace_poor(now, view, swap_at, idle)
        elif strategy == "rolling":
            errors = self._parts.trees.errors()
            for t in idle:
                if errors[t] > errors.mean():
                    self._start_fresh(now, view, swap_at, t)
        elif strategy != "uls":
            for t in idle:
                self._start(now, self._job(t, strategy, view, swap_at))
        self.known = self._parts.means.n_classes
        self._swap(now)

    def _replace_poor(self, now: Now, view: TrainingView, swap_at: int, idle: list[int]) -> None:
        """hi-RF: trees with more than the mean error outside their bags are grown anew, the others
        keep their splits and get their leaves filled from a new bag.
        """
        judged = self.judged_errors()
        kept = "refill-and-grow" if self._parameters["grow_kept"] else "refill"
        for t in idle:
            if judged[t] > judged.mean():
                self._start_fresh(now, view, swap_at, t)
            else:
                self._start(now, self._job(t, kept, view, swap_at))

    def judged_errors(self) -> NDArray[np.float64]:
        """Errors outside the bag; the longer a tree was kept, the more is added (OOB boosting)."""
        weighted = bool(self._parameters["oob_weighting"])
        out = self._parts.trees.out_of_bag_errors(self._parts.memory, weighted)
        alpha = self._parameters["oob_boost"]
        for t, tree in enumerate(self._parts.trees):
            for _ in range(int(tree.info["kept"][0])):
                out[t] += alpha * np.tanh(out[t])
        return out

    # ---- rolling

    def _earn(self) -> None:
        """Events and mistakes add up to trees that may be grown anew."""
        n_trees, blend = len(self._parts.trees), self._parts.blend
        earned = self._parameters["event_credit"] * blend.events
        earned += self._parameters["mistake_credit"] * blend.mistakes
        credit = self.credit + earned * n_trees / self._parts.memory.n
        self.credit = min(credit, float(n_trees))

    def _roll(self, now: Now) -> None:
        """Grow the oldest trees anew, by credit; when classes are ready, those with over the mean error."""
        idle = self._idle()
        chosen: list[int] = []
        if self._classes_ready():
            errors = self._parts.trees.errors()
            chosen = [t for t in idle if errors[t] > errors.mean()]
        by_age = sorted(set(idle) - set(chosen), key=lambda t: (self.started[t], t))
        n = min(int(self.credit), len(by_age))
        self.credit -= n
        chosen += by_age[:n]
        if not chosen:
            return
        view = self.view(now)
        for t in chosen:
            self._start_fresh(now, view, view.born + self._delay(), t)

    def _classes_ready(self) -> bool:
        """Whether enough new classes have enough events to retrain trees for them."""
        means = self._parts.means
        n = means.arrays.n[: means.n_classes]
        ready = int((n >= self._parameters["class_ready"]).sum())
        batch = self._parameters["class_batch"] or -(-means.n_classes // _BATCHES)
        if ready - self.ready < batch:
            return False
        self.ready = ready
        return True

    def _delay(self) -> int:
        """Events until a tree started now is swapped in; none while the forest is young."""
        delay = min(int(self._parameters["swap_after"]), self._parts.memory.n // 4)
        return delay - delay % EPOCH

    # ---- jobs

    def metric_kinds(self) -> list[int]:
        """The metrics that trees may have."""
        return self.metrics.kinds(self._parts.means.is_whole)

    def _idle(self) -> list[int]:
        """Trees that no job works on."""
        busy = {job.t for job in self.jobs}
        return [t for t in range(len(self._parts.trees)) if t not in busy]

    def due(self, learned: int) -> set[int]:
        """Trees that are replaced after so many rows."""
        return {job.t for job in self.jobs if job.swap_at <= learned}

    def view(self, now: Now) -> TrainingView:
        """What jobs that are started now see."""
        columns, memory, means, _, trees = self._parts
        rows = memory.arrays
        return TrainingView(
            born=now.learned,
            memory=rows._replace(label=rows.label.copy(), number=rows.number.copy()),
            slots=memory.slots.copy(),
            columns=columns.n,
            fill=columns.arrays.fill.copy(),
            classes=means.n_classes,
            params=trees.params.copy(),
            functions=trees.functions,
            inverses=means.inverses(columns),
            scale=self.scale,
            pi=self._parameters["pi"],
            sampling=NODE_SAMPLING[self._parameters["node_sampling"]],
            new_classes=np.arange(self.known, means.n_classes, dtype=np.int32),
        )

    def _job(self, t: int, kind: str, view: TrainingView, swap_at: int) -> RetrainJob:
        """A job that changes the tree as it is and keeps its metric."""
        tree = self._parts.trees[t]
        return RetrainJob(t, kind, view, swap_at, tree, int(tree.info["metric"][0]))

    def _start_fresh(self, now: Now, view: TrainingView, swap_at: int, t: int) -> None:
        """Grow a tree anew, with a metric that is drawn."""
        metric = self.metrics.draw(self.metric_kinds(), now.learned, t)
        self._start(now, RetrainJob(t, "fresh", view, swap_at, self._parts.trees[t], metric))

    def _start(self, now: Now, job: RetrainJob) -> None:
        if job.kind == "fresh":
            self.started[job.t] = job.view.born
            self.n_grown += 1
        elif job.swap_at > now.learned:  # the tree goes on changing while the job reads it
            assert job.before is not None
            job.before = ncm_arrays.copied(job.before)
        self.jobs.append(job)
        if now.threads:
            if self._pool is None or self._pool_process != os.getpid():
                self._pool_process = os.getpid()
                self._pool = ThreadPoolExecutor(now.threads, thread_name_prefix="streamforest-grow")
            job.future = self._pool.submit(job.work)

    def _swap(self, now: Now, count_only: bool = False) -> None:
        """Swap in trees that are due: they forget rows that left the memory, and learn those that came."""
        due = [job for job in self.jobs if job.swap_at <= now.learned]
        if not due:
            return
        columns, memory, _, _, trees = self._parts
        error = float(trees.errors().mean())
        for job in due:
            tree = job.tree()
            slots = len(memory.arrays.label)
            if len(tree.leaf) < slots:
                tree = ncm_arrays.with_slots(tree, slots)
            for gone in memory.evicted:
                if gone.learned > job.view.born:
                    forget(tree, gone.slots, gone.labels, gone.numbers, trees.bagged)
            tree = trees.fitted(tree, columns, memory)
            if job.view.columns < columns.n:
                ncm_arrays.set_weights(tree, job.view.columns, columns.weights(job.view.columns))
            if job.kind == "fresh":
                tree.info["error"] = error
            trees.put(job.t, tree)
            self._catch_up(job, count_only)
        self.jobs = [job for job in self.jobs if job.swap_at > now.learned]

    def _catch_up(self, job: RetrainJob, count_only: bool) -> None:
        """Let the tree learn the rows since the job was started, in order."""
        columns, memory, means, _, trees = self._parts
        begin = int(np.searchsorted(memory.arrays.number[memory.slots], job.view.born))
        slots = memory.slots[begin:].copy()
        progress = np.zeros(1, np.int64)
        while True:
            short = leaf_growth.catch_up(
                trees.table,
                job.t,
                memory.arrays,
                columns.arrays.fill,
                trees.params,
                XLOGX,
                trees.functions,
                slots,
                means.n_classes,
                count_only,
                progress,
            )
            if short == FITS:
                return
            trees.put(job.t, ncm_arrays.enlarged(trees[job.t], short, memory.n))

    def _release(self, now: Now) -> None:
        """Free the slots that no job can read any more."""
        oldest = min((job.view.born for job in self.jobs), default=now.learned)
        self._parts.memory.release(oldest)

    # ---- snapshots

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot, less the trees of the jobs, and less `credit`."""
        counters = [self.trees_are_grown, self.ready, self.known, self.n_grown]
        scale = np.zeros(0, np.float32) if self.scale is None else self.scale
        return {
            "retraining.counters": np.array(counters, np.int64),
            "retraining.started": self.started.copy(),
            "retraining.scale": scale,
            **self.metrics.dump(),
            **dump_jobs(self.jobs),
        }

    def restore(self, take: Take, credit: float, classes: int, learned: int) -> None:
        """The state that `dump` described, checked; the trees of the jobs are still missing."""
        columns, _, _, _, trees = self._parts
        demand(credit <= len(trees), "shared.scalars")
        self.credit = credit
        self.metrics.restore(take)
        counters = take("retraining.counters", np.int64, 4)
        demand(
            (counters >= 0) & (counters <= [1, classes, classes, LARGEST]), "retraining.counters"
        )
        self.trees_are_grown = bool(counters[0])
        self.ready, self.known, self.n_grown = (int(v) for v in counters[1:])
        demand(not self.trees_are_grown or classes >= 1, "retraining.counters")
        self.started = take("retraining.started", np.int64, len(trees))
        demand((self.started >= 0) & (self.started <= learned), "retraining.started")
        scale = take("retraining.scale", np.float32)
        demand(np.isfinite(scale) & (scale >= 0), "retraining.scale")
        demand(len(scale) <= columns.n, "retraining.scale")
        # it may have been fixed before there was any column
        whitened = self._parameters["metric"] == "whitened"
        if len(scale) or (self.trees_are_grown and whitened):
            self.scale = scale[None, :].copy()
        trees.params["grows"] = self.trees_are_grown and self._parameters["strategy"] != "uls"
        self.jobs = restore_jobs(
            take,
            len(trees),
            learned,
            int(self._parameters["swap_after"]),
            columns.counting,
            trees.params,
        )
