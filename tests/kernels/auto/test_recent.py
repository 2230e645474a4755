"""The recent neighbours and the blend against the same written down in plain Python."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from streamforest.forests.auto.recent import RecentNeighbours
from streamforest.forests.core.batch import Batch
from streamforest.kernels.auto.blending import AGES, GROWN_UP, LIFTS, SHARES, blend
from streamforest.kernels.core.operations import BOTH, LEARN, PREDICT

UNIT = 1 << 32
WINDOWS = (32, 64, 128, 256, 512)


def _stream(n: int, seed: int) -> tuple[Any, Any, Any]:
    """Four columns, one of categories, with values that are missing; what a row means moves."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 4))
    X[:, 0] += 2 * y + np.arange(n) / 100
    X[:, 1] *= 1000
    X[:, 3] = rng.integers(0, 3, n)
    X[rng.random((n, 4)) < 0.1] = np.nan
    return X, y, np.array([0, 0, 0, 1], np.uint8)


def _votes(recent: RecentNeighbours, X: Any, y: Any, op: Any, kinds: Any, cut: int) -> Any:
    votes = np.zeros((len(X), 3, 3), np.int64)
    learned = 0
    for start in range(0, len(X), cut):
        part = slice(start, start + cut)
        batch = Batch(X[part], y[part], op[part], np.full(len(X[part]), 4))
        of_part = np.zeros((len(X[part]), 3, 3), np.int64)
        recent.process(batch, learned, kinds, of_part, 2)
        votes[part] = of_part
        for o in op[part]:
            learned += bool(o & LEARN)
            if o & LEARN and learned % 64 == 0 and cut == 1:
                recent.end_epoch(4)
    return votes[:, 2]


def _distance(a: Any, b: Any, kinds: Any, scale: Any) -> float:
    total = 0.0
    for f in range(len(a)):
        p, q = float(np.float32(a[f])), float(np.float32(b[f]))
        if math.isnan(p) or math.isnan(q):
            continue
        total += float(p != q) if kinds[f] else (p - q) ** 2 * scale[f]
    return total


def _expected(X: Any, y: Any, op: Any, kinds: Any, inverse: Any) -> Any:
    """The shares of the classes in the answer to each row; `inverse(n)`: 1/variance after n rows."""
    out = np.zeros((len(X), 3))
    ring: list[int] = []
    hits = [0.0] * 10
    for r in range(len(X)):
        said = [-1] * 10
        if ring:
            weight = [math.exp(h - max(hits)) for h in hits]
            for v in range(10):
                scale = np.ones(4) if v < 5 else inverse(len(ring) // 64 * 64)
                window = ring[::-1][: WINDOWS[v % 5]]
                near = sorted(
                    (_distance(X[r], X[i], kinds, scale), k, i) for k, i in enumerate(window)
                )
                near = near[:3]
                far = near[-1][0]
                close = [1 / (math.sqrt(d / far) + 1e-6) if far > 0 else 1.0 for d, _, _ in near]
                shares: dict[int, float] = defaultdict(float)
                for w, (_, _, i) in zip(close, near):
                    shares[int(y[i])] += w / sum(close)
                said[v] = max(shares, key=lambda k: shares[k])
                for k, share in shares.items():
                    out[r, k] += weight[v] / sum(weight) * share
        if op[r] & LEARN:
            hits = [0.97 * h + (s == y[r]) for h, s in zip(hits, said)]
            ring.append(r)
    return out


def test_recent_neighbours_are_those_of_plain_python() -> None:
    X, y, kinds = _stream(700, 1)
    op = np.random.default_rng(2).choice([PREDICT, LEARN, BOTH], 700).astype(np.uint8)
    recent = RecentNeighbours()
    votes = _votes(recent, X, y, op, kinds, cut=1)
    mean, variance, seen = np.zeros(4), np.zeros(4), np.zeros(4)
    after = {0: np.zeros(4)}
    for r in np.flatnonzero(op & LEARN):
        for f in range(3):
            value = float(np.float32(X[r, f]))
            if not math.isnan(value):
                seen[f] += 1
                rate = max(1 / seen[f], 1 / 2000)
                apart = value - mean[f]
                mean[f] += rate * apart
                variance[f] = (1 - rate) * (variance[f] + rate * apart**2)
        n = int(np.count_nonzero(op[: r + 1] & LEARN))
        with np.errstate(divide="ignore"):
            after[n] = np.where(variance > 0, 1 / variance, 0)
    expected = _expected(X, y, op, kinds, lambda n: after[n])
    answered = expected.any(axis=1)
    assert answered.sum() > 650
    np.testing.assert_allclose(votes / UNIT, expected, atol=1e-7)


def test_rows_may_be_cut_anywhere() -> None:
    X, y, kinds = _stream(900, 3)
    op = np.random.default_rng(4).choice([PREDICT, LEARN, BOTH], 900).astype(np.uint8)
    found = []
    for cut in (2, 7, 900):
        recent = RecentNeighbours()
        votes = _votes(recent, X, y, op, kinds, cut)
        found.append((votes.tobytes(), *(a.tobytes() for a in recent.arrays[:4])))
    assert found[0] == found[1] == found[2]


def test_many_features_mean_fewer_rows() -> None:
    recent = RecentNeighbours()
    assert recent.rows == 512
    for features, rows in ((64, 512), (256, 128), (10_000, 32)):
        recent.end_epoch(features)
        assert recent.rows == rows


@pytest.mark.parametrize("seed", range(3))
def test_the_blend_is_that_of_plain_python(seed: int) -> None:
    rng = np.random.default_rng(seed)
    votes = rng.integers(0, UNIT, (200, 3, 4))
    votes[rng.random((200, 3)) < 0.1] = 0  # a voice that has no answer
    votes[:, :, 3] = 0
    y = rng.integers(0, 4, 200)
    op = rng.choice([PREDICT, LEARN, BOTH], 200).astype(np.uint8)
    share = rng.random(2)
    hits = np.zeros((2, len(SHARES)), np.int64)
    rows, lift = np.array([0, 3, 60, 80]), np.array([4.0, 2.0, 1.5])
    lift_hits = np.zeros((len(AGES), len(LIFTS)), np.int64)
    out = np.empty((200, 4), np.int64)
    known = rows.copy()
    blend(votes, y, op, share, hits, rows, lift, lift_hits, out)

    def mixed(one: Any, other: Any, g: float) -> Any:
        return (1 - g) * one / max(one.sum(), 1) + g * other / max(other.sum(), 1)

    expected, expected_lifts = np.zeros_like(hits), np.zeros_like(lift_hits)
    for r in range(200):
        forests = np.rint(UNIT * mixed(votes[r, 0], votes[r, 1], share[0])).astype(np.int64)
        age = np.searchsorted(AGES, known, side="right")
        factor = np.append(lift, 1.0)[age]
        lifted = np.rint(factor * forests).astype(np.int64)
        answer = UNIT * mixed(lifted, votes[r, 2], share[1])
        np.testing.assert_allclose(out[r], answer, atol=2)
        if op[r] & LEARN:
            for pair, voices in enumerate(((votes[r, 0], votes[r, 1]), (lifted, votes[r, 2]))):
                for s, g in enumerate(SHARES):
                    p = mixed(*voices, g)
                    expected[pair, s] += p.max() > 0 and p.argmax() == y[r]
            for a in range(len(AGES)):
                if not forests[age == a].any():
                    continue  # it says nothing of the lifts of this age
                for s, by in enumerate(LIFTS):
                    p = np.where(age == a, by, factor) * forests
                    expected_lifts[a, s] += p.max() > 0 and p.argmax() == y[r]
            known[y[r]] = min(known[y[r]] + 1, GROWN_UP)
    np.testing.assert_array_equal(hits, expected)
    np.testing.assert_array_equal(lift_hits, expected_lifts)
    np.testing.assert_array_equal(rows, known)
    assert 0 < hits.min() < hits.max()
    assert lift_hits.any()
