"""A forest's state as plain data: what a snapshot holds, and the checks before it is believed.

`dump` gives JSON-able metadata and arrays; `restore` takes them back and refuses anything that could
not have come from a forest. What the arrays mean is the forest's own affair (`_dump`, `_restore`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import SnapshotError
from streamforest.forests.coarse.taxonomy import plain_pairs
from streamforest.forests.core.parameters import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from streamforest.forests.core.base import Forest

Arrays = dict[str, NDArray[Any]]
LEVELS = "levels."  # arrays of categories, see `forests/coarse`
RUNTIME_SETTINGS = ("n_jobs", "background", "executor", "n_actors")  # not part of the model
LARGEST = 1 << 53  # counts beyond this do not come from a stream
_ADDED = {
    "max_text_bytes": MAX_TEXT_BYTES,
    "on_capacity": "degrade",
    "absent": "missing",
    "balanced": False,
    "oob_weighting": False,
    "svm_passes": 6.0,
    "svm_penalty": 0.003,
    "taxonomy": None,
    "refine": "own",
    "n_sets": 0,
    "lambda_reg": 0.0,
    "c": 1.0,
    "coarse_method": None,
    "lambda_coarse": None,
}
"""Parameters that older files lack. As they were meant then they are not written, so that a model of
before has the bytes of before."""


def demand(condition: Any, what: str) -> None:
    """Refuse a snapshot unless `condition` holds everywhere."""
    if not np.all(condition):
        raise SnapshotError(f"the snapshot is damaged: {what}")


def demand_trees(n_nodes: NDArray[Any], feature: NDArray[Any], left: NDArray[Any]) -> None:
    """Each tree is one: every node but the root is the child of exactly one node before it.

    Trees stand one after the other, each with its nodes in order; a leaf has the feature -1, and the
    right child follows the left one.
    """
    size = len(feature)
    demand((n_nodes >= 0) & (n_nodes <= size), "n_nodes")
    demand((n_nodes % 2 == 1) | (n_nodes == 0), "n_nodes")
    demand(sum(n_nodes.tolist()) == size and len(left) == size, "n_nodes")
    inner = feature >= 0
    demand(feature >= -1, "feature")
    demand(left[~inner] == -1, "left")
    start = np.repeat(np.cumsum(n_nodes) - n_nodes, n_nodes)
    own = np.arange(size) - start  # index within the tree
    demand(left[inner] > own[inner], "left")
    demand(left[inner] + 1 < np.repeat(n_nodes, n_nodes)[inner], "left")
    # lefts of all trees, as global indices, must be exactly the odd positions of each tree
    lefts = np.sort(left[inner].astype(np.int64) + start[inner])
    expected = np.flatnonzero(own % 2 == 1)
    demand(len(lefts) == len(expected), "left")
    demand(lefts == expected, "left")


def dump(forest: Forest) -> tuple[dict[str, Any], Arrays]:
    """Metadata and arrays of a forest."""
    with forest._lock:
        forest._refuse_if_broken()
        return _dump(forest)


def _dump(forest: Forest) -> tuple[dict[str, Any], Arrays]:
    params = forest._parameters
    meta = {
        "class": type(forest).__name__,
        "params": {k: v for k, v in params.items() if not _as_before(type(forest), k, v)},
        "learned": forest._n_learned,
        "labels": forest._labels.labels,
        "features": forest._features.state(),
    }
    if forest._revision > 1:
        meta["revision"] = forest._revision
    if forest.learning_revision > 1:
        meta["learning_revision"] = forest.learning_revision
    levels, arrays = forest._levels.dump(forest)
    if levels is not None:
        meta["levels"] = levels
    return meta, forest._dump_whole() | arrays


def _as_before(kind: type[Forest], name: str, value: Any) -> bool:
    """Whether a parameter that older files lack is what a forest without it is made with."""
    if name not in _ADDED or value != _ADDED[name]:
        return False
    return bool(inspect.signature(kind).parameters[name].default == value)


def plain_parameters(forest: Forest) -> dict[str, Any]:
    """The parameters a forest was made with, as plain values of the types of their defaults."""
    plain = {}
    for name, parameter in inspect.signature(type(forest)).parameters.items():
        value = getattr(forest, name)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(parameter.default, float) and isinstance(value, int):
            value = float(value)
        if name == "taxonomy":
            value = plain_pairs(value)
        if name not in RUNTIME_SETTINGS:
            plain[name] = value
    return plain


def restore(kind: type[Forest], meta: Any, arrays: Arrays) -> Forest:
    """The forest that `dump` described."""
    try:
        return _restore(kind, meta, dict(arrays))
    except SnapshotError:
        raise
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise SnapshotError(f"the snapshot is damaged: {type(error).__name__}: {error}") from error


def _restore(kind: type[Forest], meta: Any, arrays: Arrays) -> Forest:
    revision = meta.get("revision", 1)
    if type(revision) is not int or not 1 <= revision <= kind._revision:
        raise SnapshotError(
            f"{kind.__name__} of revision {revision!r}: this version of streamforest reads up to "
            f"{kind._revision}; use the one that wrote it"
        )
    saved_by = meta.get("learning_revision", 1)  # any will do: what was learned is what it is
    demand(type(saved_by) is int and 1 <= saved_by < LARGEST, "learning_revision")
    params = meta["params"]
    demand(isinstance(params, dict) and not set(params) & set(RUNTIME_SETTINGS), "params")
    # before anything is made of it: a forest of as many trees as the file has seeds
    demand("tree.seed" in arrays and len(arrays["tree.seed"]) == params["n_trees"], "n_trees")
    forest = kind(**params)
    learned = meta["learned"]
    demand(type(learned) is int and 0 <= learned < LARGEST, "learned")
    forest._n_learned = learned
    forest._saved_by = saved_by
    forest._labels.restore(meta["labels"])
    forest._features.restore(meta["features"])
    of_levels = {name: arrays.pop(name) for name in list(arrays) if name.startswith(LEVELS)}

    take = taking(arrays)
    forest._restore_revision(take, revision)
    demand(not arrays, f"unknown arrays {sorted(arrays)}")
    forest._scratch()
    if "levels" in meta or of_levels:
        forest._levels.restore(forest, meta["levels"], of_levels)
    return forest


def taking(arrays: Arrays) -> Callable[..., NDArray[Any]]:
    """A function that takes arrays out by name, type and size, or refuses them."""

    def take(name: str, dtype: Any, size: int | None = None) -> NDArray[Any]:
        array = arrays.pop(name, None)
        demand(array is not None, f"{name} is missing")
        assert array is not None
        fits = array.dtype == np.dtype(dtype) and array.ndim == 1 and size in (None, len(array))
        demand(fits, f"{name} is {array.dtype}{list(array.shape)}, not {np.dtype(dtype)}[{size}]")
        return array

    return take
