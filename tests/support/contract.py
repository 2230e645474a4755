"""The contract of every forest, as checks of one class and its parameters.

`tests/forests/test_contract.py` runs them over the registry; a new forest can run them by itself.
"""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamforest.errors import CapacityError
from streamforest.forests.core import engine
from streamforest.forests.persistence.snapshot import decode, encode
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


def crowded_stream(n: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Shops of which some are frequent, an id with each event, and features without end."""
    rng = np.random.default_rng(0)
    xs, ys = [], []
    for i in range(n):
        shop = int(rng.integers(0, 8 + i // 10) if rng.random() < 0.3 else rng.integers(0, 8))
        x: dict[str, Any] = {"shop": f"s{shop}", "id": f"{i:08}", "size": float(rng.normal())}
        if i % 5 == 0:
            x[f"extra {i}"] = 1.0
        xs.append(x)
        ys.append(f"class {shop % 3}")
    return xs, ys


def capacity_is_decided_alike(
    kind: Any, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch, n: int = 1_200
) -> None:
    """Other, missing and left out: the same bits for any batch, threads, and snapshot on the way."""
    monkeypatch.setattr(engine, "_WORTH_THREADS", 0)
    bounds = {"max_categories": 40, "max_features": 30}
    xs, ys = crowded_stream(n)
    runs = {}
    for batch, threads in ((1, 1), (7, 2), (500, 1)):
        model = kind(n_trees=4, seed=3, n_jobs=threads, **bounds, **params)
        answers: list[bytes] = []
        for a in range(0, n, batch):
            answers += _padded(model.advance(xs[a : a + batch], ys[a : a + batch]), 3)
            if batch == 7:  # before, at and after the events at which tables are full
                model.predict_one({"shop": "nobody", "id": "none", "never": 1.0})
                if a % 35 == 0:
                    model = decode(encode({"main": model}))[0]["main"]
                    model.n_jobs = threads
        runs[batch] = answers, encode({"main": model})
    by_dicts = kind(n_trees=4, seed=3, **bounds, **params)
    answers = []
    for x, y in zip(xs, ys):
        answers += _padded(np.array([list(by_dicts.predict_proba_one(x).values())]), 3)
        by_dicts.learn_one(x, y)
    runs["dicts"] = answers, encode({"main": by_dicts})
    for name, run in runs.items():
        assert run[0] == runs[1][0], f"predictions of {name}"
        assert run[1] == runs[1][1], f"snapshot of {name}"
    told = by_dicts.capacity
    assert list(told["dropped"]) == ["id"]
    assert told["dropped"]["id"] == n - 40
    assert list(told["other"]) == ["shop"]
    assert told["other"]["shop"] > n // 20
    assert told["left_out"] == n // 5 - 27
    totals = by_dicts.summary()["capacity"]
    assert totals["columns_with_other"] == totals["columns_dropped"] == 1
    assert totals["values_left_out"] == told["left_out"]
    strict = kind(n_trees=2, seed=3, on_capacity="error", **bounds, **params)
    for x, y in zip(xs[:40], ys):
        strict.learn_one(x, y)
    with pytest.raises(CapacityError, match="max_categories=40"):
        strict.learn_one(xs[40], ys[40])


def word_counts(n: int, words: int = 300) -> tuple[list[dict[Any, Any]], list[str]]:
    """Bags of words and of pairs of words, with a category and a gap now and then."""
    rng = np.random.default_rng(1)
    share = 1.0 / np.arange(2, words + 2)
    shares = [share * np.exp(rng.normal(size=words)) for _ in range(3)]
    xs, ys = [], []
    for i in range(n):
        k = int(rng.integers(0, 3))
        drawn = rng.choice(words, 9, p=shares[k] / shares[k].sum()).tolist()
        x: dict[Any, Any] = {}
        for a, b in itertools.pairwise(drawn):
            x[f"w{a}"] = x.get(f"w{a}", 0) + 1
            if a < 20 and b < 20:
                x[f"w{a}", f"w{b}"] = 1
        if i % 7 == 0:
            x["from"] = f"place {i % 3}"
        if i % 11 == 0:
            x["unknown"] = None
        xs.append(x)
        ys.append(f"class {k}")
    return xs, ys


def absent_is_zero(kind: Any, params: dict[str, Any], n: int = 700) -> None:
    """The same bits for any cut and with zeros written out; names may be tuples; it is saved."""
    xs, ys = word_counts(n)
    runs = []
    for batch in (1, 7, 300):
        model = kind(n_trees=4, seed=3, absent="zero", **params)
        answers: list[bytes] = []
        for a in range(0, n, batch):
            answers += _padded(model.advance(xs[a : a + batch], ys[a : a + batch]), 3)
            if batch == 7 and a % 49 == 0:
                model = decode(encode({"main": model}))[0]["main"]
        runs.append((answers, encode({"main": model})))
    model = kind(n_trees=4, seed=3, absent="zero", **params)
    answers = []
    known: set[Any] = set()
    for x, y in zip(xs, ys):
        full = {**dict.fromkeys(known, 0), **x}  # what is not there is 0: written out, the same
        answers += _padded(np.array([list(model.predict_proba_one(full).values())]), 3)
        model.learn_one(x, y)
        known |= {name for name, value in x.items() if isinstance(value, int)}
    runs.append((answers, encode({"main": model})))
    for run in runs[1:]:
        assert run[0] == runs[0][0]
        assert run[1] == runs[0][1]
    assert any(type(name) is tuple for name in model._features.names)
    again = decode(runs[0][1])[0]["main"]
    assert again.absent == "zero"
    assert again._features.names == model._features.names


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
