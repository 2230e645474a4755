"""The forest's side of its shards: calls with numbers, a log of them, and shards that are built again.

A shard that is gone is built again from the last snapshot and the calls since then, which are kept: its trees
are then identical to those of an uninterrupted shard. When the log is full, or learning it again would take
long, a new snapshot is made: between calls of the forest only, when its tables and its trees agree.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import ExecutorError, ParameterError
from streamforest.forests.core import registry, serialization
from streamforest.forests.core.batch import Batch
from streamforest.forests.core.parameters import EXECUTORS, check_choice, check_int
from streamforest.forests.persistence import snapshot
from streamforest.forests.sharded.shard import Call, Step, about, step_of
from streamforest.kernels.core.operations import LEARN

if TYPE_CHECKING:
    from streamforest.forests.core.base import Forest

MAX_LOG_BYTES = 64 << 20
"""Rows that are kept to be learned again, beyond which a new snapshot is made."""
MAX_REPLAY_SECONDS = 30.0
"""Work that is kept in the same way; more if a snapshot takes over a twentieth of it."""
TREES_ALIKE = 8
"""The metric of a stream tree, and when it looks for drift, depend on its number modulo 8: every shard begins
at a multiple of 8, so that its trees do what they would do in one process."""
_LIVES = 3  # of a shard in one call
_ENTRY = 256  # bytes of an entry of the log, beside its arrays

log = logging.getLogger(__name__)


class Lost(Exception):
    """A shard that is gone, or may be; its answer will not come."""


class Cluster(Protocol):
    """Where shards live."""

    def put(self, data: bytes) -> Any:
        """Keep the bytes of a snapshot; an address that every shard can read it from."""

    def share(self, step: Step) -> Any:
        """A step in the form in which it goes to several shards."""

    def create(self, address: Any, *arguments: Any) -> Any:
        """Begin to build a `Shard` from the snapshot at an address."""

    def ask(self, shard: Any, method: str, *arguments: Any) -> Any:
        """Begin to call a method of a shard."""

    def answer(self, asked: Any, starting: bool = False) -> Any:
        """What a method returned; Lost if the shard is gone, ExecutorError if it does not start."""

    def end(self, shard: Any) -> None:
        """End a shard, if it is still there."""


def check(forest: Forest) -> None:
    """ParameterError if the trees of this forest cannot be divided as its parameters say."""
    if not forest._can_shard:
        kinds = [one.kind for one in registry.entries() if one.load()._can_shard]
        raise ParameterError(
            f"executor='ray' with a {type(forest).__name__}: use one of the kinds "
            f"{', '.join(map(repr, kinds))}, or executor='threads'"
        )
    check_int("n_actors", forest.n_actors, 1)
    most = -(-forest.n_trees // TREES_ALIKE)
    if forest.n_actors > most:
        raise ParameterError(
            f"n_actors={forest.n_actors!r}: use at most {most} for n_trees={forest.n_trees}, "
            f"{TREES_ALIKE} trees to an actor"
        )


def place(forest: Forest) -> None:
    """Bring the trees of a forest to where its `executor` wants them, and do what is due there."""
    check_choice("executor", forest.executor, EXECUTORS)
    if forest.executor == "threads":
        _take_home(forest)
    elif forest._shards is None or forest._shards.settings != _settings(forest):
        from streamforest.forests.sharded.ray_actors import RayCluster

        check(forest)
        if forest._shards is not None:  # the new actors may need the CPUs of the old ones
            _take_home(forest)
        shards = Shards(forest, RayCluster.connected())
        forest._shards, forest._resting = shards, None
        forest._keep_trees(0, 0)
    else:
        forest._shards.make_snapshot_if_due(forest)


def whole(forest: Forest) -> Any:
    """The same forest with all its trees in this process: a copy."""
    copy: Any = serialization.restore(type(forest), *serialization.dump(forest))
    copy.n_jobs = forest.n_jobs
    return copy


def cuts(n_trees: int, n_actors: int) -> list[tuple[int, int]]:
    """The trees of each shard.

    >>> cuts(20, 2), cuts(1_000, 3)
    ([(0, 8), (8, 20)], [(0, 328), (328, 664), (664, 1000)])
    """
    groups = -(-n_trees // TREES_ALIKE)
    ends = [TREES_ALIKE * (groups * j // n_actors) for j in range(n_actors)] + [n_trees]
    return list(pairwise(ends))


class _Question(NamedTuple):
    """What all shards, or one of them, are asked."""

    method: str
    argument: Any
    changes: bool = False
    """Whether it changes trees."""


class Shards:
    """The shards of one forest.

    Parameters
    ----------
    forest
        The forest, between two of its calls.
    cluster
        Where the shards are to live.
    """

    def __init__(self, forest: Forest, cluster: Cluster) -> None:
        self.settings = _settings(forest)
        self.figures: NDArray[Any] = np.zeros(0)
        """What the trees said of themselves after the last rows, in the order of trees."""
        self._cluster = cluster
        self._cuts = cuts(forest.n_trees, forest.n_actors)
        self._number = 0  # of the next call that changes trees
        self._make_snapshot(forest)
        self._shards = [self._create(j) for j in range(len(self._cuts))]
        self.close = weakref.finalize(self, _end, os.getpid(), cluster, self._shards)
        """End the shards; done by itself when the forest is gone."""
        try:
            for shard in self._shards:
                self._check_versions(shard)
        except Lost as lost:
            self.close()
            raise ExecutorError(f"an actor did not start: {lost}") from lost
        except BaseException:
            self.close()  # not when somebody drops the error: they have CPUs that the next try needs
            raise

    # ---- calls

    def begin(self, forest: Forest, batch: Batch) -> tuple[_Question, list[Any], float]:
        """Send rows to all shards; `finish` waits for what they say."""
        begun = time.monotonic()
        question = _Question("process", step_of(forest, batch), bool((batch.op & LEARN).any()))
        message = question._replace(argument=self._cluster.share(question.argument))
        return question, [self._ask(j, message) for j in range(len(self._cuts))], begun

    def finish(self, sent: tuple[_Question, list[Any], float], votes: NDArray[np.int64]) -> None:
        """Add the votes of all trees."""
        question, asked, begun = sent
        figures = []
        for j, one in enumerate(asked):
            of_shard, of_trees = self._answer(j, one, question)
            votes += of_shard
            figures.append(of_trees)
        self.figures = np.concatenate(figures)
        if question.changes:
            self._keep(question.method, question.argument.to_learn())
            self._worked += time.monotonic() - begun

    def chain(self, method: str, value: Any) -> Any:
        """Hand a value from shard to shard in the order of trees, so that sums are those of one process."""
        for j in range(len(self._cuts)):
            question = _Question(method, value)
            value = self._answer(j, self._ask(j, question), question)
        return value

    def change(self, method: str, argument: Any) -> None:
        """Call a method that changes trees."""
        self._everywhere(_Question(method, argument, True))
        self._keep(method, argument)

    def arrays(self, forest: Forest) -> dict[str, NDArray[Any]]:
        """All trees as arrays of a snapshot."""
        parts = self._everywhere(_Question("arrays", step_of(forest, _no_rows(forest))))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _everywhere(self, question: _Question) -> list[Any]:
        asked = [self._ask(j, question) for j in range(len(self._cuts))]
        return [self._answer(j, one, question) for j, one in enumerate(asked)]

    def _ask(self, j: int, question: _Question) -> Any:
        method, argument, changes = question
        return self._cluster.ask(self._shards[j], "call", self._number, changes, method, argument)

    def _answer(self, j: int, asked: Any, question: _Question) -> Any:
        """What shard `j` said. If it is gone it is built again, and asked again."""
        why = ""
        for _ in range(_LIVES):
            try:
                if why:
                    self._rebuild(j, why)
                    asked = self._ask(j, question)
                return self._cluster.answer(asked)
            except Lost as lost:
                why = str(lost)
        first, last = self._cuts[j]
        raise ExecutorError(
            f"the actor of trees {first} to {last - 1} ended {_LIVES} times in one call: {why}"
        )

    # ---- snapshot and log

    def make_snapshot_if_due(self, forest: Forest) -> None:
        """Make a new snapshot if the log is full; only between calls of the forest."""
        most = max(MAX_REPLAY_SECONDS, 20.0 * self._took)
        if self._log_bytes > MAX_LOG_BYTES or self._worked > most:
            self._make_snapshot(forest)

    def _make_snapshot(self, forest: Forest) -> None:
        begun = time.monotonic()
        self._snapshot = self._cluster.put(snapshot.encode({"main": forest}))
        self._first_number = self._number
        self._log: list[Call] = []
        self._log_bytes = 0
        self._worked, self._took = 0.0, time.monotonic() - begun

    def _keep(self, method: str, argument: Any) -> None:
        """All shards have followed a call: note it, so that it can be followed again."""
        self._log.append((method, argument))
        self._log_bytes += _ENTRY + (argument.nbytes if isinstance(argument, Step) else 0)
        self._number += 1

    # ---- building

    def _create(self, j: int) -> Any:
        _, threads = self.settings
        return self._cluster.create(self._snapshot, *self._cuts[j], self._first_number, threads)

    def _rebuild(self, j: int, why: str) -> None:
        begun = time.monotonic()
        first, last = self._cuts[j]
        log.warning("lost the actor of trees %d to %d, building it again: %s", first, last - 1, why)
        self._cluster.end(self._shards[j])
        self._shards[j] = self._create(j)
        try:
            self._check_versions(self._shards[j])
            self._cluster.answer(self._cluster.ask(self._shards[j], "replay", self._log))
        except BaseException:
            self._cluster.end(
                self._shards[j]
            )  # half built it must answer nothing: built anew when asked
            raise
        took, calls = time.monotonic() - begun, len(self._log)
        log.warning("it is back after %.1f s: a snapshot and %d calls since", took, calls)

    def _check_versions(self, shard: Any) -> None:
        there = self._cluster.answer(self._cluster.ask(shard, "about"), starting=True)
        here = about()
        other = [f"{k} {there.get(k)} (here {here[k]})" for k in here if there.get(k) != here[k]]
        if other:
            raise ExecutorError(
                f"an actor has other versions than this process: {', '.join(other)}; the same bits "
                "need the same versions on all machines"
            )


def _settings(forest: Forest) -> tuple[int, int]:
    return forest.n_actors, forest.n_jobs


def _take_home(forest: Forest) -> None:
    """Bring the trees into this process, and end their actors."""
    forest._take_trees(whole(forest))
    forest._resting = None
    if forest._shards is not None:
        forest._shards.close()
        forest._shards = None


def _end(process: int, cluster: Cluster, shards: list[Any]) -> None:
    if process == os.getpid():  # they are not those of a child made by fork()
        for shard in shards:
            cluster.end(shard)


def _no_rows(forest: Forest) -> Batch:
    none = np.zeros(0, np.int64)
    return Batch(np.zeros((0, max(1, len(forest._features)))), none, none.astype(np.uint8), none)
