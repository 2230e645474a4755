"""Structure events alone place splits, estimation events alone feed answers (Denil 2013, section 3.2)."""

from __future__ import annotations

import numpy as np
import pytest
from support.events import blobs

from streamforest import LEARN, ConsistentForestClassifier
from streamforest.kernels.candidate.consistent import ESTIMATION, STRUCTURE, stream_of

N = 8_000


def _forest(seed: int) -> ConsistentForestClassifier:
    return ConsistentForestClassifier(
        n_trees=1, tau=0.01, alpha0=3, beta_factor=10, max_fringe_bytes=10**9, seed=seed
    )


def _streams(model: ConsistentForestClassifier, n: int) -> np.ndarray:
    seed = model._trees.tree["seed"][0]
    return np.array([stream_of(seed, i, model.p_structure, model.p_ignore) for i in range(n)])


def _learn(model: ConsistentForestClassifier, X: np.ndarray, y: np.ndarray) -> None:
    model.advance(X, y, op=np.full(len(X), LEARN))


def _shuffled(y: np.ndarray, which: np.ndarray, seed: int) -> np.ndarray:
    out = y.copy()
    out[which] = np.random.default_rng(seed).permutation(out[which])
    return out


def _structure(model: ConsistentForestClassifier) -> list[tuple[object, ...]]:
    n = model._trees.tree["n_nodes"][0]
    fields = ["feature", "threshold", "left", "missing_right", "depth"]
    return [tuple(node[fields].tolist()) for node in model._trees.node[0, :n]]


def _answers(model: ConsistentForestClassifier) -> list[dict[object, int]]:
    trees = model._trees
    out = []
    for i in range(trees.tree["n_nodes"][0]):
        leaf = trees.leaf[0, i]
        at, room, k = int(leaf["hist"]), int(leaf["room"]), int(leaf["n_classes"])
        labels = [model.classes_[c] for c in trees.hist[0, at : at + k]]
        out.append(dict(zip(labels, trees.hist[0, at + room : at + room + k].tolist())))
    return out


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_estimation_labels_place_no_split(seed: int) -> None:
    X, y = blobs(N, seed=seed)
    model, other = _forest(seed), _forest(seed)
    estimation = np.flatnonzero(_streams(model, N) == ESTIMATION)
    _learn(model, X, y)
    _learn(other, X, _shuffled(y, estimation, seed))
    assert len(_structure(model)) > 100
    assert _structure(other) == _structure(model)
    assert _answers(other) != _answers(model)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_structure_labels_feed_no_answer(seed: int) -> None:
    X, y = blobs(N, seed=seed)
    half = N // 2
    model, other = _forest(seed), _forest(seed)
    for forest in (model, other):
        _learn(forest, X[:half], y[:half])
        forest._params["tau"] = np.inf  # the structure stays as it is from here on
        forest._params["beta_factor"] = np.inf
    structure = np.flatnonzero(_streams(model, N) == STRUCTURE)
    shuffled = _shuffled(y, structure[structure >= half], seed)
    assert (shuffled != y).any()
    _learn(model, X[half:], y[half:])
    _learn(other, X[half:], shuffled[half:])
    assert len(_structure(model)) > 50
    assert _structure(other) == _structure(model)
    assert _answers(other) == _answers(model)


@pytest.mark.parametrize("seed", [1, 2])
def test_structure_labels_do_place_splits(seed: int) -> None:
    """The tests above could not fail if nothing depended on labels."""
    X, y = blobs(N, seed=seed)
    model, other = _forest(seed), _forest(seed)
    structure = np.flatnonzero(_streams(model, N) == STRUCTURE)
    _learn(model, X, y)
    _learn(other, X, _shuffled(y, structure, seed))
    assert _structure(other) != _structure(model)
