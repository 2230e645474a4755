"""Work on one tree that takes long: growing it anew, or a round of one of the papers' strategies.

A job reads the memory as it stood when it was begun: slots that fall free meanwhile are not written to
before it is done. So it may run in any thread, at once or later, and gives the same tree.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.forests.ncm.width import compacted
from streamforest.kernels.core.entropy import XLOGX
from streamforest.kernels.ncm import advance as ncm_advance
from streamforest.kernels.ncm import bagging, node_sampling, rust
from streamforest.kernels.ncm.grow import FITS, HIST, Ground, grow
from streamforest.kernels.ncm.layout import FULL_PLAIN, Memory, Record, Tree
from streamforest.kernels.ncm.metric import metric_of
from streamforest.kernels.ncm.row_memory import ground_of, sort_by_number

MODES = {
    "quality": node_sampling.QUALITY,
    "size": node_sampling.SIZE,
    "uniform": node_sampling.UNIFORM,
}


MOST_ROUNDS = (1 << 30) - 1
"""Where a tree stops counting its rounds: they are the upper half of its draws' index."""

MOST_KEPT = 1_024
"""Where a tree stops counting the rounds in a row that it was kept by: each is a step when it is judged."""


@dataclass
class Scene:
    """What all jobs of one moment see: the memory, and what the forest knows of it."""

    born: int  # rows learned
    memory: Memory
    slots: NDArray[np.int32]  # of the rows in memory, in the order of their numbers
    columns: int  # in use
    fill: NDArray[np.float32]
    classes: int
    params: NDArray[np.void]
    lens: NDArray[np.float32]
    scale: NDArray[np.float32] | None  # a metric that was fixed once and for all
    pi: float
    mode: int
    new: NDArray[np.int32]  # classes that came since the last round

    @classmethod
    def past(cls, born: int, columns: int, params: NDArray[np.void]) -> Scene:
        """What is left of a scene whose job is done."""
        empty = np.zeros((0, 0), np.float32)
        return cls(
            born=born,
            memory=Memory(empty, np.zeros(0, np.int32), np.zeros(0, np.int64)),
            slots=np.zeros(0, np.int32),
            columns=columns,
            fill=empty[0:0, 0:0].ravel(),
            classes=0,
            params=params,
            lens=empty[None],
            scale=None,
            pi=0.0,
            mode=0,
            new=np.zeros(0, np.int32),
        )

    @property
    def p(self) -> Record:
        """The kernels' parameters."""
        return self.params[0]

    @property
    def n_centroids(self) -> int:
        """Centroids of a node."""
        return ncm_advance.centroids_for(self.classes, self.p)

    def metric(self, kind: int, ground: Ground) -> NDArray[np.float32]:
        """The metric of a kind by these rows."""
        if self.scale is not None:
            out = np.zeros((1, ground.z.shape[1]), np.float32)
            out[:, : self.scale.shape[1]] = self.scale
            out[:, self.scale.shape[1] : self.columns] = 1.0
            return out
        if kind >= FULL_PLAIN:
            lens: NDArray[np.float32] = self.lens[kind - FULL_PLAIN].copy()
            return lens
        return metric_of(kind, ground.z, ground.label, self.classes, self.columns)

    def ground(self, tree: Tree, slots: NDArray[np.int32]) -> Ground:
        """Rows to grow a part of a tree from."""
        info = tree.info[0]
        return ground_of(
            self.memory,
            slots,
            self.fill,
            tree.cen.shape[1],
            info["seed"],
            int(info["bag"]),
            int(self.p["bagged"]),
        )


@dataclass
class Job:
    """A tree to be put in place of tree `t` after `swap_at` rows."""

    t: int
    kind: str
    """`fresh`, `refill`, `prune` or the name of a strategy."""
    scene: Scene
    swap_at: int
    before: Tree | None
    """The tree it is made from; of one grown anew only the seed and the clock count. None: done."""
    metric: int
    future: Future[Tree] | None = None
    result: Tree | None = None
    process: int = field(default_factory=os.getpid)

    def work(self) -> Tree:
        """Make the tree: the same one in any thread at any time."""
        assert self.before is not None
        if self.kind == "fresh":
            return grown(self.scene, rooted(self.scene, self.before, self.metric))
        tree = ncm_arrays.copied(self.before)
        tree.info["rounds"] = _next_round(tree)
        return _ROUNDS[self.kind](self.scene, tree)

    def tree(self) -> Tree:
        """The finished tree; waits if it must. A forked child has no thread to wait for."""
        if self.result is None:
            waits = self.future is not None and (self.process == os.getpid() or self.future.done())
            self.result = self.future.result() if waits and self.future else self.work()
            self.future = None
        return self.result


def _next_round(tree: Tree) -> int:
    return min(int(tree.info["rounds"][0]) + 1, MOST_ROUNDS)


def rooted(scene: Scene, before: Tree, kind: int) -> Tree:
    """A tree that is nothing but a root, to be grown in place of `before`, with a bag of its own.

    It has room for more than trees of so many rows usually take, since growing begins anew where room
    is short; a grown tree is trimmed. Histograms always fit: a leaf takes at most four entries a row.
    """
    width = scene.memory.rows.shape[1]
    rounds = _next_round(before)
    m = len(scene.slots)
    tree = ncm_arrays.new_tree(
        int(before.info["seed"][0]),
        nodes=min(int(scene.p["max_nodes"]), m) + 64,
        hist=4 * m + 256,
        rows=min(int(scene.p["max_rows"]), m + m // 2) + 64,
        width=width,
        slots=len(scene.memory.label),
        metric=np.ones((1, width), np.float32),
    )
    info = tree.info
    info["rounds"] = info["bag"] = info["grown_bag"] = rounds
    info["draws"] = rounds << 32  # draws of its own, whatever the tree before it has used
    info["born"] = scene.born
    info["metric"] = kind
    return tree


def grown(scene: Scene, tree: Tree) -> Tree:
    """The root grown to a tree."""
    ground = scene.ground(tree, scene.slots)
    tree = tree._replace(metric=scene.metric(int(tree.info["metric"][0]), ground))
    while True:
        short = grow(tree, 0, True, ground, scene.p, scene.n_centroids, scene.classes, XLOGX)
        if short == FITS:
            return ncm_arrays.trimmed(tree)
        tree = ncm_arrays.enlarged(tree, short, len(scene.slots))


def _igt(scene: Scene, tree: Tree) -> Tree:
    """Incrementally grow tree (Ristin 2016, 4.2): leaves that can now be split are."""
    begin = 0
    while True:
        short, begin = ncm_advance.grow_leaves(
            tree, begin, scene.memory, scene.fill, scene.classes, scene.p, XLOGX
        )
        if short == FITS:
            return tree
        tree = ncm_arrays.enlarged(tree, short, len(scene.slots))


def _draw(scene: Scene, tree: Tree) -> tuple[node_sampling.Survey, NDArray[np.int32]]:
    seen = node_sampling.survey(tree, scene.slots)
    drawn = node_sampling.draw_nodes(
        tree,
        scene.memory,
        seen,
        scene.pi,
        scene.mode,
        int(scene.p["bagged"]),
        scene.classes,
        XLOGX,
    )
    return seen, drawn


def _rows_below(scene: Scene, seen: node_sampling.Survey, q: int) -> NDArray[np.int32]:
    slots = seen.row[seen.start[q] : seen.start[seen.end[q]]].copy()
    sort_by_number(slots, scene.memory.number)
    return slots


def _rtst(scene: Scene, tree: Tree) -> Tree:
    """Retrain subtree (Ristin 2016, 4.3): drawn nodes become leaves again and are grown anew."""
    seen, drawn = _draw(scene, tree)
    if len(drawn) == 0:
        return _igt(scene, tree)
    done = 0  # places up to here lie below a node that was grown anew
    for q in sorted(seen.place[drawn].tolist()):
        if q < done:
            continue
        done = int(seen.end[q])
        i = int(seen.node[q])
        ground = scene.ground(tree, _rows_below(scene, seen, q))
        here = tree.node[i : i + 1]
        here["left"], here["first"], here["k"] = -1, 0, 0
        while True:
            short = grow(tree, i, True, ground, scene.p, scene.n_centroids, scene.classes, XLOGX)
            if short == FITS:
                break
            tree = ncm_arrays.enlarged(tree, short, len(ground.slot))
    return _igt(scene, compacted(tree, scene.slots))


def _rust(scene: Scene, tree: Tree) -> Tree:
    """Reuse subtree (Ristin 2016, 4.4): drawn nodes take in the new classes, upper ones first."""
    _, drawn = _draw(scene, tree)
    for i in drawn.tolist():
        seen = node_sampling.survey(tree, scene.slots)
        q = int(seen.place[i])
        ground = scene.ground(tree, _rows_below(scene, seen, q))
        while True:
            short = rust.take_in(
                tree,
                i,
                ground,
                scene.new,
                scene.n_centroids,
                scene.classes,
                scene.p,
                XLOGX,
            )
            if short == FITS:
                break
            tree = ncm_arrays.enlarged(tree, short, 0)
        right = int(seen.place[tree.node["left"][i] + 1])
        while rust.pass_again(tree, i, ground, seen.place, right) != FITS:
            tree = ncm_arrays.enlarged(tree, HIST, len(ground.slot))
    tree = _cut(scene, tree, int(scene.p["mu"]))
    return _igt(scene, compacted(tree, scene.slots))


def _prune(scene: Scene, tree: Tree) -> Tree:
    """Cut leaves that nothing is left in."""
    return compacted(_cut(scene, tree, 1), scene.slots)


def _cut(scene: Scene, tree: Tree, least: int) -> Tree:
    bagged = int(scene.p["bagged"])
    rows = len(scene.slots)
    while rust.cut_small(tree, scene.memory, scene.slots, scene.fill, least, bagged) != FITS:
        tree = ncm_arrays.enlarged(tree, HIST, rows)
        rows *= 2  # a leaf of many classes takes more than four entries a row
    return tree


def _refill(scene: Scene, tree: Tree) -> Tree:
    """Keep the splits, fill the leaves from a fresh bag (hi-RF's RLP)."""
    info = tree.info
    info["bag"] = info["rounds"]
    info["kept"] = min(int(info["kept"][0]) + 1, MOST_KEPT)
    bagged = int(scene.p["bagged"])
    while bagging.refill(tree, scene.memory, scene.slots, bagged) != FITS:
        tree = tree._replace(hist=np.zeros(2 * len(tree.hist), np.int32))
    return tree


def _refill_and_grow(scene: Scene, tree: Tree) -> Tree:
    return _igt(scene, _refill(scene, tree))


_ROUNDS = {
    "igt": _igt,
    "rtst": _rtst,
    "rust": _rust,
    "prune": _prune,
    "refill": _refill,
    "refill-and-grow": _refill_and_grow,
}
