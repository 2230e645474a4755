"""Threads, forks and interrupts: what else touches a model while it works."""

from __future__ import annotations

import copy
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.events import blobs, growing_stream

from streamforest import (
    LEARN,
    ConsistentForestClassifier,
    NCMForestClassifier,
    OnlineForestClassifier,
    StreamForestClassifier,
)
from streamforest.errors import FeatureError, StreamForestError
from streamforest.forests.persistence.snapshot import encode


def test_predicting_in_one_thread_while_another_learns() -> None:
    X, y = blobs(20_000)
    quiet, watched = (ConsistentForestClassifier(n_trees=4, seed=1) for _ in range(2))
    quiet.advance(X, y)
    watched.advance(X[:100], y[:100])
    stop = threading.Event()
    asked = 0

    def ask() -> None:
        nonlocal asked
        while not stop.is_set():
            watched.predict_one(dict(enumerate(X[asked % 1_000])))
            watched.predict_trees(X[:3])
            asked += 1

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for a in range(100, 20_000, 50):
            watched.advance(X[a : a + 50], y[a : a + 50])
    finally:
        stop.set()
        thread.join()
    assert asked > 0
    assert encode({"main": watched}) == encode({"main": quiet})


def _in_child(model: Any, X: Any, y: Any, out: Any) -> None:
    model.advance(X, y)
    out.put(encode({"main": model}))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork()"
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    X, y = blobs(2_000)
    model = ConsistentForestClassifier(n_trees=4, seed=1, n_jobs=2)
    model.advance(X[:1_000], y[:1_000])  # the parent's threads are running
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=_in_child, args=(model, X[1_000:], y[1_000:], out))
    child.start()
    bits = out.get(timeout=120)
    child.join()
    model.advance(X[1_000:], y[1_000:])
    assert bits == encode({"main": model})


@pytest.mark.parametrize("by_batch", [True, False])
def test_an_interrupted_model_says_so(by_batch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs(500)
    model = ConsistentForestClassifier(n_trees=3, seed=1)

    def interrupt(want: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "_enlarge", interrupt)

    def learn() -> None:
        if by_batch:
            model.advance(X, y)
        else:
            for row, label in zip(X, y.tolist()):
                model.learn_one(dict(enumerate(row)), label)

    with pytest.raises(KeyboardInterrupt):
        learn()
    monkeypatch.undo()
    with pytest.raises(StreamForestError, match="load the last snapshot"):
        model.advance(X, y)
    with pytest.raises(StreamForestError, match="load the last snapshot"):
        model.learn_one(dict(enumerate(X[0])), 1)
    with pytest.raises(StreamForestError, match="load the last snapshot"):
        copy.deepcopy(model).predict_one(dict(enumerate(X[0])))
    with pytest.raises(StreamForestError, match="load the last snapshot"):
        model.predict_trees(X)
    with pytest.raises(StreamForestError, match="load the last snapshot"):
        encode({"main": model})


@pytest.mark.parametrize("kind", [ConsistentForestClassifier, NCMForestClassifier])
def test_a_copy_has_arrays_of_its_own(kind: Any) -> None:
    X, y = blobs(1_000)
    model = kind(n_trees=3, seed=1)
    model.advance(X[:500], y[:500])
    before = encode({"main": model})
    other = copy.copy(model)
    other.advance(X[500:], y[500:])
    assert encode({"main": model}) == before
    model.advance(X[500:], y[500:])
    assert encode({"main": model}) == encode({"main": other})


def test_routes_of_another_question_are_not_reused() -> None:
    xs, ys = growing_stream(600)
    events = [({k: v for k, v in x.items() if type(v) is float}, y) for x, y in zip(xs, ys)]
    plain, asked = (ConsistentForestClassifier(n_trees=3, seed=1) for _ in range(2))
    for n, (x, y) in enumerate(events):
        plain.learn_one(x, y)
        asked.predict_one(x)
        if n > 0:
            asked.predict_trees([events[n - 1][0]])
            with pytest.raises(FeatureError):
                asked.predict_one({**x, "f1": 10**400})
        asked.learn_one(x, y)
    assert encode({"main": asked}) == encode({"main": plain})


def test_the_answers_of_single_trees() -> None:
    X, y = blobs(3_000)
    model = ConsistentForestClassifier(n_trees=5, seed=1, voting="hard")
    assert (model.predict_trees(X[:4]) == -1).all()
    model.advance(X, y)
    answers = model.predict_trees(X[:200])
    assert answers.shape == (5, 200)
    votes = np.stack([(answers == k).sum(axis=0) for k in range(len(model.classes_))], axis=1)
    P = model.advance(X[:200])
    np.testing.assert_allclose(P, votes / 5)


def test_full_trees_give_their_memory_back() -> None:
    X, y = blobs(30_000, n_features=20)
    model = ConsistentForestClassifier(n_trees=2, seed=1, max_nodes=301)
    most = 0
    for a in range(0, 30_000, 500):
        model.learn_many(pd.DataFrame(X[a : a + 500]), pd.Series(y[a : a + 500]))
        most = max(most, model._trees.block.nbytes)
    s = model.summary()
    assert s["nodes"] == 2 * 301
    assert (s["active"], s["fringe_bytes"]) == (0, 0)
    assert model._trees.block.nbytes < most / 10


# ---- the online forest does what its parameters say


def _online(**params: Any) -> OnlineForestClassifier:
    X, y = blobs(4_000)
    model = OnlineForestClassifier(**{"n_trees": 3, "seed": 1, **params})
    model.advance(X, y, op=np.full(len(X), LEARN))
    return model


def test_depth_gain_and_samples_hold_the_online_forest_back() -> None:
    free = _online().summary()
    assert free["nodes"] > 50
    assert _online(max_depth=3).summary()["depth"] == 3
    assert _online(max_depth=0).summary()["nodes"] == 3
    assert (
        _online(min_gain=5.0).summary()["nodes"] == 3
    )  # more than any split of four classes gains
    assert _online(min_samples=500).summary()["nodes"] < free["nodes"] / 3


def test_samples_of_a_leaf_count_from_its_birth() -> None:
    """Each event counts for one split only: it is met by one leaf, and no child inherits it as met."""
    for min_samples in (20, 50):
        model = _online(n_trees=1, min_samples=min_samples, min_gain=0.0)
        splits = (model.summary()["nodes"] - 1) // 2
        assert 2_000 < splits * min_samples < 4_200  # of 4,000 events, each Poisson(1) times


def test_poor_old_trees_start_again() -> None:
    X, y = blobs(8_000)
    swapped = (y + 1) % 4  # a drift: every old tree is wrong from here on
    kept, fresh = (
        OnlineForestClassifier(n_trees=10, seed=1, gamma=gamma) for gamma in (0.0, 0.002)
    )
    right = []
    for model in (kept, fresh):
        model.advance(X[:4_000], y[:4_000])
        before = model._trees.tree["seed"].copy()
        P = model.advance(X[4_000:], swapped[4_000:])
        right.append((np.array(model.classes_)[P.argmax(axis=1)] == swapped[4_000:])[2_000:].mean())
        assert (model._trees.tree["seed"] != before).any() == (model is fresh)
    assert right[1] > right[0] + 0.1


def test_a_summary_of_a_stream_forest_while_another_thread_learns() -> None:
    """Trees are swapped and dropped, and arrays exchanged, between any two numbers of it."""
    X, y = blobs(6_000)
    y = (y + np.arange(len(y)) // 300) % 4  # the classes change places all the time
    model = StreamForestClassifier(
        n_trees=8, seed=1, challenge_rate=0.5, trial_events=2, max_challenge_rows=64
    )

    def learn() -> None:
        for a in range(0, len(X), 20):
            model.advance(X[a : a + 20], y[a : a + 20])

    with ThreadPoolExecutor(1) as pool:
        learning = pool.submit(learn)
        while not learning.done():
            assert model.summary()["depth"] >= 0
        learning.result()
    assert model.summary()["swaps"] > 0
