"""What users of the NCM forest rely on, beyond the contract of all forests."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import pytest
from river import datasets, metrics, preprocessing
from sklearn.datasets import load_digits
from support.events import blobs, growing_stream

import streamforest
from streamforest import LEARN, PREDICT, NCMForestClassifier
from streamforest.errors import ParameterError
from streamforest.forests.persistence.snapshot import decode, encode


def test_sensible_from_the_second_class_on() -> None:
    """Nearest class mean until the first trees stand: no training phase."""
    forest = NCMForestClassifier(seed=1)
    assert forest.predict_one({"a": 1.0}) is None
    forest.learn_one({"a": 0.0, "b": 0.0}, "low")
    assert forest.predict_one({"a": 9.0, "b": 9.0}) == "low"
    forest.learn_one({"a": 10.0, "b": 10.0}, "high")
    assert forest.predict_one({"a": 9.0, "b": 9.5}) == "high"
    assert forest.predict_one({"a": 1.0}) == "low"
    assert forest.predict_proba_one({"a": 9.0, "b": 9.0})["high"] > 0.5


def test_a_class_is_known_from_its_first_event_on() -> None:
    X, y = blobs(2_000, 5, seed=1)
    late = y == 4
    forest = NCMForestClassifier(n_trees=10, seed=1)
    forest.advance(X[~late], y[~late])
    asked = X[late]
    P = forest.advance(asked, y[late])
    names = np.array(forest.classes_)
    right = names[P.argmax(axis=1)] == 4
    assert not right[0]
    assert right[1:21].mean() > 0.5
    assert right[-50:].mean() > 0.85


def test_learns_what_it_should() -> None:
    X, y = load_digits(return_X_y=True)
    forest = NCMForestClassifier(n_trees=10, seed=1)
    P = forest.advance(X, y)
    right = np.array(forest.classes_)[P.argmax(axis=1)] == y
    assert right.mean() > 0.94
    ours = metrics.Accuracy()
    pipeline = preprocessing.StandardScaler() | NCMForestClassifier(n_trees=5, seed=1)
    for x, label in datasets.Phishing():
        ours.update(label, pipeline.predict_one(x))
        pipeline.learn_one(x, label)
    assert ours.get() > 0.87


@pytest.mark.parametrize("width", [768, 2_000])
def test_wide_vectors(width: int) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, width))
    y = rng.integers(0, 20, 600)
    X = centres[y] + 3.0 * rng.normal(size=(600, width))
    forest = NCMForestClassifier(n_trees=5, seed=1)
    P = forest.advance(X, y)
    assert (np.array(forest.classes_)[P.argmax(axis=1)] == y)[300:].mean() > 0.95
    s = forest.summary()
    assert s["features"] == width
    assert s["total_bytes"] <= s["max_bytes"]
    copy = decode(encode({"main": forest}))[0]["main"]
    np.testing.assert_array_equal(copy.advance(X[:20]), forest.advance(X[:20]))


def test_many_classes_stay_inside_the_stated_memory() -> None:
    """964 classes of few events, as in Omniglot; every 200 events the bound holds."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(964, 24))
    y = np.minimum(rng.integers(0, 964, 4_000), np.arange(4_000) // 3)
    X = centres[y] + 0.3 * rng.normal(size=(4_000, 24))
    forest = NCMForestClassifier(n_trees=4, memory=1_500, seed=1)
    for a in range(0, 4_000, 200):
        forest.advance(X[a : a + 200], y[a : a + 200], op=np.full(200, LEARN))
        s = forest.summary()
        assert s["total_bytes"] <= s["max_bytes"]
        assert s["memory_rows"] < 1_500 + 64
    assert s["classes"] > 900
    # classes do not cost classes times nodes: counts are sparse
    assert s["tree_bytes"] < 4 * (4 * s["classes"] * s["nodes"]) / 2


def test_an_igt_forest_whose_nodes_are_full_drops_empty_leaves() -> None:
    X, y = blobs(6_000, 6, seed=2)
    X += np.linspace(0, 40, 6_000)[:, None]  # moves on: old leaves run empty
    forest = NCMForestClassifier(strategy="igt", memory=150, n_trees=2, seed=1)
    most = int(forest._trees.params["max_nodes"][0])
    seen = []
    for a in range(0, 6_000, 64):
        forest.advance(X[a : a + 64], y[a : a + 64])
        seen += [int(tree.info["n_nodes"][0]) for tree in forest._trees]
    assert max(seen) <= most
    assert max(seen) > 0.8 * most  # the bound was neared, and what is empty cut
    assert min(seen[seen.index(max(seen)) :]) < 0.8 * max(seen)


# ---- novelty


def test_what_was_never_seen_is_new() -> None:
    X, y = blobs(2_000, 5, n_features=8, seed=4)
    forest = NCMForestClassifier(n_trees=10, seed=1)
    assert forest.novelty_one({"0": 1.0}) == np.inf
    known = y < 4
    forest.advance(X[known], y[known])
    bits = encode({"main": forest})
    new, old = forest.novelty_many(X[~known][:300]), forest.novelty_many(X[known][-300:])
    # the area under the ROC curve, by its definition
    assert (new[:, None] > old[None, :]).mean() > 0.9
    assert 0.3 < np.median(old) < 3.0
    assert forest.novelty_one(dict(enumerate(X[0]))) == forest.novelty_many(X[:1])[0]
    assert encode({"main": forest}) == bits  # asking changes nothing


def test_novelty_is_as_of_each_event() -> None:
    xs, ys = growing_stream(600)
    whole, cut, plain = (NCMForestClassifier(n_trees=4, seed=1) for _ in range(3))
    P, novelty, *_ = whole.answers(xs, ys)
    parts = [cut.answers(xs[a : a + 37], ys[a : a + 37]) for a in range(0, 600, 37)]
    np.testing.assert_array_equal(np.concatenate([told.novelty for told in parts]), novelty)
    np.testing.assert_array_equal(plain.advance(xs, ys), P)
    assert encode({"main": whole}) == encode({"main": plain}) == encode({"main": cut})
    assert np.isinf(novelty[0])
    assert np.isfinite(novelty[1:]).all()
    only = whole.answers(xs[:2], ys[:2], op=[LEARN, LEARN])[1]
    assert np.isnan(only).all()


# ---- recorded sets


def test_fit_many_is_the_offline_forest() -> None:
    """The order of batches is nothing to it: all trees are grown from all rows at once."""
    X, y = blobs(900, 6, seed=5)
    at_once, in_two = (NCMForestClassifier.paper(n_trees=5, mu=2, seed=1) for _ in range(2))
    at_once.fit_many(X, y)
    in_two.fit_many(X[:400], y[:400])
    in_two.fit_many(X[400:], y[400:])
    test, labels = blobs(1_500, 6, seed=5)
    test, labels = test[900:], labels[900:]
    for forest in (at_once, in_two):
        right = np.array(forest.classes_)[forest.advance(test).argmax(axis=1)] == labels
        assert right.mean() > 0.85
        assert forest.n_learned == 900
    assert {int(tree.info["rounds"][0]) for tree in in_two._trees} == {2}


@pytest.mark.parametrize("strategy", ["uls", "igt", "rtst", "rust", "hirf", "rolling"])
@pytest.mark.parametrize("split", ["ncm", "svm"])
def test_every_strategy_takes_in_new_classes(strategy: str, split: str) -> None:
    X, y = blobs(1_200, 8, seed=6)
    first = y < 5
    forest = NCMForestClassifier(strategy=strategy, split=split, n_trees=5, mu=2, seed=1)
    forest.fit_many(X[first], y[first])
    forest.extend_many(X[~first], y[~first])
    assert forest.classes_[5:] == list(dict.fromkeys(y[~first].tolist()))
    copy = decode(encode({"main": forest}))[0]["main"]
    np.testing.assert_array_equal(copy.advance(X[:50]), forest.advance(X[:50]))
    forest.advance(X[:200], y[:200])  # and goes on as a stream


def test_an_event_between_two_recorded_sets_counts() -> None:
    X, y = blobs(300, 3, seed=7)
    forest = NCMForestClassifier(n_trees=3, seed=1)
    forest.fit_many(X[:200], y[:200])
    forest.learn_one(dict(enumerate(X[200])), int(y[200]))
    forest.extend_many(X[201:], y[201:])
    assert forest.n_learned == 300


# ---- work aside


def test_trees_under_way_are_put_in_place_at_their_event() -> None:
    X, y = blobs(3_000, 4, seed=8)
    forest = NCMForestClassifier(n_trees=6, event_credit=1.0, background=True, seed=1)
    forest.advance(X[:1_200], y[:1_200])
    jobs = list(forest._retraining.jobs)
    assert jobs
    for job in jobs:
        assert job.swap_at - job.view.born == 256
    job = jobs[-1]
    old = forest._trees[job.t]
    left = job.swap_at - forest.n_learned
    forest.advance(X[1_200 : 1_200 + left - 1], y[1_200 : 1_200 + left - 1])
    assert forest._trees[job.t].info is old.info
    forest.advance(X[1_200 + left - 1 : 1_200 + left], y[1_200 + left - 1 : 1_200 + left])
    assert forest._trees[job.t].info is not old.info
    assert forest._trees[job.t].info["born"][0] == job.view.born


def _go_on(forest: Any, X: Any, y: Any, out: Any) -> None:
    forest.advance(X, y)
    out.put(encode({"main": forest}))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork()"
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_grows_what_its_parent_was_growing() -> None:
    X, y = blobs(2_000, 4, seed=8)
    forest = NCMForestClassifier(n_trees=6, event_credit=1.0, background=True, seed=1)
    forest.advance(X[:1_200], y[:1_200])
    assert forest._retraining.jobs
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=_go_on, args=(forest, X[1_200:], y[1_200:], out))
    child.start()
    bits = out.get(timeout=60)
    child.join()
    forest.advance(X[1_200:], y[1_200:])
    assert encode({"main": forest}) == bits


# ---- parameters


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"split": "tree"}, "split='tree': use one of 'ncm', 'svm'"),
        ({"strategy": "best"}, "strategy='best'"),
        ({"metric": "cosine"}, "metric='cosine'"),
        ({"mu": -1}, "mu=-1"),
        ({"pi": 2}, "pi=2: use a number of at least 0 and at most 1"),
        ({"n_centroids": 1}, "n_centroids=1: use 'sqrt', 'log', a share"),
        ({"n_centroids": 1.5}, "n_centroids=1.5"),
        ({"side_search": 0}, "side_search=0"),
        ({"side_search": "fast"}, "side_search='fast'"),
        ({"memory": 1}, "memory=1"),
        ({"strategy": "hirf", "bagging": False}, "bagging=False with strategy='hirf'"),
        ({"split": "svm", "metric": "full"}, "metric='full' with split='svm'"),
        ({"background": 1}, "background=1: use True or False"),
        ({"class_batch": 0}, "class_batch=0"),
    ],
)
def test_refused_parameters_are_named(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match="^" + message.replace("(", r"\(")):
        NCMForestClassifier(**params)


def test_the_papers_settings() -> None:
    forest = NCMForestClassifier.paper("rust", mu=2, seed=1)
    assert (forest.n_trees, forest.mu, forest.pi) == (50, 2, 0.05)
    assert (forest.strategy, forest.node_sampling, forest.n_centroids) == (
        "rust",
        "quality",
        "sqrt",
    )
    assert not forest.mean_vote
    xs, ys = growing_stream(200)
    forest.advance(xs, ys)
    assert forest.summary()["expert_weights"] == {"trees": 1.0, "means": 0.0, "neighbours": 0.0}


def test_warm_up_leaves_nothing_to_compile(tmp_path: Any) -> None:
    forest = NCMForestClassifier(n_trees=3, seed=1)
    forest.warm_up()
    assert forest.n_learned == 0
    xs, ys = growing_stream(400)
    forest.advance(xs, ys)
    forest.save(tmp_path / "m")
    assert streamforest.load(tmp_path / "m").n_learned == 400


def test_single_trees_answer() -> None:
    X, y = blobs(600, 4, seed=9)
    forest = NCMForestClassifier(n_trees=5, seed=1)
    assert (forest.predict_trees(X[:3]) == -1).all()
    forest.advance(X, y)
    answers = forest.predict_trees(X)
    assert answers.shape == (5, 600)
    right = [np.mean([forest.classes_[k] for k in row] == y) for row in answers.tolist()]
    assert min(right) > 0.7


def test_a_recorded_set_is_tried_before_it_is_taken_in() -> None:
    """One metric tells the classes apart, the others do not: trees of that one prevail."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 2_000)
    X = rng.normal(size=(2_000, 6))
    X[:, 0] += 3.0 * y
    X[:, 1:] *= 100.0  # noise that the raw metric drowns in
    forest, again = (NCMForestClassifier(n_trees=10, seed=1) for _ in range(2))
    forest.fit_many(X[:1_500], y[:1_500])
    metrics_of = forest.summary()["metrics"]
    assert metrics_of.get("raw", 0) <= 2 < sum(v for k, v in metrics_of.items() if k != "raw")
    right = np.array(forest.classes_)[forest.advance(X[1_500:]).argmax(axis=1)] == y[1_500:]
    assert right.mean() > 0.8
    again.fit_many([dict(enumerate(row)) for row in X[:1_500].tolist()], y[:1_500])
    assert encode({"main": again}) == encode({"main": forest})


def test_questions_before_many_new_classes_of_the_same_batch() -> None:
    """Labels of later rows are known while the first rows are asked about; nothing is known of them."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(9_000, 4))
    model = NCMForestClassifier(n_trees=2, seed=1)
    model.advance(X[:60], np.arange(60) % 3)
    asked = 8_500  # more rows than are moved at a time
    y = [None] * asked + list(range(100, 100 + len(X) - asked))
    op = np.array([PREDICT] * asked + [LEARN] * (len(X) - asked), np.uint8)
    alone = model.clone()
    alone.advance(X[:60], np.arange(60) % 3)
    P = model.advance(X, y, op)
    assert (P[:asked, 3:] == 0).all()
    np.testing.assert_array_equal(P[:asked, :3], alone.advance(X[:asked]))


@pytest.mark.parametrize("metric", ["full", "within"])
@pytest.mark.parametrize("saved_at", [200, 590, 600])
def test_a_snapshot_does_not_tell_how_the_columns_came(metric: str, saved_at: int) -> None:
    """Rows are made wider than they need to be as features come, by as much as comes at a time; a loaded
    model has just what it needs.
    """
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(1_000, 80)), rng.integers(0, 3, 1_000).tolist()
    X[np.arange(1_000), 4 * np.array(y)] += 3.0
    events = [dict(enumerate(row[: 8 + k // 10].tolist())) for k, row in enumerate(X)]
    forest, batched = (NCMForestClassifier(n_trees=3, metric=metric, seed=1) for _ in range(2))
    for x, label in zip(events[:saved_at], y):
        forest.learn_one(x, label)
    batched.advance(events[:saved_at], y[:saved_at])
    saved = encode({"main": forest})
    assert encode({"main": batched}) == saved
    again = decode(saved)[0]["main"]
    assert again._memory.arrays.rows.shape[1] < forest._memory.arrays.rows.shape[1], (
        "no test of anything"
    )
    assert encode({"main": again}) == saved
    for model in (forest, again):
        for x, label in zip(events[saved_at:], y[saved_at:]):
            model.learn_one(x, label)
    batched.advance(events[saved_at:], y[saved_at:])
    assert encode({"main": again}) == encode({"main": forest}) == encode({"main": batched})
