"""An NCM forest as the arrays of a snapshot, and the checks before they are believed.

What follows from the rest is left out: histograms and chains from the leaf each row lies in, the places
of centroids from the order of the nodes. Trees that are under way are stored finished, after those that
stand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import LARGEST, demand
from streamforest.forests.ncm.jobs import Job, Scene
from streamforest.forests.ncm.retraining import Rounds
from streamforest.forests.ncm.trees import Take, dump_trees, side_of, take_trees, wide
from streamforest.kernels.core.simd_distance import CAP, GAP, SCALE
from streamforest.kernels.ncm.blending import BLENDS
from streamforest.kernels.ncm.class_means import FULL_WIDTH, LENSES, Means, look_again
from streamforest.kernels.ncm.layout import METRICS, Memory
from streamforest.kernels.ncm.row_memory import CATEGORY_COLUMNS, SEEN, VARIANCE, padded

if TYPE_CHECKING:
    from streamforest.forests.ncm.forest import NCMForestClassifier


def dump(forest: NCMForestClassifier) -> dict[str, NDArray[Any]]:
    """The arrays of a snapshot: memory by row number, trees, trees under way, what they share."""
    n, width = forest._n_rows, forest._n_columns
    order = forest._order[:n]
    rounds, means = forest._rounds, forest._means
    classes = len(forest._labels)
    jobs = rounds.jobs
    pending = [job.tree() for job in jobs]
    arrays: dict[str, NDArray[Any]] = {
        "memory.rows": _columns(forest._memory.rows[order], width),
        "memory.label": forest._memory.label[order],
        "memory.number": forest._memory.number[order],
        "columns.of_features": forest._column.copy(),
        "columns.counting": np.array([forest._old_columns]),
        "columns.statistics": _columns(forest._stats, width),
        "columns.fill": _columns(forest._fill, width),
        "columns.scale": _columns(forest._near[:, SCALE], width),
        "columns.gap": _columns(forest._near[:, GAP], width),
        "means.mean": _columns(means.mean[:classes], width),
        "means.count": means.n[:classes].copy(),
        "means.spread": means.spread[:classes].copy(),
        "means.weight": means.weight.copy(),
        "means.gap": means.gap.copy(),
        "shared.scalars": np.array(
            [forest._ground_at, rounds.credit, *forest._usual, *forest._lens_right]
        ),
        "shared.blend_correct": forest._blend_right.copy(),
        "shared.active_metric": np.array([forest._speaker, forest._blend_step, *forest._tally]),
        "retraining.metric_error": rounds.metric_error.copy(),
        "retraining.counters": np.array(
            [rounds.stands, rounds.in_round, rounds.known, rounds.grown], np.int64
        ),
        "retraining.started": rounds.begun.copy(),
        "retraining.scale": np.zeros(0, np.float32)
        if rounds.scale is None
        else rounds.scale.ravel(),
        "retraining_jobs.tree": np.array([job.t for job in jobs], np.int64),
        "retraining_jobs.swap_at": np.array([job.swap_at for job in jobs], np.int64),
        "retraining_jobs.fresh": np.array([job.kind == "fresh" for job in jobs], np.uint8),
        "retraining_jobs.started": np.array([job.scene.born for job in jobs], np.int64),
        "retraining_jobs.columns": np.array([job.scene.columns for job in jobs], np.int64),
    }
    arrays["means.scatter"] = _matrix(means.scatter[None], width)
    arrays["means.shrunk_covariance"] = _matrix(
        means.lens, width if means.lens.shape[1] == 1 else side_of(forest)
    )
    arrays |= dump_trees(forest, [*forest._trees, *pending], order)
    return {name: np.ascontiguousarray(array).ravel() for name, array in arrays.items()}


def _columns(array: NDArray[Any], width: int) -> NDArray[Any]:
    return array[..., :width]


def _matrix(array: NDArray[Any], width: int) -> NDArray[Any]:
    return array[:, : min(array.shape[1], width), :width]


# ---- back


def restore(forest: NCMForestClassifier, take: Take) -> None:
    """The state that `dump` described; `take(name, dtype, size)` gives an array or refuses it."""
    learned, classes = forest._n_learned, len(forest._labels)
    label = take("memory.label", np.int32)
    n = len(label)
    most = int(forest._parameters["memory"]) + EPOCH
    demand(n <= most and n <= learned, "memory.label")
    demand((label >= 0) & (label < classes), "memory.label")
    number = take("memory.number", np.int64, n)
    demand((number >= 0) & (number < learned), "memory.number")
    demand(np.diff(number) > 0, "memory.number")
    columns = _take_columns(forest, take)
    rows = take("memory.rows", np.float32, n * columns).reshape(n, columns)
    demand(~np.isinf(rows), "memory.rows")
    slots, width = max(EPOCH, n), padded(columns)
    forest._memory = Memory(
        wide(rows, slots, width), _long(label, slots, 0), _long(number, slots, -1)
    )
    forest._order = _long(np.arange(n, dtype=np.int32), max(EPOCH, n), 0)
    forest._n_rows = n
    forest._free = list(range(n, slots))
    forest._of_class = np.bincount(label, minlength=max(8, classes)).astype(np.int64)
    forest._n_seen = classes
    forest._params["max_rows"] = forest._most_centroids(forest._old_columns)
    _take_means(forest, take, columns, width, classes)
    credit = _take_shared(forest, take)
    rounds = _take_rounds(forest, take, columns, credit)
    jobs = _take_jobs(forest, take)
    trees = take_trees(forest, take, jobs, columns, slots)
    forest._trees = trees[: forest.n_trees]
    for job, tree in zip(jobs, trees[forest.n_trees :]):
        job.result = tree
    rounds.jobs = jobs
    forest._rounds = rounds


def _long(array: NDArray[Any], size: int, fill: int) -> NDArray[Any]:
    out = np.full(size, fill, array.dtype)
    out[: len(array)] = array
    return out


def _take_columns(forest: NCMForestClassifier, take: Take) -> int:
    """Which columns a feature has, and what is known of each column."""
    of = take("columns.of_features", np.int32)
    demand(len(of) <= len(forest._features), "columns.of_features")
    expected = 0
    for j in np.argsort(of, kind="stable").tolist():
        if of[j] >= 0:
            demand(of[j] == expected, "columns.of_features")
            demand(forest._features.kinds[j] > 0, "columns.of_features")
            expected += CATEGORY_COLUMNS if forest._features.categorical[j] else 1
        else:
            demand(of[j] == -1, "columns.of_features")
    width = padded(expected)
    forest._column = of
    known = [forest._features.n_codes(j) for j in range(len(of))]
    forest._codes = np.where(of >= 0, known, 0).astype(np.int32)
    forest._n_columns = expected
    counting = take("columns.counting", np.int64, 1)
    demand((counting >= 0) & (counting <= expected), "columns.counting")
    forest._old_columns = int(counting[0])
    stats = take("columns.statistics", np.float64, 4 * expected).reshape(4, expected)
    demand(np.isfinite(stats) & (np.abs(stats) < 1e100), "columns.statistics")
    demand(stats[[SEEN, VARIANCE]] >= 0, "columns.statistics")
    forest._stats = wide(stats, 4, width)
    fill = take("columns.fill", np.float32, expected)
    demand(np.isfinite(fill), "columns.fill")
    forest._fill = _long(fill, width, 0)
    forest._near = np.zeros((2, 3, width), np.float32)
    for row, name in ((SCALE, "columns.scale"), (GAP, "columns.gap")):
        values = take(name, np.float32, 2 * expected).reshape(2, expected)
        demand(np.isfinite(values) & (values >= 0), name)
        forest._near[:, row, :expected] = values
    if forest._n_learned > 0:
        forest._near[:, CAP] = np.inf
    return expected


def _take_means(
    forest: NCMForestClassifier, take: Take, columns: int, width: int, classes: int
) -> None:
    room = max(8, classes)
    n = take("means.count", np.int64, classes)
    demand((n >= 1) & (n <= forest._n_learned), "means.count")
    demand(sum(n.tolist()) == forest._n_learned, "means.count")
    mean = take("means.mean", np.float32, classes * columns).reshape(classes, columns)
    demand(np.isfinite(mean), "means.mean")
    spread = take("means.spread", np.float64, classes)
    demand(np.isfinite(spread) & (spread >= 0), "means.spread")
    scatter, lens = take("means.scatter", np.float64), take("means.shrunk_covariance", np.float32)
    side = side_of(forest)
    if columns > FULL_WIDTH >= side and len(scatter) == columns * columns:
        # written when whole matrices were still widened with the column after FULL_WIDTH
        scatter = scatter.reshape(columns, columns).diagonal()
        lens = lens.reshape(LENSES, columns, columns)[:, :side, :side].ravel()
    rows = columns if columns <= FULL_WIDTH else 1
    demand(len(scatter) == rows * columns, "means.scatter")
    demand(np.isfinite(scatter), "means.scatter")
    shape = (side, side) if side <= FULL_WIDTH else (1, columns)
    demand(len(lens) == LENSES * shape[0] * shape[1], "means.shrunk_covariance")
    demand(np.isfinite(lens), "means.shrunk_covariance")
    weight = take("means.weight", np.float64, 1)
    demand((weight >= 0) & (weight <= forest._n_learned), "means.weight")
    gap = take("means.gap", np.float64, LENSES)
    demand(np.isfinite(gap) & (gap >= 0), "means.gap")
    wide_lens = np.zeros(
        (LENSES, *((padded(side),) * 2 if side <= FULL_WIDTH else (1, width))), np.float32
    )
    wide_lens[:, : shape[0], : shape[1]] = lens.reshape(LENSES, *shape)
    scatter = scatter.reshape(rows, columns)
    forest._means = Means(
        mean=wide(mean, room, width),
        n=_long(n, room, 0),
        spread=_long(spread, room, 0),
        scatter=wide(scatter, width if columns <= FULL_WIDTH else 1, width),
        weight=weight,
        lens=wide_lens,
        seen=np.zeros((LENSES * room, width), np.float32),
        half=np.zeros(LENSES * room, np.float32),
        gap=gap,
    )
    demand((np.diag(scatter) if columns <= FULL_WIDTH else scatter) >= 0, "means.scatter")
    look_again(forest._means)


def _take_shared(forest: NCMForestClassifier, take: Take) -> float:
    """What all trees share; returns the credit, which belongs to the rounds."""
    numbers = take("shared.scalars", np.float64, 4 + LENSES)
    demand(np.isfinite(numbers) & (numbers >= 0), "shared.scalars")
    demand(numbers[4:] <= 1, "shared.scalars")
    demand(numbers[1] <= forest.n_trees, "shared.scalars")
    forest._ground_at = float(numbers[0])
    forest._usual = numbers[2:4].copy()
    forest._lens_right = numbers[4:].copy()
    right = take("shared.blend_correct", np.float64, len(BLENDS))
    demand((right >= 0) & (right <= 1), "shared.blend_correct")
    forest._blend_right = right
    chosen = take("shared.active_metric", np.int64, 4)
    demand(chosen >= 0, "shared.active_metric")
    demand(chosen[0] < LENSES and chosen[1] < len(BLENDS), "shared.active_metric")
    demand(chosen[3] <= chosen[2] <= EPOCH, "shared.active_metric")
    forest._speaker, forest._blend_step = int(chosen[0]), int(chosen[1])
    forest._tally = chosen[2:].copy()
    return float(numbers[1])


def _take_rounds(forest: NCMForestClassifier, take: Take, columns: int, credit: float) -> Rounds:
    rounds = Rounds(forest.n_trees)
    rounds.credit = credit
    rounds.metric_error = take("retraining.metric_error", np.float64, METRICS)
    error = rounds.metric_error
    demand(np.isfinite(error) & (error >= 0), "retraining.metric_error")
    # rows taken in by `extend_many` once left counts behind, and shares of over one
    rounds.metric_error = np.minimum(error, 1.0)
    clock = take("retraining.counters", np.int64, 4)
    classes = len(forest._labels)
    demand((clock >= 0) & (clock <= [1, classes, classes, LARGEST]), "retraining.counters")
    rounds.stands = bool(clock[0])
    rounds.in_round, rounds.known, rounds.grown = (int(v) for v in clock[1:])
    demand(not rounds.stands or classes >= 1, "retraining.counters")
    rounds.begun = take("retraining.started", np.int64, forest.n_trees)
    demand((rounds.begun >= 0) & (rounds.begun <= forest._n_learned), "retraining.started")
    scale = take("retraining.scale", np.float32)
    demand(np.isfinite(scale) & (scale >= 0), "retraining.scale")
    demand(len(scale) <= columns, "retraining.scale")
    # it may have been fixed before there was any column
    if len(scale) or (rounds.stands and forest._parameters["metric"] == "whitened"):
        rounds.scale = scale[None, :].copy()
    grows = rounds.stands and forest._parameters["strategy"] != "uls"
    forest._params["grows"] = grows
    return rounds


def _take_jobs(forest: NCMForestClassifier, take: Take) -> list[Job]:
    """Trees under way; what is left of their scene is when it was."""
    t = take("retraining_jobs.tree", np.int64)
    n = len(t)
    demand(len(np.unique(t)) == n and n <= forest.n_trees, "retraining_jobs.tree")
    demand((t >= 0) & (t < forest.n_trees), "retraining_jobs.tree")
    at = take("retraining_jobs.swap_at", np.int64, n)
    fresh = take("retraining_jobs.fresh", np.uint8, n)
    begun = take("retraining_jobs.started", np.int64, n)
    counting = take("retraining_jobs.columns", np.int64, n)
    learned = forest._n_learned
    demand(fresh <= 1, "retraining_jobs.fresh")
    demand((begun >= 1) & (begun <= learned), "retraining_jobs.started")
    demand(
        (at > learned) & (at <= begun + int(forest._parameters["swap_after"])),
        "retraining_jobs.swap_at",
    )
    demand((begun % EPOCH == 0) & (at % EPOCH == 0), "retraining_jobs.swap_at")
    demand((counting >= 0) & (counting <= forest._old_columns), "retraining_jobs.columns")
    jobs = []
    for k in range(n):
        scene = Scene.past(int(begun[k]), int(counting[k]), forest._params)
        kind = "fresh" if fresh[k] else "refill"
        job = Job(int(t[k]), kind, scene, int(at[k]), None, 0)
        jobs.append(job)
    return jobs
