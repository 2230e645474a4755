"""The strategies of the NCM forest against their description in plain Python (`reference.ncm`)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from reference import ncm as reference
from reference import ncm_svm as reference_svm
from support.events import blobs

from streamforest import NCMForestClassifier
from streamforest.forests.core.batch import INTO_LEAVES
from streamforest.forests.ncm import arrays as ncm_arrays
from streamforest.forests.ncm import training
from streamforest.forests.ncm.training import RetrainJob
from streamforest.kernels.ncm import node_sampling
from streamforest.kernels.ncm.layout import Tree, descend
from streamforest.kernels.ncm.row_memory import fill_in

START, END = 5, 9  # classes before and after
PLAIN = {
    "metric": "raw",
    "balanced": False,
    "neighbours": 0,
    "mean_vote": False,
    "n_trees": 3,
    "seed": 7,
}


def _rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows of nine classes that overlap, the first five of them first; where the others begin."""
    X, y = blobs(360, END, n_features=5, seed=seed)
    X = np.round(X * 0.7, 6).astype(np.float32).astype(np.float64)
    X[0] = 0.0  # what columns are held less of
    y[0] = 0
    order = np.argsort(y >= START, kind="stable")
    return X[order], y[order], int((y < START).sum())


def _forest(**params: Any) -> tuple[NCMForestClassifier, list[reference.Tree], Any]:
    """A forest of the first classes, and the same trees by the book."""
    X, y, n = _rows()
    forest = NCMForestClassifier(**{**PLAIN, **params})
    forest.fit_many(X[:n], y[:n])
    index = {label: k for k, label in enumerate(dict.fromkeys(y.tolist()))}
    rows = [reference.Row(k, x, index[label]) for k, (x, label) in enumerate(zip(X, y.tolist()))]
    trees = []
    for tree in forest._trees:
        search = params.get("side_search", "greedy")
        kind = reference_svm.SvmTree if forest.split == "svm" else reference.Tree
        plain = kind(
            int(tree.info["seed"][0]),
            forest.mu,
            assignments=0 if search == "greedy" else search,
            bagged=bool(forest._trees.params["bagged"][0]),
            planes=forest.strategy != "rust",
        )
        if isinstance(plain, reference_svm.SvmTree):
            plain.passes, plain.penalty = forest.svm_passes, forest.svm_penalty
            plain.n_planes = forest.n_planes
        plain.fresh(rows[:n], _centroids(START))
        trees.append(plain)
    return forest, trees, (X, y, n, rows)


def _centroids(classes: int) -> int:
    return max(2, int(np.ceil(np.sqrt(classes))))


def _same(forest: NCMForestClassifier, trees: list[reference.Tree], rows: Any) -> None:
    for tree, plain in zip(forest._trees, trees):
        assert int(tree.info["draws"][0]) == plain.tests
        _same_below(forest, tree, 0, plain, plain.root)


def _same_below(
    forest: NCMForestClassifier, tree: Tree, i: int, plain: reference.Tree, node: reference.Node
) -> None:
    here = tree.node[i]
    if here["left"] < 0:
        assert node.left is None, f"node {i} should be split"
        slots = np.flatnonzero(tree.leaf == i)
        numbers = sorted(forest._memory.arrays.number[slots].tolist())
        assert numbers == sorted(row.number for row in node.rows), f"rows of leaf {i}"
        used, room = int(here["n_classes"]), int(here["room"])
        at = int(here["hist"])
        counts = dict(zip(tree.hist[at : at + used].tolist(), tree.hist[at + room :].tolist()))
        assert Counter(counts) == plain.counts(node.rows), f"counts of leaf {i}"
        assert list(counts) == sorted(counts)
        return
    assert node.left is not None, f"node {i} should be a leaf"
    k = int(here["k"])
    if node.plane is not None:
        assert k == 1
        first = int(here["first"])
        plane = tree.cen[first, : len(node.plane)]
        np.testing.assert_allclose(plane, node.plane, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(tree.half[first], node.half, rtol=1e-3, atol=1e-3)
    else:
        assert max(k, 2) == len(node.means)
    if k > 1:
        first = int(here["first"])
        assert tree.side[first : first + k].tolist() == node.sides
        np.testing.assert_allclose(
            tree.cen[first : first + k, : len(node.means[0])], node.means, rtol=1e-4, atol=1e-4
        )
    _same_below(forest, tree, int(here["left"]), plain, node.left)
    assert node.right is not None
    _same_below(forest, tree, int(here["left"]) + 1, plain, node.right)


GROWING = [
    pytest.param({"mu": 1}, id="greedy"),
    pytest.param({"mu": 2, "side_search": 6}, id="random"),
    pytest.param({"mu": 2, "side_search": 64, "bagging": True}, id="every-bagged"),
    pytest.param({"mu": 4, "n_centroids": "sqrt", "bagging": True}, id="greedy-bagged"),
]


@pytest.mark.parametrize("params", GROWING)
@pytest.mark.parametrize("strategy", ["uls", "igt"])
def test_leaves_updated_and_grown_by_the_book(strategy: str, params: dict[str, Any]) -> None:
    forest, trees, (X, y, n, rows) = _forest(strategy=strategy, **params)
    _same(forest, trees, rows)
    before = [int(tree.info["n_nodes"][0]) for tree in forest._trees]
    assert min(before) > 5
    forest.extend_many(X[n:], y[n:])
    for plain in trees:
        plain.update_leaves(rows[n:])
        if strategy == "igt":
            plain.rounds += 1
            plain.igt(_centroids(END))
    _same(forest, trees, rows)
    after = [int(tree.info["n_nodes"][0]) for tree in forest._trees]
    assert (after == before) if strategy == "uls" else min(np.subtract(after, before)) > 5


@pytest.mark.parametrize("params", GROWING)
@pytest.mark.parametrize("mode", ["quality", "size", "uniform"])
def test_retrained_subtrees_by_the_book(mode: str, params: dict[str, Any]) -> None:
    forest, trees, (X, y, n, rows) = _forest(strategy="rtst", pi=0.2, node_sampling=mode, **params)
    for begin, end in ((n, n + 40), (n + 40, len(X))):
        forest.extend_many(X[begin:end], y[begin:end])
        for plain in trees:
            plain.update_leaves(rows[begin:end])
            plain.rounds += 1
            plain.rtst(_centroids(len(set(y[:end]))), 0.2, mode)
        _same(forest, trees, rows)


@pytest.mark.parametrize("params", GROWING)
def test_reused_subtrees_by_the_book(params: dict[str, Any]) -> None:
    forest, trees, (X, y, n, rows) = _forest(strategy="rust", pi=0.4, **params)
    known = START
    for begin, end in ((n, n + 40), (n + 40, len(X))):
        forest.extend_many(X[begin:end], y[begin:end])
        classes = len(set(y[:end]))
        for plain in trees:
            plain.update_leaves(rows[begin:end])
            plain.rounds += 1
            plain.rust(_centroids(classes), 0.4, list(range(known, classes)))
        known = classes
        _same(forest, trees, rows)
        _no_row_is_wrong(forest, least=forest.mu)


SVM = [
    pytest.param({"mu": 4}, id="all-rows"),
    pytest.param({"mu": 3, "bagging": True}, id="bagged"),
]


@pytest.mark.parametrize("params", SVM)
@pytest.mark.parametrize("strategy", ["uls", "igt", "rtst", "rust"])
def test_planes_by_the_book(strategy: str, params: dict[str, Any]) -> None:
    fit = {"svm_passes": 1.0, "svm_penalty": 0.02, "n_planes": 4}
    forest, trees, (X, y, n, rows) = _forest(
        strategy=strategy, split="svm", pi=0.4, **fit, **{**params, "n_trees": 2}
    )
    _same(forest, trees, rows)
    known = START
    for begin, end in ((n, n + 60), (n + 60, len(X))):
        forest.extend_many(X[begin:end], y[begin:end])
        classes = len(set(y[:end]))
        centroids = _centroids(classes)
        for plain in trees:
            plain.update_leaves(rows[begin:end])
            plain.rounds += strategy != "uls"
            if strategy == "igt":
                plain.igt(centroids)
            elif strategy == "rtst":
                plain.rtst(centroids, 0.4)
            elif strategy == "rust":
                plain.rust(centroids, 0.4, list(range(known, classes)))
        known = classes
        _same(forest, trees, rows)
    assert min(int(tree.info["n_nodes"][0]) for tree in forest._trees) > 5


def _no_row_is_wrong(forest: NCMForestClassifier, least: int) -> None:
    """Every row lies where it falls, and no leaf has fewer than `least`."""
    for tree in forest._trees:
        x = forest._memory.arrays.rows.copy()
        for slot in forest._memory.slots.tolist():
            assert descend(tree, 0, x, slot) == tree.leaf[slot]
        node = tree.node[: tree.info["n_nodes"][0]]
        assert (node["n"][node["left"] < 0] >= least).all()


@pytest.mark.parametrize("split", ["ncm", "svm"])
@pytest.mark.parametrize("strategy", ["igt", "rtst", "rust"])
def test_no_row_lies_in_a_wrong_leaf(strategy: str, split: str) -> None:
    X, y, n = _rows()
    forest = NCMForestClassifier(
        strategy=strategy, split=split, mu=3, pi=0.5, n_trees=4, metric="standardised", seed=1
    )
    forest.fit_many(X[:n], y[:n])
    for begin in range(n, len(X), 40):
        forest.extend_many(X[begin : begin + 40], y[begin : begin + 40])
        _no_row_is_wrong(forest, least=forest.mu if strategy == "rust" else 0)


def _bits(tree: Tree) -> list[bytes]:
    """What a tree is, but for its clocks."""
    info = tree.info[0]
    nodes, rows = tree.node[: info["n_nodes"]], slice(0, info["n_rows"])
    leaves = nodes["left"] < 0
    hists = [
        tree.hist[h + part : h + part + c].tobytes()
        for h, room, c in zip(
            nodes["hist"][leaves], nodes["room"][leaves], nodes["n_classes"][leaves]
        )
        for part in (0, room)
    ]
    parts = [tree.leaf, tree.half[rows], tree.side[rows], tree.label[rows], tree.cen[rows]]
    fields = [nodes[name].copy() for name in ("left", "first", "k", "n", "due")]
    return [array.tobytes() for array in (*parts, *fields)] + hists


@pytest.mark.parametrize("split", ["ncm", "svm"])
def test_rtst_of_no_node_is_igt(split: str) -> None:
    X, y, n = _rows()
    trees = []
    for strategy in ("igt", "rtst"):
        forest = NCMForestClassifier(
            strategy=strategy, split=split, pi=0.0, mu=2, metric="raw", n_trees=2, seed=1
        )
        forest.fit_many(X[:n], y[:n])
        forest.extend_many(X[n:], y[n:])
        trees.append([_bits(tree) for tree in forest._trees])
    assert trees[0] == trees[1]


def _renumbered(tree: Tree, slots: Any) -> Tree:
    to = ncm_arrays.copied(tree)
    node_sampling.compact(tree, slots, to)
    return to


@pytest.mark.parametrize("split", ["ncm", "svm"])
def test_rtst_of_all_nodes_is_a_fresh_tree(split: str) -> None:
    X, y, n = _rows()
    forest = NCMForestClassifier(
        strategy="rtst", split=split, pi=1.0, mu=2, metric="raw", n_trees=2, seed=1
    )
    forest.fit_many(X[:n], y[:n])
    draws = [int(tree.info["draws"][0]) for tree in forest._trees]
    forest.extend_many(X[n:], y[n:])
    view = forest._retraining.view(forest._now())
    for t, tree in enumerate(forest._trees):
        # a fresh tree begins with draws of its own: let it begin where this one stood
        seed = ncm_arrays.copied(tree)
        seed.info["rounds"] = (draws[t] >> 32) - 1
        assert draws[t] > (draws[t] >> 32) << 32
        fresh = _grown_from(RetrainJob(t, "fresh", view, 0, seed, 0), draws[t])
        assert _bits(_renumbered(fresh, view.slots)) == _bits(tree)


def _grown_from(job: RetrainJob, draws: int) -> Tree:
    """The tree of a job whose generator stands at `draws`."""
    tree = training.root(job.view, job.before, job.metric)
    tree.info["draws"] = draws
    return training.grown(job.view, tree)


# ---- hi-RF


@pytest.mark.parametrize(
    "params",
    [
        {"mu": 1},
        {"mu": 3, "side_search": 32, "grow_kept": False},
        {"mu": 0, "side_search": 16, "grow_kept": False, "oob_weighting": True},
    ],
)
def test_hirf_by_the_book(params: dict[str, Any]) -> None:
    forest, trees, (X, y, n, rows) = _forest(strategy="hirf", oob_boost=0.5, n_trees=8, **params)
    _same(forest, trees, rows)
    replaced = kept_twice = 0
    for begin, end in ((n, n + 30), (n + 30, n + 60), (n + 60, len(X))):
        centroids = _centroids(len(set(y[:end])))
        for plain in trees:
            plain.update_leaves(rows[begin:end])
        weighted = params.get("oob_weighting", False)
        errors = [plain.out_of_bag_error(rows[:end], weighted) for plain in trees]
        judged = []
        for plain, error in zip(trees, errors):
            for _ in range(plain.kept):  # only trees that were kept are boosted
                error += 0.5 * np.tanh(error)
            judged.append(error)
        forest._learn_set(X[begin:end], y[begin:end], INTO_LEAVES)
        np.testing.assert_allclose(forest.out_of_bag_errors(), errors, rtol=1e-12)
        np.testing.assert_allclose(forest._retraining.judged_errors(), judged, rtol=1e-12)
        forest._retraining.retrain_all(forest._now())
        for plain, error in zip(trees, judged):
            if error > np.mean(judged):
                replaced += 1
                plain.fresh(rows[:end], centroids)
            else:
                plain.rounds += 1
                plain.refill()
                kept_twice += plain.kept > 1
                if forest.grow_kept:
                    plain.igt(centroids)
        _same(forest, trees, rows)
        assert [int(tree.info["kept"][0]) for tree in forest._trees] == [p.kept for p in trees]
    assert replaced > 3
    assert kept_twice > 0


def test_published_hirf_keeps_the_splits_of_kept_trees() -> None:
    X, y, n = _rows()
    forest = NCMForestClassifier.paper("hirf", n_trees=8, seed=1)
    forest.fit_many(X[:n], y[:n])
    before = [ncm_arrays.copied(tree) for tree in forest._trees]
    forest.extend_many(X[n:], y[n:])
    kept = 0
    for old, new in zip(before, forest._trees):
        if not new.info["kept"][0]:
            continue
        kept += 1
        n_nodes, n_rows = int(old.info["n_nodes"][0]), int(old.info["n_rows"][0])
        assert new.info["n_nodes"][0] == n_nodes
        assert new.info["n_rows"][0] == n_rows
        assert (new.node["left"][:n_nodes] == old.node["left"][:n_nodes]).all()
        assert (new.cen[:n_rows] == old.cen[:n_rows]).all()
        assert (new.leaf[forest._memory.slots] >= 0).all()  # rows of new classes too
        assert new.info["bag"][0] != new.info["grown_bag"][0]
    assert 0 < kept < 8
    _no_row_is_wrong(forest, least=0)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_rows_that_enter_together_lie_where_they_fall(n_jobs: int) -> None:
    """With missing values and a memory that is too small for all of them."""
    X, y = blobs(700, 8, seed=5)
    order = np.argsort(y >= 5, kind="stable")
    X, y = X[order], y[order]
    X[::7, 1] = np.nan
    forest = NCMForestClassifier(
        strategy="uls", metric="raw", n_trees=3, memory=500, n_jobs=n_jobs, seed=1
    )
    begin = int((y < 5).sum())
    names = [f"f{k}" for k in range(X.shape[1])]
    events = [{k: v for k, v in zip(names, row) if v == v} for row in X.tolist()]
    forest.fit_many(events[:begin], y[:begin])
    forest.extend_many(events[begin:], y[begin:])
    memory = forest._memory
    x = memory.arrays.rows.copy()
    fill_in(x, forest._columns.arrays.fill)
    late = memory.slots[memory.arrays.number[memory.slots] >= begin]
    assert len(late) > 100
    for tree in forest._trees:
        assert set(np.flatnonzero(tree.leaf >= 0).tolist()) == set(memory.slots.tolist())
        for slot in late.tolist():
            assert descend(tree, 0, x, slot) == tree.leaf[slot]
        leaves = tree.node[: tree.info["n_nodes"][0]]
        assert leaves["n"][leaves["left"] < 0].sum() == len(memory.slots)


# ---- on a stream


@pytest.mark.parametrize("strategy", ["rolling", "hirf", "rtst", "rust"])
def test_a_stream_gets_its_rounds(strategy: str) -> None:
    """New classes that are ready bring a round; rows that left the memory leave the trees."""
    X, y = blobs(1_500, 6, seed=3)
    y = np.where((y == 5) & (np.arange(1_500) < 800), 0, y)  # a class that comes late
    forest = NCMForestClassifier(
        strategy=strategy, memory=400, n_trees=5, class_ready=10, swap_after=64, seed=1
    )
    forest.advance(X[:800], y[:800])
    rounds = [int(tree.info["rounds"][0]) for tree in forest._trees]
    P = forest.advance(X[800:], y[800:])
    assert forest._memory.n < 400 + 64  # an epoch more
    assert any(np.array([int(t.info["rounds"][0]) for t in forest._trees]) > rounds)
    for tree in forest._trees:
        held = np.flatnonzero(tree.leaf >= 0)
        assert set(held.tolist()) == set(forest._memory.slots.tolist())
    late = y[800:] == 5
    right = np.array(forest.classes_)[P.argmax(axis=1)] == y[800:]
    assert right[late][-20:].mean() > 0.7
