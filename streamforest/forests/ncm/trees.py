"""The trees of an NCM forest and their addresses."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.ncm.column_scales import ColumnTable
from streamforest.forests.ncm.row_memory import Evicted, RowMemory
from streamforest.kernels.core import beside
from streamforest.kernels.core.notice import counting, functions_of
from streamforest.kernels.ncm import filling
from streamforest.kernels.ncm.advance import WANT_ARRAY, WANT_ROWS, WANT_TREE
from streamforest.kernels.ncm.entry import process_batch
from streamforest.kernels.ncm.grow import FITS, GROW, HIST, SPLITS, grow, split_nearest
from streamforest.kernels.ncm.layout import TREE, TREE_ARRAYS, Tree
from streamforest.kernels.ncm.leaf_growth import GROW_AT, SPLIT_AT
from streamforest.kernels.ncm.regularised import split_regularised
from streamforest.kernels.ncm.row_memory import forget_in_all, padded, training_rows
from streamforest.kernels.ncm.svm import split_plane


def _addresses(params: NDArray[np.void]) -> NDArray[np.int64]:
    """Where the functions are that kernels call by address, for a forest with these parameters."""
    split = split_nearest
    if params["svm"][0]:
        split = split_plane
    elif params["sets"][0]:
        split = split_regularised
    out = np.zeros(2, np.int64)
    out[GROW_AT], out[SPLIT_AT] = _compiled(split)
    return out


@cache
def _compiled(split: Any) -> tuple[int, int]:
    beside.wait_for_first()
    with counting("NCM forest", functions_of(process_batch)):
        return GROW.address(grow), SPLITS.address(split)


class TreeStore:
    """Trees of different sizes, each with arrays of its own, and the table that kernels view them by.

    Parameters
    ----------
    seeds
        One for each tree.
    params
        The parameters as the kernels read them. What bounds and steers the trees is set here.
    memory_rows
        Rows that the memory is to keep, by the forest's parameters.
    """

    def __init__(
        self, seeds: NDArray[np.uint64], params: NDArray[np.void], memory_rows: int
    ) -> None:
        self.params = params
        self._functions: NDArray[np.int64] | None = None
        self._memory_rows = memory_rows
        self._trees = [
            ncm_arrays.new_tree(
                int(seed), 8, 64, 16, slots=EPOCH, metric=np.zeros((1, padded(0)), np.float32)
            )
            for seed in seeds
        ]
        self._readdress()

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name != "table"}
        return {**state, "_functions": None}  # another process has them elsewhere

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._readdress()  # a copy has other arrays

    def __len__(self) -> int:
        return len(self._trees)

    def __iter__(self) -> Iterator[Tree]:
        return iter(self._trees)

    def __getitem__(self, t: int) -> Tree:
        return self._trees[t]

    @property
    def bagged(self) -> int:
        """1 if each tree has each row Poisson(1) times."""
        return int(self.params["bagged"][0])

    @property
    def functions(self) -> NDArray[np.int64]:
        """Where the functions are that kernels call by address; the first forest compiles or loads them."""
        if self._functions is None:
            self._functions = _addresses(self.params)
        return self._functions

    # ---- trees and their addresses

    def _readdress(self) -> None:
        self.table = np.stack([TREE_ARRAYS.addresses(tree) for tree in self._trees])

    def put(self, t: int, tree: Tree) -> None:
        """Let `tree` be tree `t`."""
        TREE_ARRAYS.update(self.table[t], self._trees[t], tree)
        self._trees[t] = tree

    def replace_all(self, trees: list[Tree]) -> None:
        """Let these be the trees."""
        self._trees = trees
        self._readdress()

    # ---- room

    def enlarge(self, want: NDArray[np.int64]) -> None:
        """Make room as a kernel has asked for."""
        t = int(want[WANT_TREE])
        short, rows = int(want[WANT_ARRAY]), int(want[WANT_ROWS])
        self.put(t, ncm_arrays.enlarged(self._trees[t], short, rows))

    def repack(self, t: int) -> None:
        """Make room for the histograms of a tree, as growing does when they are full."""
        self.put(t, ncm_arrays.enlarged(self._trees[t], HIST, 1))

    def add_slots(self, slots: int) -> None:
        """The memory has so many slots now."""
        self.replace_all([ncm_arrays.with_slots(tree, slots) for tree in self._trees])

    def add_columns(
        self, columns: ColumnTable, memory: RowMemory, replaced: Container[int]
    ) -> None:
        """New columns begin to count. Trees that are `replaced` before anybody uses them are left out."""
        self.bound_centroids(columns.n)
        weights = columns.weights(columns.counting)
        for t, tree in enumerate(self._trees):
            if t in replaced:
                continue
            tree = self._trees[t] = self.fitted(tree, columns, memory)
            ncm_arrays.set_weights(tree, columns.counting, weights)
        self._readdress()

    def bound_centroids(self, columns: int) -> None:
        """Set the bound of a tree's centroids for rows of so many columns."""
        self.params["max_rows"] = self._max_centroids(columns)

    def _max_centroids(self, columns: int) -> int:
        return ncm_width.centroids_for(self._memory_rows, len(self), columns)

    def fitted(self, tree: Tree, columns: ColumnTable, memory: RowMemory) -> Tree:
        """The tree as wide as the memory, cut down first to what so many columns leave room for."""
        if columns.n > ncm_width.FULL_WIDTH:
            tree = ncm_arrays.with_diagonal(tree)
        if columns.n > ncm_width.WIDE:
            slots = memory.slots
            tree = ncm_width.cut(
                tree,
                self._max_centroids(columns.n),
                memory.arrays,
                slots[tree.leaf[slots] >= 0],
                self.bagged,
            )
        wide = columns.width
        return ncm_arrays.widened(tree, wide) if tree.cen.shape[1] < wide else tree

    # ---- rows that leave

    def forget(self, evicted: Evicted) -> None:
        """Remove rows that left the memory from all trees."""
        forget_in_all(self.table, evicted.slots, evicted.labels, evicted.numbers, self.bagged)

    # ---- how good the trees are

    def info(self) -> NDArray[np.void]:
        """The records of all trees."""
        out = np.empty(len(self), TREE)
        for t, tree in enumerate(self._trees):
            out[t] = tree.info[0]
        return out

    def reset_counts(self) -> None:
        """A new epoch begins."""
        for tree in self._trees:
            tree.info["errors"], tree.info["near"], tree.info["nears"] = 0, 0.0, 0

    def errors(self) -> NDArray[np.float64]:
        """The running share of events that each tree alone got wrong."""
        return np.array([tree.info["error"][0] for tree in self._trees])

    def out_of_bag_errors(self, memory: RowMemory, weighted: bool = False) -> NDArray[np.float64]:
        """The share of rows outside its bags that each tree alone gets wrong.

        A row older than the splits of a tree that was kept is outside both its bags with chance e⁻², a newer
        one with chance e⁻¹. `weighted`: the older ones count e times, so that both count by their number.
        """
        out = np.zeros(len(self))
        balanced = int(self.params["balanced"][0])
        for t, tree in enumerate(self._trees):
            wrong, n, wrong_new, n_new = filling.out_of_bag(
                tree, memory.arrays, memory.slots, memory.of_class, balanced
            )
            two_bags = tree.info["bag"][0] != tree.info["grown_bag"][0]
            weight = math.e if weighted and two_bags else 1
            out[t] = (weight * wrong + wrong_new) / max(weight * n + n_new, 1)
        return out

    # ---- rows that enter together

    def settle(self, memory: RowMemory, columns: ColumnTable, threads: int) -> None:
        """Put rows of the memory that are in no leaf yet into the leaves of all trees."""
        rows: dict[int, NDArray[np.float32]] = {}  # by the width of the tree
        outside = [memory.slots[tree.leaf[memory.slots] < 0] for tree in self._trees]
        same = all(np.array_equal(slots, outside[0]) for slots in outside)

        def work(t: int) -> None:
            width, slots = self._trees[t].cen.shape[1], outside[t]
            z = rows.get(width) if same else None
            if z is None:
                z = rows[width] = training_rows(
                    memory.arrays, slots, columns.arrays.fill, width, np.uint64(0), 0, 0
                ).z
            self._enter(t, memory, slots, z)

        if not len(memory.slots):
            return
        work(0)
        if threads > 1:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(work, range(1, len(self))))
        else:
            for t in range(1, len(self)):
                work(t)

    def _enter(
        self, t: int, memory: RowMemory, slots: NDArray[np.int32], z: NDArray[np.float32]
    ) -> None:
        leaf = np.empty(len(slots), np.int32)
        filling.route(self._trees[t], z, leaf)
        begin = 0
        while begin < len(slots):
            short, begin = filling.enter(
                self._trees[t], memory.arrays, slots, leaf, begin, self.bagged
            )
            if short != FITS:
                room = len(slots) - begin
                self.put(t, ncm_arrays.enlarged(self._trees[t], short, room))
