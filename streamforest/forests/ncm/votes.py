"""How an NCM forest moves through rows: its kernel, its epochs, and three opinions mixed to one answer."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.batch import Batch
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.ncm.rows import NCMRows
from streamforest.kernels.core.array_table import Seats
from streamforest.kernels.core.compiling import Announced
from streamforest.kernels.core.entropy import XLOGX
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.ncm import bagging, blending, novelty, row_memory
from streamforest.kernels.ncm import entry as ncm_move
from streamforest.kernels.ncm.blending import BLENDS
from streamforest.kernels.ncm.class_means import LENSES, fade, grind, look_again
from streamforest.kernels.ncm.entry import BLEND, JUDGE, STAGE, TREES
from streamforest.kernels.ncm.neighbours import settle_distances
from streamforest.kernels.ncm.row_memory import MEAN

_UNJUDGED = BLENDS.min(axis=1) + BLENDS[:, blending.TREES] / 8  # all are heard, trees most
_NO_OUT = np.zeros((0, 0), np.int64)


class NCMVotes(NCMRows):
    """The forest as the engine and its rounds see it."""

    background: bool
    _kernel = Announced(ncm_move.move, "NCM forest")
    _cuts_epochs: ClassVar[bool] = True
    learning_revision: ClassVar[int] = 2  # 1: metrics of any width were full, centroids unbounded

    def _scratch(self) -> None:
        super()._scratch()
        self._progress = np.zeros(self.n_trees + 1, np.int64)
        self._routes = np.zeros((self.n_trees, 2), np.int64)
        self._picks = np.full((1, LENSES), -1, np.int64)
        self._leads = np.zeros((1, LENSES))
        self._nears = np.zeros(self.n_trees)
        self._slots = np.full(1, -1, np.int32)
        self._note_columns()
        self._taking_in: str | None = None
        self._readdress()
        self._one_slots = np.full(1, -1, np.int32)
        self._one_out = _NO_OUT
        self._seats = Seats(lambda *held: ncm_move.arrays_of(*held, XLOGX, BLENDS))

    def _held(self) -> tuple[Any, ...]:
        """What the kernel's table is made of; whoever uses the table holds on to it meanwhile.

        The trees' own arrays stand in a table of their own: they live as long as `_trees` holds them.
        """
        return (
            self._memory,
            self._means,
            self._near,
            self._usual,
            self._of_class,
            self._fill,
            self._column,
            self._features.categorical,
            self._codes,
            self._stats,
            self._params,
            self._progress,
            self._routes,
            self._picks,
            self._leads,
            self._nears,
            self._blend_right,
            self._lens_right,
            self._tally,
            self._table,
        )

    def _run(
        self,
        parts: int,
        first: int,
        last: int,
        want: NDArray[np.int64],
        batch: Batch,
        slots: NDArray[np.int32],
        votes: NDArray[np.int64],
        out: NDArray[np.int64],
    ) -> bool:
        held = self._held()
        return self._kernel.run(  # type: ignore[no-any-return]
            self._seats.table(held),
            parts,
            first,
            last,
            want,
            batch.X,
            batch.y,
            batch.op,
            slots,
            self._n_learned,
            self._n_columns,
            self._n_seen,
            self._speaker,
            self._blend_step,
            batch.reuse,
            votes,
            batch.distances,
            out,
        )

    def _call(
        self,
        first: int,
        last: int,
        want: NDArray[np.int64],
        batch: Batch,
        votes: NDArray[np.int64],
    ) -> bool:
        return self._run(TREES, first, last, want, batch, self._slots, votes, _NO_OUT)

    # ---- epochs

    def _end_epoch(self) -> None:
        self._fill[:] = self._stats[MEAN]
        fade(self._means, int(self._tally[blending.EVENTS]))
        settle_distances(self._stats, self._near)
        new = self._n_columns > self._old_columns
        if new:
            self._new_columns()
        weight = float(self._means.weight[0])
        if new or weight > 1.1 * self._ground_at or self._n_learned % 4096 == 0:
            self._grind()
        self._evict()
        if self._taking_in:
            self._rounds.wait_for(self)
        else:
            self._rounds.end_epoch(self)
            self._settle_blend()
        self._tally[:] = 0

    def _grind(self) -> None:
        grind(self._means, self._n_columns)
        look_again(self._means)
        self._ground_at = float(self._means.weight[0])

    def _settle_blend(self) -> None:
        """Who speaks until the next epoch ends."""
        self._speaker = int(np.argmax(self._lens_right))
        if not self._parameters["mean_vote"] and not self._parameters["neighbours"]:
            self._blend_step = 0
        elif self._rounds.stands:
            right = self._blend_right if self._blend_right.any() else _UNJUDGED
            self._blend_step = int(np.argmax(np.where(self._allowed, right, -1.0)))

    def _evict(self) -> None:
        victims, numbers = row_memory.evict(
            self._memory,
            self._order,
            self._n_rows,
            ncm_width.rows_for(int(self._parameters["memory"]), self._n_columns),
            self._of_class,
            self._memory_seed,
        )
        if len(victims) == 0:
            return
        self._n_rows -= len(victims)
        labels = self._memory.label[victims]
        blending.forget_all(self._table, victims, labels, numbers, int(self._params["bagged"][0]))
        self._rounds.evicted(self._n_learned, victims, labels, numbers)

    # ---- votes

    def _new_votes(self, n: int) -> NDArray[np.int64]:
        return np.zeros((n, 3, len(self._labels)), np.int64)

    def _mix(self, votes: NDArray[np.int64]) -> NDArray[Any]:
        out = np.empty((len(votes), votes.shape[2]), np.int64)
        blending.blend_to(votes, self.n_trees, BLENDS[self._blend_step], out)
        return out

    def _settle_rows(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        op: NDArray[np.uint8],
        votes: NDArray[np.int64],
    ) -> None:
        self._n_seen = max(self._n_seen, blending.tell(y, op, self._of_class))
        if self._has_categories:
            blending.tell_codes(X, op, self._features.categorical, self._codes)
        if self._taking_in:
            self._tally[blending.EVENTS] += int(np.count_nonzero(op & LEARN))
            return
        blending.judge(
            votes,
            y,
            op,
            self._picks,
            self.n_trees,
            BLENDS,
            self._blend_step,
            self._blend_right,
            self._lens_right,
            self._tally,
        )

    def _process(self, batch: Batch, votes: NDArray[np.int64]) -> None:
        if batch.novelty is not None:
            batch.distances = np.full((self.n_trees + 1, len(batch.X)), np.nan, np.float32)
        if self._taking_in == "memory":
            self._call(0, 0, self._want, batch, votes)  # the class means only
        else:
            super()._process(batch, votes)
        if batch.novelty is not None:
            batch.novelty[:] = novelty.novelty(batch.distances, self._mix(votes))
        self._settle_rows(batch.X, batch.y, batch.op, votes)

    def _call_one(self, X: NDArray[np.float64], op: NDArray[np.uint8], reuse: bool) -> bool:
        parts = TREES | BLEND
        if op[0] & LEARN:
            parts = STAGE | TREES | JUDGE
            if not reuse:  # else the votes of `predict_one` are still there
                self._one_votes = self._new_votes(1)
        elif self._one_out.shape[1] != self._one_votes.shape[2]:
            self._one_out = np.zeros((1, self._one_votes.shape[2]), np.int64)
        batch = self._one_event(X, op, reuse)
        while not self._run(
            parts,
            0,
            self.n_trees,
            self._want,
            batch,
            self._one_slots,
            self._one_votes,
            self._one_out,
        ):
            parts &= ~STAGE
            self._enlarge(self._want)
        if parts & JUDGE:
            self._n_seen = max(self._n_seen, int(self._one_y[0]) + 1)
        return True

    def _mix_one(self) -> NDArray[Any]:
        out: NDArray[Any] = self._one_out[0]
        return out

    def _alone(self, votes: NDArray[np.int64]) -> NDArray[np.int64]:
        return votes[:, blending.TREES]

    # ---- how good the trees are

    def tree_errors(self) -> NDArray[np.float64]:
        """The running share of events that each tree alone got wrong."""
        with self._lock:
            return np.array([tree.info["error"][0] for tree in self._trees])

    def out_of_bag_errors(self) -> NDArray[np.float64]:
        """The share of rows outside its bags that each tree alone gets wrong."""
        with self._lock:
            out = np.zeros(self.n_trees)
            for t, tree in enumerate(self._trees):
                wrong, n = bagging.out_of_bag(
                    tree,
                    self._memory,
                    self._order[: self._n_rows],
                    self._of_class,
                    int(self._params["balanced"][0]),
                )
                out[t] = wrong / max(n, 1)
            return out
