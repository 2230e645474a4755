"""The contract of every forest, as checks of one class and its parameters.

`tests/forests/test_contract.py` runs them over the registry; a new forest can run them by itself.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamforest.forests.core import engine
from streamforest.forests.persistence.snapshot import encode
from streamforest.kernels.core.operations import LEARN, PREDICT
from support.events import blobs, growing_stream


def _padded(P: np.ndarray, width: int) -> list[bytes]:
    return [np.pad(row, (0, width - len(row))).tobytes() for row in P]


def batches_and_threads_give_the_same_bits(
    kind: Any, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    monkeypatch.setattr(engine, "_WORTH_THREADS", 0)  # threads even for seven rows
    n = events
    xs, ys = growing_stream(n)
    runs = {}
    for batch in (1, 7, 500):
        for threads in (1, 2):
            if batch == 1 and threads == 2:
                continue  # one row is never worth two threads: the same code runs
            model = kind(n_trees=6, seed=3, n_jobs=threads, **params)
            if hasattr(model, "background"):
                model.background = batch == 7
            answers: list[bytes] = []
            for a in range(0, n, batch):
                answers += _padded(model.advance(xs[a : a + batch], ys[a : a + batch]), 12)
            runs[batch, threads] = answers, encode({"main": model})
    model = kind(n_trees=6, seed=3, **params)
    by_dicts: list[bytes] = []
    for x, y in zip(xs, ys):
        p = model.predict_proba_one(x)
        by_dicts += _padded(np.array([list(p.values())]), 12)
        model.learn_one(x, y)
    runs["dicts"] = by_dicts, encode({"main": model})
    assert len(model.classes_) == 12
    first = runs[1, 1]
    for name, run in runs.items():
        assert run[0] == first[0], f"predictions of {name}"
        assert run[1] == first[1], f"snapshot of {name}"


def a_new_category_is_unknown_to_its_own_prediction(kind: Any, params: dict[str, Any]) -> None:
    """With far more categories than a node tells apart, new ones arriving all the time."""
    rng = np.random.default_rng(0)
    xs, ys = [], []
    for i in range(3_000):
        shop, other = rng.integers(0, 5 + i // 10, 2).tolist()
        xs.append({"shop": f"s{shop}", "of": f"c{other}", "size": float(rng.normal())})
        ys.append((shop * 7 + other) % 3)
    batches, one_by_one = (kind(n_trees=4, seed=3, **params) for _ in range(2))
    P = np.concatenate(
        [batches.advance(xs[a : a + 300], ys[a : a + 300]) for a in range(0, 3_000, 300)][1:]
    )
    for r, (x, y) in enumerate(zip(xs, ys)):
        if r >= 300:
            assert list(one_by_one.predict_proba_one(x).values()) == P[r - 300].tolist(), r
        one_by_one.learn_one(x, y)
    assert len(batches._features.categories[0]) > 200
    assert encode({"main": batches}) == encode({"main": one_by_one})


def predicting_changes_nothing(kind: Any, params: dict[str, Any]) -> None:
    xs, ys = growing_stream(3_000)
    asked, silent, in_two = (kind(n_trees=3, seed=1, **params) for _ in range(3))
    for a in range(0, 3_000, 100):
        batch = xs[a : a + 100], ys[a : a + 100]
        asked.advance(*batch)
        P = silent.advance(*batch, op=np.full(100, LEARN))
        assert np.isnan(P).all()
        # a River pipeline whose scaler moves between predict and learn: two rows an event
        rows = [x for x in batch[0] for _ in range(2)]
        labels = [y for y in batch[1] for _ in range(2)]
        in_two.advance(rows, labels, op=np.tile([PREDICT, LEARN], 100))
        asked.predict_one({"never seen": 1.0, "f0": 2.0})
    bits = encode({"main": asked})
    assert encode({"main": silent}) == bits
    assert encode({"main": in_two}) == bits


def frames_and_arrays_equal_dicts(kind: Any, params: dict[str, Any]) -> None:
    X, y = blobs(2_000)
    frame = pd.DataFrame(X, columns=list("fbdaec"))
    by_dicts, by_frame, by_many = (kind(n_trees=3, seed=1, **params) for _ in range(3))
    for x, label in zip(frame.to_dict("records"), y.tolist()):
        by_dicts.learn_one(x, label)
    by_frame.advance(frame, y)
    by_many.learn_many(frame, pd.Series(y))
    assert encode({"main": by_frame}) == encode({"main": by_dicts}) == encode({"main": by_many})
    proba = by_many.predict_proba_many(frame.head(20))
    assert list(proba.columns) == by_many.classes_
    one = [by_many.predict_proba_one(x) for x in frame.head(20).to_dict("records")]
    assert proba.to_dict("records") == one
    best = [by_many.predict_one(x) for x in frame.head(20).to_dict("records")]
    assert by_many.predict_many(frame.head(20)).tolist() == best
    by_array = kind(n_trees=3, seed=1, **params)
    by_array.advance(X, y)
    by_names = kind(n_trees=3, seed=1, **params)
    by_names.advance([dict(enumerate(row)) for row in X.tolist()], y)
    assert encode({"main": by_array}) == encode({"main": by_names})


def copies_go_on_alike(kind: Any) -> None:
    xs, ys = growing_stream(1_500)
    model = kind(n_trees=3, seed=5, n_jobs=2)
    model.advance(xs[:1_000], ys[:1_000])
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    model.advance(xs[1_000:], ys[1_000:])
    for other in copies:
        other.advance(xs[1_000:], ys[1_000:])
        assert encode({"main": other}) == encode({"main": model})
    fresh = model.clone()
    assert fresh.n_learned == 0
    fresh.advance(xs, ys)
    assert encode({"main": fresh}) == encode({"main": model})
