"""The rows of an NCM forest: its memory, and the columns, classes and trees that grow with the stream."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.base import Forest
from streamforest.forests.core.batch import Batch
from streamforest.forests.core.engine import EPOCH, ONE_TRUE
from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.ncm.retraining import Rounds
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.ncm import advance as ncm_advance
from streamforest.kernels.ncm import blending, row_memory
from streamforest.kernels.ncm.blending import BLENDS
from streamforest.kernels.ncm.class_means import FULL_WIDTH, LENSES, Means, look_again
from streamforest.kernels.ncm.layout import Memory, Tree
from streamforest.kernels.ncm.row_memory import CATEGORY_COLUMNS, SHIFT, VARIANCE, padded


class NCMRows(Forest):
    """What an NCM forest holds, and how it makes room."""

    _params: NDArray[np.void]
    _trees: list[Tree]
    _picks: NDArray[np.int64]
    _leads: NDArray[np.float64]
    _slots: NDArray[np.int32]
    _one_slots: NDArray[np.int32]
    _table: NDArray[np.int64]
    mean_vote: bool
    neighbours: int

    # ---- arrays

    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        width, slots = padded(0), EPOCH
        self._memory = Memory(
            np.zeros((slots, width), np.float32),
            np.zeros(slots, np.int32),
            np.full(slots, -1, np.int64),
        )
        self._trees = [
            ncm_arrays.new_tree(
                int(seed), 8, 64, 16, width, slots, np.zeros((1, width), np.float32)
            )
            for seed in seeds
        ]
        self._memory_seed = np.uint64(seeds[0]) ^ np.uint64(0x5DEECE66D)
        self._order = np.zeros(slots, np.int32)  # slots by the number of their row
        self._n_rows = 0  # in memory
        self._free = list(range(slots))
        self._column = np.full(0, -1, np.int32)
        self._codes = np.zeros(0, np.int32)  # categories learned of each feature
        self._n_columns = 0
        self._old_columns = 0  # at the end of the last epoch
        self._stats = np.zeros((4, width))
        self._fill = np.zeros(width, np.float32)
        self._means = Means(
            mean=np.zeros((8, width), np.float32),
            n=np.zeros(8, np.int64),
            spread=np.zeros(8),
            scatter=np.zeros((width, width)),
            weight=np.zeros(1),
            lens=np.zeros((LENSES, width, width), np.float32),
            seen=np.zeros((LENSES * 8, width), np.float32),
            half=np.zeros(LENSES * 8, np.float32),
            gap=np.zeros(LENSES),
        )
        self._ground_at = 0.0  # weight of the covariance that the lenses are made of
        self._lens_right = np.zeros(LENSES)
        self._speaker = 0
        self._of_class = np.zeros(8, np.int64)
        self._n_seen = 0  # classes
        self._blend_right = np.zeros(len(BLENDS))
        self._allowed = np.ones(len(BLENDS), np.bool_)
        if not self.mean_vote:
            self._allowed &= BLENDS[:, blending.MEANS] == 0
        if not self.neighbours:
            self._allowed &= BLENDS[:, blending.NEIGHBOURS] == 0
        # the class means alone before the first trees stand
        self._blend_step = len(BLENDS) - 1 if self.mean_vote else 0
        self._near = np.zeros((2, 3, width), np.float32)
        self._usual = np.zeros(2)
        self._tally = np.zeros(2, np.int64)
        self._rounds = Rounds(self.n_trees)

    def _readdress(self) -> None:
        self._table = ncm_arrays.table_of(self._trees)

    def _put(self, t: int, tree: Tree) -> None:
        """Let `tree` be tree `t`."""
        self._trees[t] = tree
        self._table[t] = ncm_arrays.table_of([tree])[0]

    def _enlarge(self, want: NDArray[np.int64]) -> None:
        t = int(want[ncm_advance.WANT_TREE])
        short, rows = int(want[ncm_advance.WANT_ARRAY]), int(want[ncm_advance.WANT_ROWS])
        self._put(t, ncm_arrays.enlarged(self._trees[t], short, rows))

    # ---- rows

    def _observe(self, part: Batch, learns: NDArray[np.bool_]) -> None:
        X, y = part.X, part.y
        if len(X) > len(self._picks):
            self._leads = np.zeros((len(X), LENSES))  # first: the kernel goes by how long picks are
            self._picks = np.full((len(X), LENSES), -1, np.int64)
        n = int(np.count_nonzero(learns))
        if n == 0:
            return
        self._make_room(X, learns, n)
        taken = [self._free.pop() for _ in range(n)]
        slots = self._slots = np.full(len(X), -1, np.int32)
        slots[learns] = taken
        x = self._columns_of(X, learns)
        row_memory.stage(self._memory, self._stats, x, y, slots, self._n_learned, self._n_columns)
        if self.absent == "zero":  # a row knows nothing of features that came after it in the batch
            for slot, known in zip(taken, part.known[learns].tolist()):
                if known < X.shape[1]:
                    late = self._column[known : X.shape[1]]
                    numbers = late[self._features.categorical[known : X.shape[1]] == 0]
                    self._memory.rows[slot, numbers[numbers >= 0]] = 0.0
        self._order[self._n_rows : self._n_rows + n] = taken
        self._n_rows += n

    def _observe_one(self, X: NDArray[np.float64]) -> None:
        """The rest is done in the same call as the learning."""
        self._make_room(X, ONE_TRUE, 1)
        slot = self._free.pop()
        self._one_slots[0] = slot
        self._order[self._n_rows] = slot
        self._n_rows += 1

    def _make_room(self, X: NDArray[np.float64], learns: NDArray[np.bool_], n: int) -> None:
        """Columns, classes and slots for `n` rows that are about to be learned."""
        if self._columns_open or len(self._column) < len(self._features):
            self._settle_columns(X, learns)
        classes = len(self._labels)
        if classes > len(self._of_class):
            self._more_classes(classes)
        if n > len(self._free):
            self._more_slots(n)
        if self._n_rows + n > len(self._order):
            order = np.zeros(2 * (self._n_rows + n), np.int32)
            order[: self._n_rows] = self._order[: self._n_rows]
            self._order = order

    def _columns_of(
        self, X: NDArray[np.float64], learns: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float32]:
        """Rows as the memory holds them."""
        op = (
            np.zeros(len(X), np.uint8)
            if learns is None
            else learns.view(np.uint8) * np.uint8(LEARN)
        )
        return row_memory.to_columns(
            X,
            op,
            self._column,
            self._features.categorical,
            self._codes,
            self._stats,
            self._memory.rows.shape[1],
        )

    def _settle_columns(self, X: NDArray[np.float64], learns: NDArray[np.bool_]) -> None:
        """Columns for features whose first value is among these rows, in the order of those rows."""
        column = np.full(len(self._features), -1, np.int32)
        column[: len(self._column)] = self._column
        found = []
        for j in np.flatnonzero(column < 0).tolist():
            if j < X.shape[1]:
                rows = np.flatnonzero(learns & ~np.isnan(X[:, j]))
                if len(rows):
                    found.append((int(rows[0]), j))
        found.sort()
        sizes = [CATEGORY_COLUMNS if self._features.categorical[j] else 1 for _, j in found]
        before, needed = self._n_columns, self._n_columns + sum(sizes)
        if needed > FULL_WIDTH:
            self._drop_products()
        if needed > self._memory.rows.shape[1]:
            self._widen(max(padded(needed), padded(before + before // 2)))
        # of rows that are there: what is not touched takes no memory
        held = self._order[: self._n_rows]
        self._memory.rows[held, before:needed] = np.nan
        for (r, j), n in zip(found, sizes):
            at = self._n_columns
            self._n_columns += n
            column[j] = at
            if self._features.categorical[j]:
                continue
            if self.absent == "zero":
                self._memory.rows[held, at] = 0.0
            else:
                self._stats[SHIFT, at] = X[r, j]
        self._column = column
        self._note_columns()
        codes = np.zeros(len(column), np.int32)
        codes[: len(self._codes)] = self._codes
        self._codes = codes

    def _note_columns(self) -> None:
        """What is asked of the columns with every event."""
        self._columns_open = bool((self._column < 0).any())  # features without a value so far
        self._has_categories = bool(self._features.categorical.any())

    def _drop_products(self) -> None:
        """Before there are more than FULL_WIDTH columns: the covariance becomes its diagonal.

        Only that is asked for when this epoch ends, so it does not matter with which row it happens.
        Lenses and trees stay as they are until then, as wide as they are: new columns do not count yet.
        """
        means = self._means
        if len(means.scatter) > 1:
            self._means = means._replace(scatter=np.diag(means.scatter)[None, :].copy())

    def _widen(self, width: int) -> None:
        """Room for more columns in the memory and in what is known of columns.

        What takes the square of it is widened up to FULL_WIDTH columns only.
        """
        old = self._memory.rows.shape[1]

        def wider(array: NDArray[Any]) -> NDArray[Any]:
            out = np.zeros((*array.shape[:-1], width), array.dtype)
            out[..., :old] = array
            return out

        self._memory = self._memory._replace(rows=wider(self._memory.rows))
        self._stats = wider(self._stats)
        self._near = wider(self._near)
        self._fill = wider(self._fill)
        means = self._means
        rows = width if len(means.scatter) > 1 else 1
        scatter = np.zeros((rows, width))
        scatter[: len(means.scatter), :old] = means.scatter
        lens = means.lens
        if rows > 1 or lens.shape[1] == 1:
            lens = np.zeros((LENSES, rows, width), np.float32)
            lens[:, : means.lens.shape[1], :old] = means.lens
        self._means = means._replace(
            mean=wider(means.mean), seen=wider(means.seen), scatter=scatter, lens=lens
        )

    def _new_columns(self) -> None:
        """At the end of an epoch that brought columns: trees and means let them count from now on."""
        width = self._memory.rows.shape[1]
        if self._n_columns > FULL_WIDTH and self._means.lens.shape[1] > 1:
            self._means = self._means._replace(lens=np.zeros((LENSES, 1, width), np.float32))
        self._params["max_rows"] = self._most_centroids(self._n_columns)
        weights = self.column_weights(self._old_columns)
        # others take their place as this epoch ends, before anything is asked of them
        replaced = {job.t for job in self._rounds.jobs if job.swap_at <= self._n_learned}
        for t, tree in enumerate(self._trees):
            if t in replaced:
                continue
            tree = self._trees[t] = self.widened(tree)
            ncm_arrays.weigh(tree, self._old_columns, weights)
        self._readdress()
        self._old_columns = self._n_columns

    def widened(self, tree: Tree) -> Tree:
        """A tree as wide as the memory; before that it loses what is too much for so many columns."""
        width = self._memory.rows.shape[1]
        if self._n_columns > FULL_WIDTH:
            tree = ncm_arrays.flattened(tree)
        if self._n_columns > ncm_width.WIDE:
            slots = self._order[: self._n_rows]
            tree = ncm_width.cut(
                tree,
                self._most_centroids(self._n_columns),
                self._memory,
                slots[tree.leaf[slots] >= 0],
                int(self._params["bagged"][0]),
            )
        return ncm_arrays.widened(tree, width) if tree.cen.shape[1] < width else tree

    def _most_centroids(self, columns: int) -> int:
        return ncm_width.centroids_for(int(self._parameters["memory"]), self.n_trees, columns)

    def lenses(self) -> NDArray[np.float32]:
        """The lenses for trees to measure with, as wide as the memory.

        In an epoch that brings the column after FULL_WIDTH the means are still seen through whole
        ones, but a tree that is grown now is for rows of any width.
        """
        lens = self._means.lens
        if lens.shape[1] == 1 or self._n_columns <= FULL_WIDTH:
            return lens.copy()
        out = np.zeros((LENSES, 1, self._memory.rows.shape[1]), np.float32)
        out[:, 0, : lens.shape[1]] = np.diagonal(lens, axis1=1, axis2=2)
        return out

    def column_weights(self, begin: int) -> NDArray[np.float32]:
        """What columns from `begin` on count in a tree that was grown before they came."""
        variance = self._stats[VARIANCE, : self._n_columns]
        level = variance[variance > 0].mean() if (variance > 0).any() else 1.0
        return (1.0 / np.maximum(variance[begin:] + 0.01 * level, 1e-20)).astype(np.float32)

    def _more_classes(self, classes: int) -> None:
        room = max(2 * len(self._of_class), classes)

        def longer(array: NDArray[Any]) -> NDArray[Any]:
            out = np.zeros((room, *array.shape[1:]), array.dtype)
            out[: len(array)] = array
            return out

        self._of_class = longer(self._of_class)
        means = self._means
        self._means = means._replace(
            mean=longer(means.mean),
            n=longer(means.n),
            spread=longer(means.spread),
            seen=np.zeros((LENSES * room, means.seen.shape[1]), np.float32),
            half=np.zeros(LENSES * room, np.float32),
        )
        look_again(self._means)

    def _more_slots(self, n: int) -> None:
        old = len(self._memory.label)
        held = int(self._parameters["memory"]) + int(self._parameters["swap_after"]) + 4 * EPOCH
        new = max(min(2 * old, held), old + n)
        rows = np.zeros((new, self._memory.rows.shape[1]), np.float32)
        rows[:old] = self._memory.rows
        label = np.zeros(new, np.int32)
        label[:old] = self._memory.label
        number = np.full(new, -1, np.int64)
        number[:old] = self._memory.number
        self._memory = Memory(rows, label, number)
        self._free.extend(range(old, new))
        self._trees = [ncm_arrays.with_slots(tree, new) for tree in self._trees]
        self._readdress()
