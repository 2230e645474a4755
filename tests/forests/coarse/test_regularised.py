"""Regularised NCM trees and the five methods of Ristin 2015, held against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference.regularised import score

from streamforest import NCMForestClassifier
from streamforest.errors import InputError, LabelError, ParameterError
from streamforest.forests.coarse import trust
from streamforest.forests.ncm import presets
from streamforest.forests.persistence.snapshot import decode, encode
from streamforest.kernels.core.entropy import XLOGX
from streamforest.kernels.ncm.regularised import search_both
from streamforest.kernels.ncm.side_search import gather_cells

METHODS = ("stacked", "joint", "nn", "h", "nn-h")


def _set(seed: int = 0, per_class: int = 30) -> tuple[Any, list[int], list[str]]:
    rng = np.random.default_rng(seed)
    upper = rng.normal(size=(3, 6)) * 4
    centres = np.repeat(upper, 4, axis=0) + rng.normal(size=(12, 6)) * 1.5
    y = np.repeat(np.arange(12), per_class)
    X = centres[y] + rng.normal(size=(len(y), 6))
    order = rng.permutation(len(y))
    return X[order], y[order].tolist(), [f"g{k // 4}" for k in y[order].tolist()]


def _cells(cell: Any, labels: list[int | None], k: int, classes: int) -> Any:
    which = np.array([0 if y is None else y for y in labels], np.int32)
    times = np.array([y is not None for y in labels], np.int32)
    return gather_cells(np.array(cell, np.int32), which, times, len(labels), k, classes)


@pytest.mark.parametrize("method", ["rncmf", "joint", "h", "nn-h"])
def test_the_best_of_all_assignments_is_that_of_the_reference(method: str) -> None:
    """Every assignment is tried: so the score is the maximum that plain Python finds."""
    rng = np.random.default_rng(1)
    for trial in range(20):
        n, k = 40, int(rng.integers(2, 6))
        cell = rng.integers(0, k, n).tolist()
        coarse: list[int | None] = rng.integers(0, 3, n).tolist()
        fine: list[int | None] = [
            2 * int(g or 0) + int(rng.integers(0, 2))
            if method in ("rncmf", "nn-h") or r % 3
            else None
            for r, g in enumerate(coarse)
        ]
        weight = 0.1 if method == "joint" else 1.0
        told = [g if method != "joint" or y is None else None for g, y in zip(coarse, fine)]
        best = np.zeros(k, np.uint8)
        found = search_both(
            _cells(cell, fine, k, 6),
            _cells(cell, told, k, 3),
            0.0 if method == "rncmf" else weight,
            1 << 10,
            0,
            np.uint64(trial),
            XLOGX,
            best,
        )
        every = []
        for a in range(1 << (k - 1)):
            left = [not (a >> c) & 1 for c in cell]
            every.append(score(fine, coarse, left, method, weight, 0.001, k))
        left = [best[c] == 0 for c in cell]
        assert found - 0.001 * k == pytest.approx(max(every), abs=1e-6)
        assert score(fine, coarse, left, method, weight, 0.001, k) == pytest.approx(
            max(every), abs=1e-6
        )
        greedy = search_both(
            _cells(cell, fine, k, 6),
            _cells(cell, told, k, 3),
            0.0 if method == "rncmf" else weight,
            0,
            4,
            np.uint64(trial),
            XLOGX,
            best,
        )
        left = [best[c] == 0 for c in cell]
        assert greedy - 0.001 * k == pytest.approx(
            score(fine, coarse, left, method, weight, 0.001, k), abs=1e-6
        )
        assert greedy <= found + 1e-9


def _forest(**params: Any) -> NCMForestClassifier:
    small = {"n_trees": 5, "n_sets": 20, "mu": 2, "seed": 1, "metric": "raw"}
    return NCMForestClassifier(**{**presets.PAPER, **presets.REGULARISED, **small, **params})


def test_a_larger_penalty_makes_smaller_sets() -> None:
    X, y, _ = _set()
    sizes = []
    for penalty in (0.0, 0.05, 10.0):
        forest = _forest(lambda_reg=penalty, c=4.0)
        forest.fit_many(X, y)
        k = np.concatenate(
            [forest._trees[t].node["k"][: forest._trees[t].info["n_nodes"][0]] for t in range(5)]
        )
        sizes.append(float(k[k > 0].mean()))
        assert (
            forest.advance(X).argmax(axis=1) == [forest.classes_.index(v) for v in y]
        ).mean() > 0.9
    assert sizes[0] > sizes[1] > sizes[2] == 2.0
    bounded = _forest(lambda_reg=0.0, c=0.6)
    bounded.fit_many(X, y)
    assert max(int(bounded._trees[t].node["k"].max()) for t in range(5)) <= 3


@pytest.mark.parametrize("method", METHODS)
def test_each_method_learns_from_coarse_rows(method: str) -> None:
    X, y, upper = _set(per_class=40)
    Q, truth, names = X[360:], y[360:], upper[360:]
    seen: dict[int, int] = {}
    labels: list[Any] = []
    for k in y[:360]:
        seen[k] = seen.get(k, 0) + 1
        labels.append(k if seen[k] <= 3 else None)
    rows = [r for r in range(360) if labels[r] is not None]
    plain = _forest(n_trees=10)
    plain.fit_many(X[rows], [labels[r] for r in rows])
    forest = _forest(n_trees=10, coarse_method=method)
    forest.fit_many(X[:360], labels, coarse=upper[:360])
    assert sorted(forest.classes_) == list(range(12))
    assert forest.taxonomy_ == {k: f"g{k // 4}" for k in range(12)}
    told = forest.answers(Q)
    assert told.posteriors.shape == (len(Q), 12)
    assert told.coarse is not None
    # the rest belongs to leaves with rows of a category, but no class of it
    assert (np.abs(told.posteriors.sum(axis=1) - 0.98) < 0.02 + 1e-9).all()
    assert told.coarse.sum(axis=1) == pytest.approx(1.0)

    def accuracy(P: Any, classes: list[Any]) -> float:
        return float(np.mean([classes[k] == v for k, v in zip(P.argmax(axis=1), truth)]))

    base = accuracy(plain.advance(Q), plain.classes_)
    ours = accuracy(told.posteriors, forest.classes_)
    assert ours > base - 0.02, (ours, base)
    if method in ("nn", "nn-h"):
        assert ours > base + 0.03, (ours, base)
    hits = [forest.categories_[k] == g for k, g in zip(told.coarse.argmax(axis=1), names)]
    assert np.mean(hits) > 0.95
    again = decode(encode({"main": forest}))[0]["main"]
    assert (again.advance(Q) == told.posteriors).all()
    x = dict(enumerate(Q[0].tolist()))
    assert list(again.predict_proba_one(x).values()) == told.posteriors[0].tolist()
    assert again.predict_one(x, level="coarse") == forest.categories_[int(told.coarse[0].argmax())]
    assert encode({"main": again}) == encode({"main": forest})


@pytest.mark.parametrize("method", ["joint", "nn", "h", "nn-h"])
def test_methods_on_a_stream_give_the_same_bits(method: str) -> None:
    X, y, upper = _set(seed=2)
    labels: list[Any] = [k if r % 3 else None for r, k in enumerate(y)]
    names = [g if r % 3 == 0 or r % 4 == 0 else None for r, g in enumerate(upper)]
    runs = []
    for batch in (1, 50, 360):
        forest = _forest(coarse_method=method, strategy="rolling", n_sets=4)
        for a in range(0, 360, batch):
            part = slice(a, a + batch)
            forest.advance(X[part], labels[part], coarse=names[part])
            if batch == 50:
                forest = decode(encode({"main": forest}))[0]["main"]
        runs.append(encode({"main": forest}))
        assert sorted(forest.classes_) == list(range(12))
        assert forest.n_learned == 360
    assert runs[0] == runs[1] == runs[2]


def test_what_does_not_go_together_is_refused() -> None:
    for params, message in (
        ({"coarse_method": "best"}, "coarse_method='best'"),
        ({"strategy": "rust"}, "n_sets=20 with split='ncm', strategy='rust'"),
        ({"coarse_method": "h", "n_sets": 0}, "coarse_method='h' with n_sets=0"),
        ({"lambda_reg": -1}, "lambda_reg=-1"),
        ({"c": 0}, "c=0"),
    ):
        with pytest.raises(ParameterError, match=message):
            _forest(**params)
    X, y, upper = _set()
    with pytest.raises(InputError, match="recorded sets only: use fit_many"):
        _forest(coarse_method="stacked").advance(X, y, coarse=upper)
    with pytest.raises(LabelError, match="reserved character"):
        _forest(coarse_method="h").learn_one({0: 1.0}, "\ue0001")
    with pytest.raises(LabelError, match="row 1: class 0 is of category"):
        _forest(coarse_method="h").fit_many(X[:2], [0, 0], coarse=["g0", "g1"])


# ---- refinement


def test_a_refined_row_counts_once_and_under_its_true_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trust, "_RIGHT", 0.0)  # every estimate is learned
    X, y, upper = _set(seed=3)
    forest = NCMForestClassifier(n_trees=4, seed=1)
    guesses = []
    for r in range(360):
        told = y[r] if r % 3 else None
        forest.learn_one(dict(enumerate(X[r].tolist())), told, coarse=upper[r])
        if told is None:
            guesses.append(r)
    late = [r for r in guesses if forest._levels.rows.look_up(r) is not None]
    assert len(late) > 40
    with pytest.raises(LabelError, match=r"class \d+ is of category"):
        forest.refine_one(late[0], next(k for k in range(12) if f"g{k // 4}" != upper[late[0]]))
    halves = [forest, decode(encode({"main": forest}))[0]["main"]]
    for model in halves:
        assert all(model.refine_one(r, y[r]) for r in late)
        assert not model.refine_one(late[0], y[late[0]])  # once only
        assert model.n_learned == 360
        for r in range(128):  # the epoch ends: withdrawn rows are gone
            model.learn_one(dict(enumerate(X[r].tolist())), y[r], coarse=upper[r])
        counts = model.summary()["levels"]
        assert (counts["refined"], counts["missed"]) == (len(late), 1)
        assert model.n_learned == 488
        memory = model._memory
        kept = memory.arrays.label[memory.slots]
        true = [k for r, k in enumerate(y) if r % 3 or r in late] + y[:128]
        expected = np.bincount([model.classes_.index(k) for k in true], minlength=12)
        assert (np.bincount(kept, minlength=12) == expected).all()
        assert (memory.of_class[:12] == expected).all()
        for t in range(4):
            tree = model._trees[t]
            leaves = tree.node[: int(tree.info["n_nodes"][0])]
            assert int(leaves["n"][leaves["left"] < 0].sum()) == len(true)
    assert encode({"main": halves[0]}) == encode({"main": halves[1]})


def test_a_row_that_left_the_memory_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trust, "_RIGHT", 0.0)  # every estimate is learned
    X, y, upper = _set(seed=4)
    forest = NCMForestClassifier(n_trees=2, seed=1, memory=32)
    for r in range(200):
        forest.learn_one(dict(enumerate(X[r].tolist())), None if r == 70 else y[r], coarse=upper[r])
    in_memory = set(forest._rows_in_memory().tolist())
    row = forest._levels.rows.look_up(70)
    assert row is None or row.number not in in_memory
    assert not forest.refine_one(70, y[70])
    assert forest.summary()["levels"]["missed"] == 1
    assert forest.n_learned == 200
