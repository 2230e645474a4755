"""A stream forest as the arrays of a snapshot, and the checks before they are believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.capacity import CATEGORY
from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import LARGEST, demand, demand_trees
from streamforest.forests.stream import arrays as stream_arrays
from streamforest.kernels.core.array_table import widened
from streamforest.kernels.core.simd_distance import CAP, GAP, SCALE
from streamforest.kernels.stream import export
from streamforest.kernels.stream.export import Flat
from streamforest.kernels.stream.layout import FULL, HISTORY, VOTER
from streamforest.kernels.stream.mixing import MIXTURES
from streamforest.kernels.stream.shared import HIGH, LOW, SEEN, VARIANCE

if TYPE_CHECKING:
    from streamforest.forests.stream.forest import StreamForestClassifier

Take = Callable[..., NDArray[Any]]
_CLOCKS = (
    "launches",
    "swaps",
    "swapped",
    "raced",
    "only_tree_wrong",
    "only_challenger_wrong",
    "challenger_errors",
    "judged",
)
_NEVER_RIGHT = 500.0  # errors that fading sums come to when every answer is wrong
_LEAST_REACH = 1e-44  # values below are zeros as float32, which statistics are made of
_LARGEST_SQUARE = 1e100  # values are float32
_SWITCHES = ("active", "racing")
_SHARES = ("loss_counts", "loss_neighbours", "accuracy")


def dump(forest: StreamForestClassifier) -> dict[str, NDArray[Any]]:
    """The arrays of a snapshot: the ring oldest row first, the trees, what they share."""
    trees, learned = forest._trees, forest._n_learned
    readable, slots = int(forest._params["ring_rows"][0]), int(forest._params["slots"][0])
    kept = min(learned, readable)
    at = np.arange(learned - kept, learned) % slots
    width = len(forest._features)
    arrays = {
        f"tree.{name}": trees.voter[name].copy()
        for name in ("seed", *_CLOCKS, *_SWITCHES, *_SHARES)
    }
    flat = stream_arrays.flatten(trees, learned, kept, slots)
    arrays |= {f"nodes.{name}": array for name, array in flat._asdict().items()}
    remembered = min(learned, HISTORY - 1)
    times = np.arange(learned - remembered - 1, learned) % HISTORY
    arrays["tree.recent_errors"] = np.diff(trees.errors[:, times], axis=1).astype(np.uint8).ravel()
    columns = np.tile(forest._features.absent_values(0, width).astype(np.float32), (kept, 1))
    have = min(width, forest._columns)
    columns[:, :have] = trees.rows[at, :have]
    arrays["ring.rows"] = columns.ravel()
    arrays["ring.labels"] = trees.labels[at]
    arrays["ring.readable"] = np.array([readable])
    arrays["shared.feature_statistics"] = _columns(forest._stats, width).ravel()
    arrays["shared.scale"] = _columns(forest._metric[:, SCALE], width).ravel()
    arrays["shared.gap"] = _columns(forest._metric[:, GAP], width).ravel()
    arrays["shared.feature_spread"] = _columns(forest._spread, width).ravel()
    arrays["shared.feature_gain"] = _columns(forest._gain[None], width)[0]
    arrays["shared.mixture_loss"] = forest._loss.copy()
    arrays["shared.vote_power"] = np.array([forest._vote_power])
    if forest.balanced:
        arrays |= forest._balance.dump(len(forest._labels))
    return arrays | forest._baselines.dump()


def _columns(array: NDArray[Any], width: int) -> NDArray[Any]:
    """The first `width` columns, zeros where the array has fewer."""
    out = np.zeros((len(array), width), array.dtype)
    have = min(width, array.shape[1])
    out[:, :have] = array[:, :have]
    return out


def restore(forest: StreamForestClassifier, take: Take, revision: int) -> None:
    """The state that `dump` described; `take(name, dtype, size)` gives an array or refuses it.

    What revision 1 did not know starts empty: the baselines learn from here on and are believed
    when they have shown what they can do.
    """
    learned, n_trees = forest._n_learned, forest.n_trees
    features, classes = len(forest._features), len(forest._labels)
    voter = _take_voters(take, n_trees, learned, classes)
    readable = int(take("ring.readable", np.int64, 1)[0])
    demand(readable <= forest._parameters["ring_rows"], "ring.readable")
    demand(readable >= forest._readable_rows(features), "ring.readable")
    kept = min(learned, readable)
    labels = take("ring.labels", np.int32, kept)
    demand((labels >= 0) & (labels < classes), "ring.labels")
    rows = take("ring.rows", np.float32, kept * features).reshape(kept, features)
    _check_rows(forest, rows)
    like = export.empty(0, 0, 0, 0)._asdict()
    flat = Flat(**{name: take(f"nodes.{name}", array.dtype) for name, array in like.items()})
    hist = _check_flat(forest, flat, voter, kept, classes)
    remembered = min(learned, HISTORY - 1)
    errors = take("tree.recent_errors", np.uint8, n_trees * remembered).reshape(n_trees, remembered)
    demand(errors <= 1, "tree.recent_errors")
    _take_shared(forest, take, features, revision)

    slots = readable + EPOCH
    trees = stream_arrays.allocate(
        n_trees,
        nodes=max(8, int(flat.n_nodes.max())),
        hist=max(64, hist),
        slots=max(EPOCH, min(slots, learned)),
        width=stream_arrays.padded(forest._ring_features(features)),
    )._replace(voter=voter)
    at = np.arange(learned - kept, learned) % slots
    trees.rows[:, :features] = np.nan
    trees.rows[at, :features] = rows
    trees.labels[at] = labels
    times = np.arange(learned - remembered, learned) % HISTORY
    trees.errors[:, times] = np.cumsum(errors, axis=1, dtype=np.int32)
    categorical = forest._features.categorical
    export.restore(
        trees, learned, kept, slots, forest._parameters["p_structure"], categorical, flat
    )
    if forest.balanced:
        forest._balance.restore(take, classes, learned)
    forest._trees = trees
    forest._columns = features
    forest._params["ring_rows"] = readable
    forest._params["slots"] = slots


def _take_voters(take: Take, n_trees: int, learned: int, classes: int) -> NDArray[np.void]:
    """What each tree knows of itself."""
    voter = np.zeros(n_trees, VOTER)
    voter["seed"] = take("tree.seed", np.uint64, n_trees)
    for name in (*_CLOCKS, *_SWITCHES):
        voter[name] = take(f"tree.{name}", np.int64, n_trees)
        most = 1 if name in _SWITCHES else LARGEST if name in ("launches", "judged") else learned
        demand((voter[name] >= 0) & (voter[name] <= most), f"tree.{name}")
    for name in _SHARES:
        voter[name] = take(f"tree.{name}", np.float64, n_trees)
        demand((voter[name] >= 0) & (voter[name] <= 1000), f"tree.{name}")
    demand(voter["accuracy"] <= 1, "tree.accuracy")
    demand(
        voter["only_tree_wrong"] + voter["only_challenger_wrong"] <= voter["raced"], "tree.raced"
    )
    demand(voter["challenger_errors"] <= voter["raced"], "tree.challenger_errors")
    demand((voter["racing"] == 1) | (voter["raced"] == 0), "tree.raced")
    voter["n_seen"] = learned
    voter["n_classes"] = classes
    return voter


def _check_rows(forest: StreamForestClassifier, rows: NDArray[np.float32]) -> None:
    """Values are numbers or missing; categories are codes that exist."""
    demand(~np.isinf(rows), "ring.rows")
    for j, kind in enumerate(forest._features.kinds):
        if kind == CATEGORY:
            codes = rows[:, j][~np.isnan(rows[:, j])]
            demand((codes >= 0) & (codes < forest._features.n_codes(j)), "ring.rows")
            demand(codes == np.floor(codes), "ring.rows")


def _check_flat(
    forest: StreamForestClassifier,
    flat: Flat,
    voter: NDArray[np.void],
    kept: int,
    classes: int,
) -> int:
    """Trees are trees, and what hangs on them fits. Returns the largest arena of histograms."""
    tree_slots, size = 2 * len(voter), len(flat.feature)
    for name in ("generation", "n_nodes", "cursor", "building"):
        demand(len(getattr(flat, name)) == tree_slots, name)
    demand(flat.n_nodes <= forest._parameters["max_nodes"], "n_nodes")
    demand_trees(flat.n_nodes, flat.feature, flat.left)
    for name in ("mask", "threshold", "missing_right", "n_structure", "tested", "gain"):
        demand(len(getattr(flat, name)) == size, name)
    votes = np.arange(tree_slots) % 2 == np.repeat(voter["active"], 2)
    stands = votes | (np.repeat(voter["racing"], 2) == 1)
    demand((flat.n_nodes > 0) == stands, "n_nodes")
    demand(flat.generation >= 0, "generation")
    demand(flat.generation <= np.repeat(voter["launches"], 2), "generation")
    building = flat.building == 1
    demand(building | (flat.building == 0), "building")
    demand(~building | (stands & ~votes), "building")
    demand((flat.cursor >= 0) & (flat.cursor <= flat.n_nodes), "cursor")
    demand(building | (flat.cursor == flat.n_nodes), "cursor")

    inner = flat.feature >= 0
    kinds = np.append(np.array(forest._features.kinds, np.int64), 0)
    demand(flat.feature < len(kinds) - 1, "feature")
    demand(kinds[flat.feature[inner]] > 0, "a split on a feature without values")
    category = inner & (kinds[flat.feature] == CATEGORY)
    number = inner & ~category
    demand(np.isfinite(flat.threshold) & (number | (flat.threshold == 0)), "threshold")
    demand(category | (flat.mask == 0), "mask")
    demand((flat.missing_right <= 1) & (inner | (flat.missing_right == 0)), "missing_right")
    demand((flat.tested >= 0) & (flat.tested <= flat.n_structure), "tested")
    demand(flat.n_structure <= FULL, "n_structure")
    demand(np.isfinite(flat.gain) & (flat.gain >= 0) & (inner | (flat.gain == 0)), "gain")

    demand(len(flat.n_classes) == size, "n_classes")
    demand((flat.n_classes >= 0) & (flat.n_classes <= classes), "n_classes")
    total = int(flat.n_classes.sum(dtype=np.int64))
    demand(len(flat.node_class) == total and len(flat.node_count) == total, "node_class")
    owner = np.repeat(np.arange(size), flat.n_classes)
    demand((flat.node_class >= 0) & (flat.node_class < classes), "node_class")
    rises = (np.diff(flat.node_class) > 0) | (np.diff(owner) > 0)
    demand(rises, "node_class")
    demand(flat.node_count >= 1, "node_count")
    sums = np.bincount(owner, weights=flat.node_count.astype(np.float64), minlength=size)
    demand(sums <= FULL, "node_count")

    demand(len(flat.leaf) == tree_slots * kept, "leaf")
    start = np.cumsum(flat.n_nodes) - flat.n_nodes
    leaf = flat.leaf.reshape(tree_slots, kept)
    held = leaf >= 0
    demand((leaf >= -1) & (leaf < flat.n_nodes[:, None]), "leaf")
    demand(flat.feature[(leaf + start[:, None])[held]] == -1, "leaf")
    slot_of_node = np.repeat(np.arange(tree_slots), flat.n_nodes)
    per_slot = np.bincount(
        slot_of_node, weights=flat.n_classes.astype(np.float64), minlength=tree_slots
    )
    return 2 * int(per_slot.max())


def _take_shared(forest: StreamForestClassifier, take: Take, features: int, revision: int) -> None:
    """Scales and weights, as of the last epoch, the statistics the next are made of, and the mix."""
    width = stream_arrays.padded(forest._ring_features(features))
    stats = take("shared.feature_statistics", np.float64, 5 * features).reshape(5, features)
    demand(np.abs(stats) <= _LARGEST_SQUARE, "shared.feature_statistics")
    demand(stats[[SEEN, VARIANCE]] >= 0, "shared.feature_statistics")
    demand(stats[LOW] <= stats[HIGH], "shared.feature_statistics")
    forest._stats = widened(stats, (5, width))
    forest._metric = stream_arrays.new_metric(width)
    for row, name in ((SCALE, "shared.scale"), (GAP, "shared.gap")):
        values = take(name, np.float32, 2 * features).reshape(2, features)
        demand(values >= 0, name)
        # it was once stretched to infinity where `relevance` was large: files hold such
        forest._metric[:, row, :features] = np.minimum(values, np.finfo(np.float32).max)
    settled = forest._metric[:, SCALE, :features] > 0
    category = forest._features.categorical[None, :] == 1
    forest._metric[:, CAP, :features][settled & category] = 0.5
    power = float(take("shared.vote_power", np.float64, 1)[0])
    demand(0 <= power <= 2, "shared.vote_power")
    forest._vote_power = power
    forest._spread = np.zeros((3, width))
    forest._gain = np.zeros(width)
    if revision == 1:
        take("shared.mix", np.float64, 2)
        loss = np.append(take("shared.mixture_loss", np.float64, 2), [_NEVER_RIGHT, _NEVER_RIGHT])
        forest._loss = MIXTURES @ loss
    else:
        spread = take("shared.feature_spread", np.float64, 3 * features).reshape(3, features)
        demand(np.abs(spread) <= _LARGEST_SQUARE, "shared.feature_spread")
        demand(spread[1:] >= 0, "shared.feature_spread")
        forest._spread = widened(spread, (3, width))
        gain = take("shared.feature_gain", np.float64, features)
        demand(np.isfinite(gain) & (gain >= 0), "shared.feature_gain")
        forest._gain = widened(gain, (width,))
        forest._loss = take("shared.mixture_loss", np.float64, len(MIXTURES))
        reach = np.abs(stats[[LOW, HIGH]]).max(axis=0) + _LEAST_REACH
        kinds, classes = forest._features.kinds, len(forest._labels)
        forest._baselines.restore(take, kinds, classes, forest._spread, reach)
    demand((forest._loss >= 0) & (forest._loss <= 10_000), "shared.mixture_loss")
