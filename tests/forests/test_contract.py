"""The contract of every forest: any cut into batches, any number of threads, the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import checks
from support import contract, roundtrip
from support.events import blobs, growing_stream

from streamforest import (
    BOTH,
    LEARN,
    PREDICT,
    AutoForestClassifier,
    ConsistentForestClassifier,
    FewShotForestClassifier,
    NCMForestClassifier,
    OnlineForestClassifier,
    StreamForestClassifier,
)
from streamforest.forests.core import registry
from streamforest.forests.persistence.snapshot import encode
from streamforest.kernels.candidate import consistent as kernels

KINDS = [forest.load() for forest in registry.entries()]
FORESTS = [
    pytest.param(ConsistentForestClassifier, {"max_fringe_bytes": 80_000}, id="consistent"),
    pytest.param(
        ConsistentForestClassifier, {"voting": "hard", "p_ignore": 0.1}, id="consistent-hard"
    ),
    pytest.param(OnlineForestClassifier, {"min_samples": 20, "gamma": 0.002}, id="online"),
    pytest.param(
        ConsistentForestClassifier, {"balanced": True, "tau": 0.01}, id="consistent-balanced"
    ),
    pytest.param(
        OnlineForestClassifier,
        {"balanced": True, "min_samples": 20, "gamma": 0.002, "voting": "hard"},
        id="online-balanced",
    ),
    pytest.param(
        StreamForestClassifier,
        {"ring_rows": 2_000, "max_ring_bytes": 200_000, "challenge_rate": 0.01, "max_nodes": 501},
        id="stream",
    ),
    pytest.param(
        StreamForestClassifier, {"balanced": True, "ring_rows": 1_000}, id="stream-balanced"
    ),
    pytest.param(NCMForestClassifier, {"memory": 700}, id="ncm-rolling"),
    pytest.param(FewShotForestClassifier, {"memory": 700}, id="few"),
    pytest.param(AutoForestClassifier, {"memory": 700, "ring_rows": 2_000}, id="auto"),
]
STRATEGIES = [
    pytest.param(NCMForestClassifier, {"strategy": "hirf", "memory": 700}, id="ncm-hirf"),
    pytest.param(
        NCMForestClassifier,
        {"strategy": "rtst", "memory": 700, "metric": "whitened", "side_search": 64},
        id="ncm-rtst",
    ),
    pytest.param(NCMForestClassifier, {"strategy": "rust", "memory": 700}, id="ncm-rust"),
    pytest.param(NCMForestClassifier, {"split": "svm", "memory": 500}, id="ncm-svm"),
    pytest.param(NCMForestClassifier, {"strategy": "igt", "memory": 300}, id="ncm-igt"),
    pytest.param(NCMForestClassifier, {"strategy": "uls", "memory": 700}, id="ncm-uls"),
]
"""Ways an NCM forest can go, each with kernels of its own."""


@pytest.mark.parametrize("short", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(("kind", "params"), FORESTS + STRATEGIES)
def test_batches_and_threads_give_the_same_bits(
    kind: Any, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    events = (3_000 if "memory" in params else 6_000) // (2 if short else 1)
    if kind is StreamForestClassifier:
        params = {**params, "ring_rows": 2_048}  # rows leave the ring
    contract.batches_and_threads_give_the_same_bits(kind, params, monkeypatch, events)


@pytest.mark.parametrize(("kind", "params"), FORESTS)
def test_a_category_seen_for_the_first_time_is_unknown_to_its_own_prediction(
    kind: Any, params: dict[str, Any]
) -> None:
    contract.a_new_category_is_unknown_to_its_own_prediction(kind, params)


@pytest.mark.parametrize(("kind", "params"), FORESTS)
def test_capacity_is_decided_by_learned_events_alone(
    kind: Any, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    contract.capacity_is_decided_alike(kind, params, monkeypatch)


@pytest.mark.parametrize(("kind", "params"), [forest for forest in FORESTS if forest.id != "auto"])
def test_what_a_sparse_row_lacks_is_zero(kind: Any, params: dict[str, Any]) -> None:
    contract.absent_is_zero(kind, params)


@pytest.mark.parametrize(("kind", "params"), FORESTS)
def test_predicting_changes_nothing(kind: Any, params: dict[str, Any]) -> None:
    contract.predicting_changes_nothing(kind, params)


@pytest.mark.parametrize(("kind", "params"), FORESTS)
def test_frames_and_arrays_equal_dicts(kind: Any, params: dict[str, Any]) -> None:
    contract.frames_and_arrays_equal_dicts(kind, params)


def test_learning_after_predicting_routes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    xs, ys = growing_stream(400)
    model = ConsistentForestClassifier(n_trees=2, seed=1)
    model.advance(xs, ys)
    reused: list[bool] = []
    call = model._call_one
    monkeypatch.setattr(
        model, "_call_one", lambda X, op, reuse: (reused.append(reuse), call(X, op, reuse))[1]
    )
    x, y = xs[-1], ys[-1]
    model.predict_one(x)
    model.learn_one(dict(reversed(x.items())), y)
    assert reused == [False, True]
    model.learn_one(x, y)  # the tree may have grown since
    model.predict_one(x)
    model.learn_one({**x, "f1": 7.5}, y)
    assert reused == [False, True, False, False, False]


def test_one_kernel_serves_every_kind_of_array() -> None:
    """A second signature would mean compiling again, in the middle of a stream."""
    X, y = blobs(200)
    model = ConsistentForestClassifier(n_trees=2, seed=1)
    model.warm_up()
    read_only = X.copy()
    read_only.flags.writeable = False
    bits = set()
    for rows in (X, read_only, np.asfortranarray(X), X[::-1][::-1], pd.DataFrame(X)):
        fresh = model.clone()
        fresh.advance(rows, y)
        fresh.predict_one(dict(enumerate(X[0])))
        fresh.learn_one(dict(enumerate(X[0])), int(y[0]))
        bits.add(encode({"main": fresh}))
    assert len(bits) == 1
    model.advance(X.astype(np.float32), y)
    model.advance(X.astype(int), y)
    assert len(kernels.advance.signatures) == 1


def test_what_advance_returns() -> None:
    model = ConsistentForestClassifier(n_trees=5, seed=1)
    P = model.advance(
        [{"a": 1.0}, {"a": 2.0}, {"a": 1.0}], ["u", "v", None], [BOTH, LEARN, PREDICT]
    )
    assert P.shape == (3, 2)
    assert P.dtype == np.float64
    assert (P[0] == 0).all()  # nothing was known yet
    assert np.isnan(P[1]).all()  # only learned
    assert P[2].sum() == pytest.approx(1.0)
    assert model.n_learned == 2
    P = model.advance([{"a": 1.0}] * 2, ["w", None])
    assert P[0, 2] == 0.0  # not seen as of that row
    assert model.classes_ == ["u", "v", "w"]
    assert model.advance([], []).shape == (0, 3)


def test_a_class_unseen_by_every_tree_shares_alike() -> None:
    # the only event is a structure event in this tree: no histogram has anything yet
    for seed in range(20):
        model = ConsistentForestClassifier(n_trees=1, seed=seed)
        model.learn_one({"a": 1.0}, "x")
        model.learn_one({"a": 1.0}, "y")
        if model._trees.tree["n_estimation"][0] == 0:
            assert model.predict_proba_one({"a": 1.0}) == {"x": 0.5, "y": 0.5}
            return
    pytest.fail("no seed put both events into the structure stream")


@pytest.mark.parametrize("kind", KINDS)
def test_copies_go_on_alike(kind: Any) -> None:
    contract.copies_go_on_alike(kind)


@pytest.mark.parametrize("kind", sorted(forest.class_name for forest in registry.entries()))
def test_whatever_was_learned_is_saved_and_loaded(kind: str) -> None:
    """Save, load, save again, compare bytes: every stream of the zoo, every form of the forest."""
    ways = [made for made in roundtrip.forests() if made.kind == kind]
    trips = 0
    for number, zoo in enumerate(roundtrip.ZOO):
        made = ways[number % len(ways)]
        trips += roundtrip.run(made, zoo, trips=17, dense=8, seed=number)
    assert trips >= 200


def _checks() -> list[Any]:
    out = []
    for kind in KINDS:
        for params in kind._unit_test_params():
            model = kind(**params)
            assert model._unit_test_skips() == set()
            out += [
                pytest.param(model, check, id=f"{kind.__name__}-{check.__name__}")
                for check in checks.yield_checks(model)
            ]
    return out


@pytest.mark.parametrize(("model", "check"), _checks())
def test_rivers_own_checks(model: Any, check: Any) -> None:
    check(model.clone())
