"""How an NCM forest processes rows: its parts, its kernel and its epochs."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.batch import FULLY, INTO_LEAVES, INTO_MEMORY, Batch, length
from streamforest.forests.core.experts import ExpertForest
from streamforest.forests.core.explanation import Expert, TreePath
from streamforest.forests.ncm import explaining
from streamforest.forests.ncm import state as ncm_state
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.ncm.class_means import ClassMeans
from streamforest.forests.ncm.column_scales import ColumnTable
from streamforest.forests.ncm.forgetting import Forgetting
from streamforest.forests.ncm.retraining import Now, Parts, RetrainScheduler
from streamforest.forests.ncm.row_memory import RowMemory, memory_seed
from streamforest.forests.ncm.trees import TreeStore
from streamforest.forests.ncm.vote_blend import EXPERTS, VoteBlend
from streamforest.kernels.core.array_table import Addresses
from streamforest.kernels.core.entropy import XLOGX
from streamforest.kernels.core.notice import Announced
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.ncm import blending, entry, novelty
from streamforest.kernels.ncm.blending import BLENDS
from streamforest.kernels.ncm.entry import ARRAYS, BLEND, JUDGE, STAGE, TREES
from streamforest.kernels.ncm.layout import TREES as TREE_VOTES
from streamforest.kernels.ncm.row_memory import padded, stage, training_rows

_ONE_LEARNS = np.ones(1, np.bool_)


class NCMProcessing(ExpertForest):
    """The forest as the engine sees it: parts that own their arrays, and the order in which they work."""

    _kernel = Announced(entry.process_batch, "NCM forest")
    _experts: ClassVar[int] = len(EXPERTS)
    background: bool

    @abc.abstractmethod
    def _pack_params(self) -> NDArray[np.void]:
        """The parameters as the kernels read them, checked."""

    # ---- parts

    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        params, parameters = self._pack_params(), self._parameters
        memory_rows = int(parameters["memory"])
        self._columns = ColumnTable()
        self._memory = RowMemory(memory_rows, int(parameters["swap_after"]), memory_seed(seeds[0]))
        self._memory.keeps_categories = bool(params["lambda_coarse"][0] > 0)
        self._means = ClassMeans()
        self._blend = VoteBlend(parameters["mean_vote"], parameters["neighbours"] > 0)
        self._trees = TreeStore(seeds, params, memory_rows)
        self._forgetting = Forgetting()
        self._forgets = bool(parameters["drift"]) and parameters["strategy"] == "rolling"
        self._retraining = RetrainScheduler(parameters, self._parts())

    def _parts(self) -> Parts:
        return Parts(self._columns, self._memory, self._means, self._blend, self._trees)

    def _scratch(self) -> None:
        super()._scratch()
        self._progress = np.zeros(self.n_trees + 1, np.int64)
        self._routes = np.zeros((self.n_trees, 2), np.int64)
        self._nearest = np.zeros(self.n_trees)
        self._one_batch.slots = np.full(1, -1, np.int32)
        self._means.scratch()
        self._columns.note_features(self._features)

    def _now(self) -> Now:
        """The clock, and the threads that retrain trees."""
        threads = self.n_jobs if self.n_jobs > 1 else 0
        return Now(self._n_learned, 1 if self.background else threads)

    # ---- room

    def _enlarge(self, want: NDArray[np.int64]) -> None:
        self._trees.enlarge(want)

    def _make_room(self, X: NDArray[np.float64], learns: NDArray[np.bool_], n: int) -> None:
        """Columns, classes and slots for `n` rows that are about to be learned."""
        if self._columns.need_place(self._features):
            self._place_columns(X, learns)
        classes = len(self._labels)
        self._means.add_classes(classes)
        if self._memory.make_room(n, classes):
            self._trees.add_slots(len(self._memory.arrays.label))

    def _place_columns(self, X: NDArray[np.float64], learns: NDArray[np.bool_]) -> None:
        """Columns for features whose first value is among these rows."""
        columns = self._columns
        values = columns.first_values(X, learns, self._features)
        before, needed = columns.n, columns.n + sum(value.columns for value in values)
        if needed > ncm_width.FULL_WIDTH:
            self._means.keep_diagonal()
        if needed > columns.width:
            width = max(padded(needed), padded(before + before // 2))
            for part in (columns, self._memory, self._means):
                part.widen(width)
        self._memory.clear_columns(before, needed)
        columns.place(values, X, self._features)
        if self._features.zero:
            numbers = columns.numbers(self._features, 0, len(self._features))
            self._memory.zero_columns(numbers[numbers >= before])

    # ---- batches

    def _new_addresses(self) -> Addresses:
        return Addresses(
            ARRAYS, lambda *groups: (*groups[:5], (*groups[5:-1], BLENDS, XLOGX, groups[-1]))
        )

    def _kernel_arrays(self) -> tuple[Any, ...]:
        return (
            self._memory.arrays,
            self._columns.arrays,
            self._means.arrays,
            self._means.answers,
            self._blend.arrays,
            self._trees.params,
            self._trees.table,
            self._memory.of_class,
            self._features.categorical,
            self._progress,
            self._routes,
            self._nearest,
            self._trees.functions,
        )

    def _kernel_values(self, batch: Batch) -> tuple[Any, ...]:
        return (
            batch.slots,
            self._columns.n,
            self._means.n_classes,
            self._blend.active_metric,
            self._blend.active_blend,
            batch.learning != FULLY,
            batch.distances,
        )

    def _call(
        self,
        first: int,
        last: int,
        want: NDArray[np.int64],
        batch: Batch,
        votes: NDArray[np.int64],
    ) -> bool:
        return bool(self._run(TREES, first, last, want, batch, votes))

    def _call_one(self, X: NDArray[np.float64], op: NDArray[np.uint8], reuse: bool) -> bool:
        learns = bool(op[0] & LEARN)
        parts = STAGE | TREES | JUDGE if learns else TREES | BLEND
        self._one_room(reuse, learns)
        batch = self._one_event(X, op, reuse)
        while not self._run(
            parts, 0, self.n_trees, self._want, batch, self._one_votes, self._one_scores
        ):
            parts &= ~STAGE
            self._enlarge(self._want)
        if learns:
            self._means.n_classes = max(self._means.n_classes, int(self._one_y[0]) + 1)
        return True

    def _observe(self, batch: Batch) -> None:
        self._means.make_room(len(batch.X))
        learns = (batch.op & LEARN) != 0
        n = int(np.count_nonzero(learns))
        if n == 0:
            return
        self._make_room(batch.X, learns, n)
        batch.slots = np.full(len(batch.X), -1, np.int32)
        batch.slots[learns] = self._memory.take_slots(n)
        stage(
            self._memory.arrays,
            self._columns.arrays.stats,
            self._columns.rows(batch.X, batch.op, self._features),
            batch.y,
            batch.slots,
            self._n_learned,
            self._columns.n,
        )
        if self._memory.keeps_categories:
            codes = batch.upper
            if codes is None:  # a recorded set: all is known of its categories
                codes = self._levels.codes_of_classes(self)[batch.y]
            self._memory.arrays.upper[batch.slots[learns]] = codes[learns]
        if self._features.zero:  # a row knows nothing of features that came after it in the batch
            width = batch.X.shape[1]
            for slot, known in zip(batch.slots[learns], batch.known[learns].tolist()):
                if known < width:
                    late = self._columns.numbers(self._features, known, width)
                    self._memory.arrays.rows[slot, late] = 0.0

    def _observe_one(self, X: NDArray[np.float64]) -> None:
        self._make_room(X, _ONE_LEARNS, 1)
        self._one_batch.slots[0] = self._memory.take_slot()  # staged in the call that learns it

    def _process(self, batch: Batch, votes: NDArray[np.int64]) -> None:
        if batch.novelty is not None:
            batch.distances = np.full((self.n_trees + 1, len(batch.X)), np.nan, np.float32)
        if batch.learning == INTO_MEMORY:
            self._call(0, 0, self._want, batch, votes)  # the class means only
        else:
            super()._process(batch, votes)
        if batch.novelty is not None:
            batch.novelty[:] = novelty.novelty(batch.distances, self._mix(votes))
        known = blending.count_classes(batch.y, batch.op, self._memory.of_class)
        self._means.n_classes = max(self._means.n_classes, known)
        if self._columns.has_categories:
            self._columns.count_categories(batch.X, batch.op, self._features)
        if batch.learning == FULLY:
            self._blend.judge(batch, votes, self._means.answers.best, self.n_trees)
        else:
            self._blend.count(batch)

    def _mix(self, votes: NDArray[np.int64]) -> NDArray[Any]:
        return self._blend.mix(votes, self.n_trees)

    def _alone(self, votes: NDArray[np.int64]) -> NDArray[np.int64]:
        return votes[:, TREE_VOTES]

    def _end_epoch(self, batch: Batch) -> None:
        columns, means = self._columns, self._means
        columns.end_epoch()
        means.fade(self._blend.events)
        if columns.n > columns.counting:
            self._count_new_columns()
        elif means.is_outdated(self._n_learned):
            means.shrink(columns.n)
        if self._levels.rows.withdrawn:
            self._withdraw()
        evicted = self._memory.evict(columns.n, self._n_learned)
        if evicted is not None:
            self._trees.forget(evicted)
        if batch.learning == FULLY:
            if self._forgets:
                self._forget()
            self._retraining.end_epoch(self._now())
            self._blend.choose(self._retraining.trees_are_grown)
        else:
            self._retraining.end_counting_epoch(self._now())
        self._blend.reset()

    # ---- rows whose class was estimated

    _keeps_rows: ClassVar[bool] = True

    def _rows_in_memory(self) -> NDArray[np.int64]:
        numbers: NDArray[np.int64] = self._memory.arrays.number[self._memory.slots]
        return numbers

    def _withdraw(self) -> None:
        """Remove rows whose true class has come from memory, trees and class means."""
        gone = self._memory.withdraw(self._levels.rows.withdrawn, self._n_learned)
        self._levels.rows.withdrawn.clear()
        if gone is not None:
            self._trees.forget(gone)
            rows = self._memory.arrays.rows[gone.slots][:, : self._columns.n]
            self._means.withdraw(rows, gone.labels)

    def _forget(self) -> None:
        """Let go of rows that the newest ones contradict, in memory, trees and class means."""
        gone = self._forgetting.forget(
            self._memory, self._columns, self._blend.events, self._n_learned
        )
        if gone is None:
            return
        self._trees.forget(gone)
        left = training_rows(
            self._memory.arrays,
            self._memory.slots,
            self._columns.arrays.fill,
            self._columns.n,
            np.uint64(0),
            0,
            0,
        )
        self._means.start_again(left.z, left.label)
        self._retraining.credit = float(self.n_trees)  # all are of before

    def _count_new_columns(self) -> None:
        """New columns begin to count, in trees and class means."""
        columns = self._columns
        self._means.add_columns(columns)
        self._trees.add_columns(columns, self._memory, self._retraining.due(self._n_learned))
        columns.counting = columns.n
        self._means.shrink(columns.n)

    # ---- recorded sets

    def _learn_set(self, X: Any, y: Any, learning: int) -> None:
        """Learn rows without answers, splits and retraining."""
        batch, _ = self._prepare(X, y, np.full(length(X), LEARN, np.uint8))
        batch.learning = INTO_MEMORY
        self._advance(batch, answer=False)
        self._tidy()
        if self._columns.n > max(self._columns.counting, ncm_width.WIDE):
            # trees grown now would be of another width; at the end of an epoch they would not
            self._count_new_columns()
        if learning == INTO_LEAVES and self._retraining.trees_are_grown:
            self._trees.settle(self._memory, self._columns, self.n_jobs)

    def _grow_all(self) -> None:
        """Grow all trees from the memory, and choose the experts' shares."""
        self._retraining.grow_all(self._now())
        self._blend.choose(True)

    # ---- snapshots

    def _dump(self) -> dict[str, NDArray[Any]]:
        arrays = ncm_state.dump(self._parts(), self._retraining, len(self._labels))
        return arrays | self._forgetting.dump() if self._forgets else arrays

    def _restore(self, take: Callable[..., NDArray[Any]]) -> None:
        self._restore_revision(take, self._revision)

    def _restore_revision(self, take: Callable[..., NDArray[Any]], revision: int) -> None:
        if self._forgets and revision > 1:
            self._forgetting.restore(take, self._n_learned)
        ncm_state.restore(
            self._parts(),
            self._retraining,
            take,
            self._features,
            len(self._labels),
            self._n_learned,
        )

    # ---- explanations

    def _experts_on(self, row: NDArray[np.float64]) -> list[Expert]:
        return explaining.experts_on(self, row)

    def _tree_on(self, row: NDArray[np.float64], tree: int | None, best: int) -> TreePath:
        return explaining.tree_on(self, row, tree, best)

    def _importances(self) -> dict[str, tuple[float, NDArray[np.float64]]]:
        return explaining.importances(self)
