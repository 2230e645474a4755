"""When the trees of an NCM forest are worked on: rounds, credit, and trees under way.

Everything here happens between epochs. A tree under way is begun at one boundary and put in place at a
later one, `swap_after` events on, whether it was grown in another thread or not: the same bits.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.forests.ncm.jobs import MODES, Job, Scene
from streamforest.kernels.core import rng
from streamforest.kernels.core.entropy import XLOGX
from streamforest.kernels.ncm import advance as ncm_advance
from streamforest.kernels.ncm.blending import EVENTS, MISTAKES
from streamforest.kernels.ncm.grow import FITS
from streamforest.kernels.ncm.layout import FULL_PLAIN, FULL_SCALED, METRICS, RAW, STANDARD, WITHIN
from streamforest.kernels.ncm.metric import metric_of
from streamforest.kernels.ncm.neighbours import distance_of
from streamforest.kernels.ncm.row_memory import forget

if TYPE_CHECKING:
    from streamforest.forests.ncm.votes import NCMVotes

STRATEGIES = ("rolling", "hirf", "uls", "igt", "rtst", "rust")
KINDS = {
    "raw": RAW,
    "standardised": STANDARD,
    "within": WITHIN,
    "full": FULL_PLAIN,
    "full-scaled": FULL_SCALED,
    "whitened": STANDARD,
}
METRIC_NAMES = tuple(KINDS)[:METRICS]
_FIRST_ROWS = 32  # rows before the first trees are grown
_METRIC_RATE = 0.002  # an event of a tree, in the running error of its metric
_TEMPERATURE = 0.05  # error that makes a metric e times less likely to be drawn
_EXPLORE = 0.1  # share of draws among all metrics alike
_YOUNG = 1_024  # events of its life that a tree speaks for its metric
_BATCHES = 25  # a batch of new classes is a share of all of one over this
_FULL = 0.9  # of the nodes a tree may have, from which on empty leaves are cut
_ROUND_COST = 0.5  # of a round, in trees grown anew per tree


class Gone(NamedTuple):
    """Rows that left the memory at one boundary."""

    at: int
    slots: NDArray[np.int32]
    labels: NDArray[np.int32]
    numbers: NDArray[np.int64]


class Rounds:
    """What is due at the end of an epoch, and what is under way."""

    def __init__(self, n_trees: int) -> None:
        self.stands = False  # whether the first trees have been grown
        self.credit = 0.0  # trees that may be grown anew
        self.metric_error = np.full(METRICS, 0.5)
        self.ready = np.zeros(0, np.bool_)  # classes with enough rows
        self.in_round = 0  # classes ready at the last round
        self.known = 0  # classes known at the last round
        self.scale: NDArray[np.float32] | None = None  # a metric that was fixed once and for all
        self.begun = np.zeros(n_trees, np.int64)  # when each tree was last begun
        self.jobs: list[Job] = []
        self.gone: list[Gone] = []  # slots that trees under way may still read
        self.grown = 0  # trees grown anew so far
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = 0  # a child made by fork() has none of its parent's threads

    def __getstate__(self) -> dict[str, object]:
        for job in self.jobs:
            job.tree()  # a copy holds finished trees only
        return {**self.__dict__, "_pool": None}

    # ---- the end of an epoch

    def end_epoch(self, forest: NCMVotes) -> None:
        """Trees whose time has come are put in place, new work is begun."""
        self._swap(forest)
        self._note_epoch(forest)
        if not self.stands:
            if forest._n_seen >= 2 and forest._n_learned >= _FIRST_ROWS:
                self.plant(forest)
        elif forest._parameters["strategy"] not in ("uls", "igt"):
            self._earn(forest)
            if forest._parameters["strategy"] == "rolling":
                self._rolling(forest)
            elif self._classes_ready(forest) or self.credit >= _ROUND_COST * forest.n_trees:
                self.credit = 0.0
                self.round(forest, self._delay(forest))
        self._prune(forest)
        self._swap(forest)
        self._release(forest)

    def _prune(self, forest: NCMVotes) -> None:
        """Trees that near their bound lose the leaves whose rows have left the memory."""
        full = [
            t
            for t in self._free(forest)
            if forest._trees[t].info["n_nodes"][0] > _FULL * forest._params["max_nodes"][0]
        ]
        if full:
            scene = self._scene(forest)
            for t in full:
                metric = int(forest._trees[t].info["metric"][0])
                at = scene.born + self._delay(forest)
                self._begin(forest, Job(t, "prune", scene, at, forest._trees[t], metric))

    def plant(self, forest: NCMVotes) -> None:
        """The first trees, or all of them anew, at once."""
        self.stands = True
        self.jobs.clear()
        params = forest._parameters
        forest._params["grows"] = params["strategy"] != "uls"
        scene = self._scene(forest)
        if params["metric"] == "whitened" and self.scale is None:
            ground = scene.ground(forest._trees[0], scene.slots)
            scale = metric_of(STANDARD, ground.z, ground.label, scene.classes, scene.columns)
            self.scale = scene.scale = scale[:, : scene.columns]
        for t, kind in enumerate(self._spread(forest)):
            self._begin(forest, Job(t, "fresh", scene, scene.born, forest._trees[t], kind))
        self.known = forest._n_seen
        self._swap(forest)

    def wait_for(self, forest: NCMVotes) -> None:
        """Put trees under way in place as they fall due; begin nothing.

        Rows that are taken in judge nobody, so what was counted in this epoch is a part of nothing.
        """
        self._swap(forest)
        for tree in forest._trees:
            tree.info["errors"], tree.info["near"], tree.info["nears"] = 0, 0.0, 0
        self._release(forest)

    def round(self, forest: NCMVotes, delay: int = 0) -> None:
        """One round of the strategy, over all trees that are not under way."""
        strategy = forest._parameters["strategy"]
        free = self._free(forest)
        scene = self._scene(forest)
        at = scene.born + delay
        if strategy == "hirf":
            self._replace_poor(forest, scene, at, free)
        elif strategy == "rolling":
            errors = forest.tree_errors()
            for t in free:
                if errors[t] > errors.mean():
                    self._fresh(forest, scene, at, t)
        elif strategy != "uls":
            for t in free:
                metric = int(forest._trees[t].info["metric"][0])
                self._begin(forest, Job(t, strategy, scene, at, forest._trees[t], metric))
        self.known = forest._n_seen
        self._swap(forest)

    def _replace_poor(self, forest: NCMVotes, scene: Scene, at: int, free: list[int]) -> None:
        """hi-RF: trees with more than the mean error outside their bags are grown anew, the others
        keep their splits and get their leaves filled anew.
        """
        judged = self.judged_errors(forest)
        kept = "refill-and-grow" if forest._parameters["grow_kept"] else "refill"
        for t in free:
            if judged[t] > judged.mean():
                self._fresh(forest, scene, at, t)
            else:
                metric = int(forest._trees[t].info["metric"][0])
                self._begin(forest, Job(t, kept, scene, at, forest._trees[t], metric))

    def judged_errors(self, forest: NCMVotes) -> NDArray[np.float64]:
        """Errors outside the bag; the longer a tree was kept, the more is added (OOB boosting)."""
        out = forest.out_of_bag_errors()
        alpha = forest._parameters["oob_boost"]
        for t, tree in enumerate(forest._trees):
            for _ in range(int(tree.info["kept"][0])):
                out[t] += alpha * np.tanh(out[t])
        return out

    # ---- rolling

    def _earn(self, forest: NCMVotes) -> None:
        """Events and mistakes add up to trees that may be grown anew."""
        params = forest._parameters
        due = params["event_credit"] * int(forest._tally[EVENTS])
        due += params["mistake_credit"] * int(forest._tally[MISTAKES])
        self.credit = min(
            self.credit + due * forest.n_trees / forest._n_rows, float(forest.n_trees)
        )

    def _rolling(self, forest: NCMVotes) -> None:
        """The oldest trees by credit; those with more than the mean error when classes are ready."""
        free = self._free(forest)
        chosen: list[int] = []
        if self._classes_ready(forest):
            errors = forest.tree_errors()
            chosen = [t for t in free if errors[t] > errors.mean()]
        by_age = sorted(set(free) - set(chosen), key=lambda t: (self.begun[t], t))
        n = min(int(self.credit), len(by_age))
        self.credit -= n
        chosen += by_age[:n]
        if not chosen:
            return
        scene = self._scene(forest)
        for t in chosen:
            self._fresh(forest, scene, scene.born + self._delay(forest), t)

    def _classes_ready(self, forest: NCMVotes) -> bool:
        """Whether enough new classes have enough events for a round."""
        n = forest._means.n[: forest._n_seen]
        ready = int((n >= forest._parameters["class_ready"]).sum())
        batch = forest._parameters["class_batch"] or -(-forest._n_seen // _BATCHES)
        if ready - self.in_round < batch:
            return False
        self.in_round = ready
        return True

    def _delay(self, forest: NCMVotes) -> int:
        """Events until a tree begun now is put in place; none while the forest is young."""
        delay = min(int(forest._parameters["swap_after"]), forest._n_rows // 4)
        return delay - delay % EPOCH

    # ---- metrics

    def _spread(self, forest: NCMVotes) -> list[int]:
        """A metric for each tree: all alike in number, or by their chances once they were judged."""
        kinds = self.kinds(forest)
        if np.ptp(self.metric_error[kinds]) == 0.0:
            return [kinds[t % len(kinds)] for t in range(forest.n_trees)]
        places = (np.arange(forest.n_trees) + 0.5) / forest.n_trees
        at = np.searchsorted(np.cumsum(self._chances(kinds)), places)
        return [kinds[min(int(k), len(kinds) - 1)] for k in at]

    def _chances(self, kinds: list[int]) -> NDArray[np.float64]:
        error = self.metric_error[kinds]
        chance: NDArray[np.float64] = np.exp((error.min() - error) / _TEMPERATURE)
        chance = (1 - _EXPLORE) * chance / chance.sum() + _EXPLORE / len(kinds)
        return chance

    def kinds(self, forest: NCMVotes) -> list[int]:
        """The metrics that trees may have."""
        metric = forest._parameters["metric"]
        if metric != "auto":
            return [KINDS[metric]]
        full = len(forest._means.scatter) > 1 and forest._parameters["split"] == "ncm"
        return list(range(METRICS if full else FULL_PLAIN))

    def _draw_metric(self, forest: NCMVotes, t: int) -> int:
        """Rather a metric whose young trees err little; all of them now and then."""
        kinds = self.kinds(forest)
        if len(kinds) == 1:
            return kinds[0]
        chance = self._chances(kinds)
        start = np.uint64(rng.key(forest._memory_seed, rng.NCM_METRIC, forest._n_learned))
        u = rng.uniform(start, t)
        return kinds[min(int(np.searchsorted(np.cumsum(chance), u, side="right")), len(kinds) - 1)]

    def _note_epoch(self, forest: NCMVotes) -> None:
        """What the trees counted in this epoch: errors by metric, distances of neighbours."""
        events = int(forest._tally[EVENTS])
        wrong, judged = np.zeros(METRICS), np.zeros(METRICS)
        near, nears = np.zeros(2), np.zeros(2)
        for tree in forest._trees:
            info = tree.info[0]
            if forest._n_learned - info["born"] <= _YOUNG:
                wrong[info["metric"]] += info["errors"]
                judged[info["metric"]] += events
            kind = distance_of(tree)
            near[kind] += info["near"]
            nears[kind] += info["nears"]
            info["errors"], info["near"], info["nears"] = 0, 0.0, 0
        if self.stands:
            for kind in np.flatnonzero(judged).tolist():
                keep = (1.0 - _METRIC_RATE) ** judged[kind]
                share = wrong[kind] / judged[kind]
                self.metric_error[kind] = share + (self.metric_error[kind] - share) * keep
        usual = forest._usual
        for kind in np.flatnonzero(nears).tolist():
            mean = near[kind] / nears[kind]
            usual[kind] = mean if usual[kind] == 0 else usual[kind] + 0.2 * (mean - usual[kind])

    # ---- trees under way

    def _free(self, forest: NCMVotes) -> list[int]:
        busy = {job.t for job in self.jobs}
        return [t for t in range(forest.n_trees) if t not in busy]

    def _scene(self, forest: NCMVotes) -> Scene:
        memory, params = forest._memory, forest._parameters
        return Scene(
            born=forest._n_learned,
            memory=memory._replace(label=memory.label.copy(), number=memory.number.copy()),
            slots=forest._order[: forest._n_rows].copy(),
            columns=forest._n_columns,
            fill=forest._fill.copy(),
            classes=forest._n_seen,
            params=forest._params.copy(),
            lens=forest.lenses(),
            scale=self.scale,
            pi=params["pi"],
            mode=MODES[params["node_sampling"]],
            new=np.arange(self.known, forest._n_seen, dtype=np.int32),
        )

    def _fresh(self, forest: NCMVotes, scene: Scene, at: int, t: int) -> None:
        self._begin(
            forest, Job(t, "fresh", scene, at, forest._trees[t], self._draw_metric(forest, t))
        )

    def _begin(self, forest: NCMVotes, job: Job) -> None:
        if job.kind == "fresh":
            self.begun[job.t] = job.scene.born
            self.grown += 1
        elif job.swap_at > forest._n_learned:  # the tree goes on changing while the job reads it
            assert job.before is not None
            job.before = ncm_arrays.copied(job.before)
        self.jobs.append(job)
        workers = 1 if forest.background else forest.n_jobs
        if forest.background or forest.n_jobs > 1:
            if self._pool is None or self._pool_process != os.getpid():
                self._pool_process = os.getpid()
                self._pool = ThreadPoolExecutor(workers, thread_name_prefix="streamforest-grow")
            job.future = self._pool.submit(job.work)

    def _swap(self, forest: NCMVotes) -> None:
        """Put trees in place whose time has come: they forget what is gone and learn what has come."""
        due = [job for job in self.jobs if job.swap_at <= forest._n_learned]
        if not due:
            return
        error = float(forest.tree_errors().mean())
        bagged = int(forest._params["bagged"][0])
        for job in due:
            tree = job.tree()
            slots = len(forest._memory.label)
            if len(tree.leaf) < slots:
                tree = ncm_arrays.with_slots(tree, slots)
            for gone in self.gone:
                if gone.at > job.scene.born:
                    forget(tree, gone.slots, gone.labels, gone.numbers, bagged)
            tree = forest.widened(tree)
            if job.scene.columns < forest._n_columns:
                ncm_arrays.weigh(tree, job.scene.columns, forest.column_weights(job.scene.columns))
            if job.kind == "fresh":
                tree.info["error"] = error
            forest._put(job.t, tree)
            self._catch_up(forest, job)
        self.jobs = [job for job in self.jobs if job.swap_at > forest._n_learned]

    def _catch_up(self, forest: NCMVotes, job: Job) -> None:
        """The rows learned since the job was begun, in order."""
        order = forest._order[: forest._n_rows]
        begin = int(np.searchsorted(forest._memory.number[order], job.scene.born))
        slots = order[begin:].copy()
        progress = np.zeros(1, np.int64)
        while True:
            short = ncm_advance.catch_up(
                forest._table,
                job.t,
                *forest._memory,
                forest._fill,
                forest._params,
                XLOGX,
                slots,
                forest._n_seen,
                progress,
            )
            if short == FITS:
                return
            tree = forest._trees[job.t]
            forest._put(job.t, ncm_arrays.enlarged(tree, short, forest._n_rows))

    # ---- rows that leave

    def evicted(
        self,
        at: int,
        slots: NDArray[np.int32],
        labels: NDArray[np.int32],
        numbers: NDArray[np.int64],
    ) -> None:
        """These rows have left the memory; their slots are not free yet."""
        self.gone.append(Gone(at, slots, labels, numbers))

    def _release(self, forest: NCMVotes) -> None:
        """Slots that no tree under way can read any more are free."""
        oldest = min((job.scene.born for job in self.jobs), default=forest._n_learned)
        while self.gone and self.gone[0].at <= oldest:
            forest._free.extend(self.gone.pop(0).slots.tolist())
