"""How a forest's trees process rows: epochs, threads, growth, and what an interrupt leaves.

A subclass owns arrays and a kernel (`_call`), and says how the arrays grow and what of them a snapshot
holds. Everything that learns or predicts ends in `_call`, or for single events in `_call_one`.
"""

from __future__ import annotations

import abc
import copy
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import StreamForestError
from streamforest.forests.core.batch import Batch
from streamforest.forests.core.labels import LabelTable
from streamforest.kernels.core.operations import LEARN

if TYPE_CHECKING:
    from streamforest.forests.sharded.driver import Shards

EPOCH = 64
_CHUNK = 8192  # rows of a batch that are processed at a time, at most
_MAX_VOTES = 1 << 22  # numbers that hold their votes: fewer rows where there are many classes
_WORTH_THREADS = 64  # tree-rows below which handing work to threads costs more than it saves
NO_ANSWER = np.zeros((0, 0))
WANTS = 8  # kinds of arrays a kernel may ask to enlarge, at most
_NOT_STATE = ("_progress", "_routes", "_want", "_routed", "_lock", "_addresses", "_shards")
_OP_LEARN = np.full(1, LEARN, np.uint8)


def next_boundary(n: int) -> int:
    """The first epoch boundary after `n` learned rows: 1, 2, 4, … 64, then every multiple of 64.

    >>> [next_boundary(n) for n in (0, 1, 2, 3, 5, 63, 64, 100)]
    [1, 2, 4, 4, 8, 64, 128, 128]
    """
    if n < EPOCH:
        return 1 << n.bit_length()
    return (n // EPOCH + 1) * EPOCH


class Engine(abc.ABC):
    """The machinery under every forest.

    State is the same bits for any batch size and any number of threads.
    """

    _cuts_epochs: ClassVar[bool] = False  # whether `_end_epoch` does anything
    _can_shard: ClassVar[bool] = False  # whether its trees can be divided over actors
    _of_trees: ClassVar[tuple[str, ...]] = ()  # attributes that hold them, then
    _revision: ClassVar[int] = 1  # of what `_dump` gives; earlier ones are read for ever
    learning_revision: ClassVar[int] = 1
    """Of what the forest learns from an event: raise it whenever the same events give other bits. Journalled
    events are learned again under the same one only, see `runtime/revisions.py`."""

    n_trees: int
    n_jobs: int
    executor: str = "threads"
    n_actors: int = 2
    _n_learned: int
    _labels: LabelTable
    _shards: Shards | None = None  # the trees, while they are in actors: then there are none here
    _resting: dict[str, NDArray[Any]] | None = None  # the same in a copy, as arrays of a snapshot
    _saved_by: int | None = None  # learning revision in the snapshot that it was read from

    def _scratch(self) -> None:
        """What is neither parameter nor state: buffers of one row, the last routing, threads."""
        self._progress = np.zeros(self.n_trees, np.int64)
        self._routes = np.zeros(self.n_trees, np.int64)
        self._want = np.zeros(WANTS, np.int64)
        self._one_y = np.zeros(1, np.int64)
        self._one_known = np.zeros(1, np.int64)
        self._one_votes = self._new_votes(1)
        no_row, no_op = np.zeros((1, 0)), np.zeros(1, np.uint8)
        self._one_batch = Batch(no_row, self._one_y, no_op, self._one_known)
        self._routed: bytearray | None = None  # the row that `_routes` belongs to
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = self._pool_size = 0
        self._lock = threading.RLock()  # a server may predict while a loop learns
        self._broken = False  # an interrupt left some trees ahead of others

    # ---- what a subclass provides

    @abc.abstractmethod
    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        """Make the arrays of trees that have seen nothing, one per seed; check own parameters."""

    @abc.abstractmethod
    def _call(
        self,
        first: int,
        last: int,
        want: NDArray[np.int64],
        batch: Batch,
        votes: NDArray[np.int64],
    ) -> bool:
        """Take trees `first` to `last` through the rows, adding to `votes`.

        False if an array is too small for what comes next: `want` then says what is needed, and
        after `_enlarge(want)` the same call goes on where it stopped (`_progress`).
        """

    @abc.abstractmethod
    def _enlarge(self, want: NDArray[np.int64]) -> None:
        """Make room for at least `want`."""

    @abc.abstractmethod
    def _dump(self) -> dict[str, NDArray[Any]]:
        """The state as one-dimensional arrays without slack, for a snapshot."""

    @abc.abstractmethod
    def _restore(self, take: Callable[..., NDArray[Any]]) -> None:
        """Take the state back: `take(name, dtype, size)` gives an array or refuses it."""

    def _restore_revision(self, take: Callable[..., NDArray[Any]], revision: int) -> None:
        """The same for what an earlier revision of this forest may have written."""
        self._restore(take)

    @abc.abstractmethod
    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest."""

    def _new_votes(self, n: int) -> NDArray[np.int64]:
        """Room for the votes on `n` rows. Forests with several experts have a further axis."""
        return np.zeros((n, len(self._labels)), np.int64)

    def _mix(self, votes: NDArray[np.int64]) -> NDArray[Any]:
        """Votes as one score per row and class, with the weights as they stand."""
        return votes

    def _mix_and_judge(
        self, votes: NDArray[np.int64], y: NDArray[np.int64], op: NDArray[np.uint8]
    ) -> NDArray[Any]:
        """The same for rows just processed, where weights may change with each label."""
        return self._mix(votes)

    def _observe(self, batch: Batch) -> None:
        """Stage rows for the shared stores; they take effect in `_end_epoch`."""

    def _observe_one(self, X: NDArray[np.float64]) -> None:
        """The same for the row that `learn_one` is about to learn."""
        self._observe(self._one_event(X, _OP_LEARN, False))

    def _end_epoch(self, batch: Batch) -> None:
        """What changes between epochs: shared stores, what trees know of each other.

        `batch` ends with the last row of the epoch.
        """

    # ---- trees in actors: what a forest says that can be divided, see `forests/sharded`

    def _keep_trees(self, first: int, last: int) -> None:
        """Keep these trees only; they are numbered from 0 then."""

    def _shared(self) -> dict[str, Any]:
        """What kernels read beside trees and rows, as of this epoch."""
        return {}

    def _take_shared(self, shared: dict[str, Any], X: NDArray[np.float64]) -> None:
        """Have that, before rows as wide as `X` are processed."""

    def _figures(self) -> NDArray[Any]:
        """What `_end_epoch` has to know of each tree."""
        return np.zeros(0)

    def _tree_votes(self, votes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The part of the votes that trees give."""
        return votes

    def _take_trees(self, other: Self) -> None:
        """Have the trees of another forest that is the same but for them."""
        for name in self._of_trees:
            setattr(self, name, getattr(other, name))

    def _place_trees(self) -> None:
        """Bring the trees to where `executor` wants them; the first thing that every public method does."""
        if self.executor != "threads" or self._shards is not None or self._resting is not None:
            from streamforest.forests.sharded import driver

            driver.place(self)  # type: ignore[arg-type]

    def _whole(self) -> Self:
        """This forest with its trees at hand: itself, or a copy while they are in actors."""
        if self._shards is None and self._resting is None:
            return self
        from streamforest.forests.sharded import driver

        return driver.whole(self)  # type: ignore[arg-type,no-any-return]

    def _dump_whole(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot, wherever the trees are."""
        if self._shards is not None:
            return self._dump() | self._shards.arrays(self)  # type: ignore[arg-type]
        return self._dump() | (self._resting or {})

    # ---- processing rows

    def _call_one(self, X: NDArray[np.float64], op: NDArray[np.uint8], reuse: bool) -> bool:
        return self._call(
            0, self.n_trees, self._want, self._one_event(X, op, reuse), self._one_votes
        )

    def _one_event(self, X: NDArray[np.float64], op: NDArray[np.uint8], reuse: bool) -> Batch:
        """The batch of the one row that the buffers hold; the object is used again and again."""
        batch = self._one_batch
        batch.X, batch.op, batch.reuse = X, op, reuse
        return batch

    def _tidy(self) -> None:
        """Give back memory that is no longer needed. Called after batches and now and then."""

    def _refuse_if_broken(self) -> None:
        if self._broken:
            raise StreamForestError(
                "this model was interrupted in the middle of an event, so that some of its trees "
                "are ahead of others: load the last snapshot"
            )

    def _learn_row(self, X: NDArray[np.float64], reuse: bool) -> None:
        """One row that the buffers hold, through all trees."""
        self._refuse_if_broken()
        if self._shards is not None:
            self._advance(self._one_event(X, _OP_LEARN, False), answer=False)
            return
        try:
            if self._cuts_epochs:
                self._observe_one(X)
            while not self._call_one(X, _OP_LEARN, reuse):
                self._enlarge(self._want)
            self._n_learned += 1
            if self._cuts_epochs and next_boundary(self._n_learned - 1) == self._n_learned:
                self._end_epoch(self._one_batch)
        except BaseException:
            self._broken = True
            self._progress.fill(0)
            raise
        if self._n_learned % _CHUNK == 0:
            self._tidy()

    def _advance(self, batch: Batch, answer: bool) -> NDArray[Any]:
        """Take all trees through the rows, cut at epoch boundaries where the forest has epochs."""
        self._refuse_if_broken()
        n = len(batch.X)
        scores = [] if n else [self._mix(self._new_votes(0))]
        learns = (batch.op & LEARN) != 0
        clock = self._n_learned + np.cumsum(learns)  # after each row
        start = 0
        at_once = max(EPOCH, min(_CHUNK, _MAX_VOTES // max(1, self._new_votes(1).size)))
        try:
            while start < n:
                stop = min(n, start + at_once)
                boundary = 0
                if self._cuts_epochs:
                    boundary = next_boundary(self._n_learned)
                    stop = min(stop, int(np.searchsorted(clock, boundary)) + 1)
                part = batch.cut(slice(start, stop))
                if self._cuts_epochs:
                    self._observe(part)
                votes = self._new_votes(stop - start)
                self._process(part, votes)
                mixed = self._mix_and_judge(votes, part.y, part.op)
                if answer:
                    scores.append(mixed)
                self._n_learned = int(clock[stop - 1])
                if self._n_learned == boundary:
                    self._end_epoch(part)
                start = stop
        except BaseException:
            self._broken = bool(learns.any())
            self._progress.fill(0)
            raise
        return scores[0] if len(scores) == 1 else np.concatenate(scores or [NO_ANSWER])

    def _process(self, batch: Batch, votes: NDArray[np.int64]) -> None:
        """Take the forest through these rows."""
        if self._shards is None:
            self._process_trees(batch, votes)
            self._process_rest(batch, votes)
        else:
            sent = self._shards.begin(self, batch)  # type: ignore[arg-type]
            self._process_rest(batch, votes)
            self._shards.finish(sent, self._tree_votes(votes))

    def _process_rest(self, batch: Batch, votes: NDArray[np.int64]) -> None:
        """What belongs to no tree."""

    def _process_trees(self, batch: Batch, votes: NDArray[np.int64]) -> None:
        """Take all trees of this process through these rows, on as many threads as are worth it."""
        jobs = min(self.n_jobs, self.n_trees)
        if jobs == 1 or len(batch.X) * self.n_trees < _WORTH_THREADS * jobs:
            while not self._call(0, self.n_trees, self._want, batch, votes):
                self._enlarge(self._want)
            return
        cuts = [self.n_trees * j // jobs for j in range(jobs + 1)]
        shares = [votes] + [np.zeros_like(votes) for _ in range(jobs - 1)]
        wants = [np.zeros(WANTS, np.int64) for _ in range(jobs)]

        def work(j: int) -> bool:
            return self._call(cuts[j], cuts[j + 1], wants[j], batch, shares[j])

        todo = list(range(jobs))
        while todo:
            running = [self._threads(jobs).submit(work, j) for j in todo]
            try:
                wait(running)  # all of them, even if one fails: no thread works on after this call
            except BaseException:  # an interrupt: what the threads work on must live until they end
                wait(running)
                raise
            todo = [j for j, future in zip(todo, running) if not future.result()]
            for j in todo:
                self._enlarge(wants[j])
        for share in shares[1:]:
            votes += share

    def _threads(self, jobs: int) -> ThreadPoolExecutor:
        """The threads of this process: a child made by fork() has none of its parent's."""
        if self._pool is None or self._pool_process != os.getpid() or self._pool_size != jobs:
            self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="streamforest")
            self._pool_process = os.getpid()
            self._pool_size = jobs
        return self._pool

    # ---- copies

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in list(state):
            if name.startswith(("_one_", "_pool")) or name in _NOT_STATE:
                del state[name]
        if self._shards is not None:
            with self._lock:
                self._refuse_if_broken()
                state["_resting"] = self._shards.arrays(self)  # type: ignore[arg-type]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._scratch()
        self._broken = state.get("_broken", False)

    def __copy__(self) -> Self:
        """Two forests on one set of arrays would pull them from under each other."""
        return copy.deepcopy(self)
