"""The two-stream rule in the stream forest, with challengers off.

Structure events alone place splits; estimation events alone feed both experts of a tree. Vote weights,
the mix of the experts, swaps and the baselines are where every label counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.events import blobs

from streamforest import LEARN, StreamForestClassifier
from streamforest.forests.core.batch import Batch
from streamforest.kernels.stream.layout import is_estimation

N = 8_000


def _forest(seed: int) -> StreamForestClassifier:
    return StreamForestClassifier(n_trees=1, drift=False, seed=seed)


def _events(seed: int) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Numbers, a category and missing values."""
    X, y = blobs(N, seed=seed)
    rng = np.random.default_rng(seed)
    xs = []
    for row, label in zip(X.tolist(), y.tolist()):
        x: dict[str, Any] = {f"f{j}": v for j, v in enumerate(row) if rng.random() > 0.05}
        x["kind"] = "abcdefgh"[(label + int(rng.integers(0, 4))) % 8]
        xs.append(x)
    return xs, y


def _is_estimation(model: StreamForestClassifier) -> np.ndarray:
    seed = model._trees.voter["seed"][0]
    return np.array([is_estimation(seed, 0, i, model.p_structure) == 1 for i in range(N)])


def _learn(model: StreamForestClassifier, xs: list[Any], y: np.ndarray) -> None:
    model.advance(xs, y, op=np.full(len(xs), LEARN))


def _shuffled(y: np.ndarray, which: np.ndarray, seed: int) -> np.ndarray:
    out = y.copy()
    out[which] = np.random.default_rng(seed).permutation(out[which])
    return out


def _structure(model: StreamForestClassifier) -> list[tuple[object, ...]]:
    n = model._trees.tree_slot["n_nodes"][0]
    fields = ["feature", "threshold", "mask", "left", "missing_right"]
    return [tuple(node[fields].tolist()) for node in model._trees.node[0, :n]]


def _votes_of_experts(
    model: StreamForestClassifier, xs: list[Any]
) -> list[dict[object, list[int]]]:
    """The votes of both experts of the tree on each event, by label."""
    model._vote_power = 0.0  # the weight of its vote is no part of its experts
    rows, known = model._encode(xs, np.zeros(len(xs), np.bool_))
    votes = model._new_votes(len(xs))
    op = np.ones(len(xs), np.uint8)
    y = np.full(len(xs), -1)
    model._call(0, 1, model._want, Batch(rows, y, op, known), votes)
    return [dict(zip(model.classes_, row.T.tolist())) for row in votes]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_estimation_labels_place_no_split(seed: int) -> None:
    xs, y = _events(seed)
    model, other = _forest(seed), _forest(seed)
    _learn(model, xs, y)
    _learn(other, xs, _shuffled(y, np.flatnonzero(_is_estimation(model)), seed))
    assert len(_structure(model)) > 100
    assert any(mask for _, _, mask, _, _ in _structure(model))  # categories among them
    assert _structure(other) == _structure(model)
    assert _votes_of_experts(other, xs[:100]) != _votes_of_experts(model, xs[:100])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_structure_labels_feed_no_expert(seed: int) -> None:
    xs, y = _events(seed)
    half = N // 2
    model, other = _forest(seed), _forest(seed)
    for forest in (model, other):
        _learn(forest, xs[:half], y[:half])
        forest._params["max_nodes"] = 0  # the structure stays as it is from here on
    structure = np.flatnonzero(~_is_estimation(model))
    shuffled = _shuffled(y, structure[structure >= half], seed)
    assert (shuffled != y).any()
    _learn(model, xs[half:], y[half:])
    _learn(other, xs[half:], shuffled[half:])
    assert len(_structure(model)) > 50
    assert _structure(other) == _structure(model)
    assert _votes_of_experts(other, xs[-500:]) == _votes_of_experts(model, xs[-500:])
    for where in (
        "baselines.plane",
        "baselines.count",
        "shared.mixture_loss",
    ):  # every label counts here
        assert (model._dump()[where] != other._dump()[where]).any()


def test_structure_labels_do_place_splits() -> None:
    """The tests above could not fail if nothing depended on labels."""
    xs, y = _events(1)
    model, other = _forest(1), _forest(1)
    _learn(model, xs, y)
    _learn(other, xs, _shuffled(y, np.flatnonzero(~_is_estimation(model)), 1))
    assert _structure(other) != _structure(model)
