"""The baselines and the mix, compared with the same in plain Python."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from streamforest.forests.stream.baselines import BaselineModels
from streamforest.kernels.candidate.layout import VOTE_UNIT
from streamforest.kernels.core.operations import BOTH, PREDICT
from streamforest.kernels.stream import baseline_learning, mixing
from streamforest.kernels.stream.baselines import FEW, LIVE
from streamforest.kernels.stream.mixing import MIXTURES

LARGE = 10_000_000


def _events(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two numbers, one of few values, one that has few at first, a category; missing values."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    y[:7] = 0, 0, 0, 0, 0, 1, 2  # classes are numbered in the order of their coming
    X = np.empty((n, 5))
    X[:, 0] = rng.normal(y, 1.0)
    X[:, 1] = rng.normal(0.0, 1.0 + y)
    X[:, 2] = (y + rng.integers(0, 4, n)) % 5
    X[:, 3] = np.where(np.arange(n) < n // 2, rng.integers(0, 3, n), rng.normal(size=n))
    X[:, 4] = (y * 2 + rng.integers(0, 3, n)) % 6
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y, np.array([0, 0, 0, 0, 1], np.uint8)


def _softmax(scores: list[float]) -> list[float]:
    most = max(scores)
    total = sum(math.exp(score - most) for score in scores)
    return [math.exp(score - most) / total for score in scores]


class Reference:
    """Both baselines, by dicts and loops; no fading, features of a known and constant spread."""

    def __init__(self, spread: np.ndarray, categorical: np.ndarray) -> None:
        self.mean, self.variance, _ = spread
        self.categorical = categorical
        self.n_classes = 0
        self.rows: list[tuple[list[float], int]] = []
        self.weight: dict[Any, float] = defaultdict(float)
        self.squares: dict[Any, float] = defaultdict(float)

    def _values(self, f: int, c: int | None = None) -> list[float]:
        return [x[f] for x, y in self.rows if x[f] == x[f] and c in (None, y)]

    def bayes(self, x: np.ndarray) -> list[float]:
        scores = []
        for c in range(self.n_classes):
            score = math.log(sum(y == c for _, y in self.rows))
            for f, v in enumerate(x.tolist()):
                distinct = set(self._values(f))
                own = self._values(f, c)
                if v != v or not distinct:
                    continue
                if self.categorical[f] or len(distinct) <= FEW:
                    if v in distinct:
                        score += math.log(own.count(v) + 1) - math.log(len(own) + len(distinct))
                    continue
                n, spread = len(own), self.variance[f]
                variance = (n * np.var(own) + spread) / (n + 1) + 1e-3 * spread
                score -= 0.5 * ((v - np.mean(own)) ** 2 / variance + math.log(variance))
            scores.append(score)
        return _softmax(scores)

    def _inputs(self, x: np.ndarray) -> dict[Any, float]:
        inputs: dict[Any, float] = {"bias": 1.0}
        for f, v in enumerate(x.tolist()):
            if v != v:
                continue
            if self.categorical[f]:
                inputs[f, v] = 1.0
            else:
                z = (v - self.mean[f]) / math.sqrt(self.variance[f])
                inputs[f] = min(4.0, max(-4.0, z))
        return inputs

    def linear(self, x: np.ndarray) -> list[float]:
        inputs = self._inputs(x)
        return _softmax(
            [
                sum(z * self.weight[name, c] for name, z in inputs.items())
                for c in range(self.n_classes)
            ]
        )

    def learn(self, x: np.ndarray, y: int) -> None:
        said = self.linear(x) if self.n_classes else []
        self.n_classes = max(self.n_classes, y + 1)
        step = 1.0 / math.sqrt(len(x) + 1.0)
        for c in range(self.n_classes):
            off = (said[c] if c < len(said) else 0.0) - (c == y)
            if abs(off) < 1e-3:
                continue
            for name, z in self._inputs(x).items():
                self.squares[name, c] += (off * z) ** 2
                self.weight[name, c] -= step * off * z / math.sqrt(self.squares[name, c] + 1e-2)
        self.rows.append((x.tolist(), y))


@pytest.mark.parametrize("seed", range(3))
def test_both_baselines_are_those_of_the_reference(seed: int) -> None:
    X, y, categorical = _events(240, seed)
    deviation = np.nanstd(X, axis=0)
    spread = np.stack([np.nanmean(X, axis=0), deviation**2, 1.0 / deviation])
    plain, reference = BaselineModels(LARGE, zero=False), Reference(spread, categorical)
    votes = np.zeros((len(X), 4, 3), np.int64)
    known = np.full(len(X), 5)
    for start in range(0, len(X), 60):  # batches, so that arrays grow in the middle of one
        cut = slice(start, start + 60)
        ops = np.full(60, BOTH, np.uint8)
        _advance(plain, spread, X[cut], y[cut], ops, known[cut], categorical, votes[cut])
    shares = votes / VOTE_UNIT
    for r, (x, label) in enumerate(zip(X, y.tolist())):
        n = reference.n_classes
        if n and (x[4] in reference._values(4) or x[4] != x[4]):  # a fresh code is never asked for
            np.testing.assert_allclose(shares[r, 2, :n], reference.bayes(x), atol=1e-8)
            np.testing.assert_allclose(shares[r, 3, :n], reference.linear(x), atol=1e-8)
        assert not shares[r, 2:, n:].any()
        assert not shares[r, :2].any()
        reference.learn(x, label)
    assert plain.arrays.size[LIVE] == FEW + 64  # of the number of few values, and of the category


def _advance(
    plain: BaselineModels,
    spread: np.ndarray,
    X: np.ndarray,
    y: np.ndarray,
    ops: np.ndarray,
    known: np.ndarray,
    categorical: np.ndarray,
    votes: np.ndarray,
) -> None:
    """As the forest does it."""
    done = 0
    while done < 2 * len(X):
        done = baseline_learning.advance(
            plain.arrays, plain.max_bytes, spread, X, y, ops, known, categorical, int(plain.zero),
            done, False, votes, 2, plain.want,
        )  # fmt: skip
        if done < 2 * len(X):
            plain.enlarge()


def _learn(plain: BaselineModels, X: np.ndarray, y: np.ndarray, votes: np.ndarray) -> None:
    n, d = X.shape
    spread = np.tile([[0.0], [1.0], [1.0]], d)
    ops, known = np.full(n, BOTH, np.uint8), np.full(n, d)
    _advance(plain, spread, X, y, ops, known, np.zeros(d, np.uint8), votes)


def test_the_bound_takes_tables_first_and_then_everything() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (40, 10)).astype(np.float64)
    for y, bound, tables, silent in (
        (np.arange(40) % 4, LARGE, True, False),
        (np.arange(40) % 4, 8 * 4 * 7 * 10, False, False),  # exactly the planes
        (np.arange(40) % 5, 8 * 4 * 7 * 10, False, True),
    ):
        plain = BaselineModels(bound, zero=False)
        votes = np.zeros((40, 4, 5), np.int64)
        _learn(plain, X, y, votes)
        assert plain.silent == silent
        assert votes[3, 2:].any()  # before the fifth class
        if silent:
            assert not votes[5:, 2:].any()
            plain.end_epoch(64, np.zeros(10), np.ones(10), np.zeros((3, 10)))
            assert plain.nbytes < 5_000  # given back
        else:
            assert votes[-1, 2:].any()
            assert (plain.arrays.size[LIVE] > 0) == tables
    nothing = BaselineModels(0, zero=False)
    assert nothing.silent


def test_predicting_leaves_the_baselines_alone() -> None:
    X, y, categorical = _events(100, 7)
    spread = np.tile([[0.5], [2.0], [0.7]], 5)
    plain = BaselineModels(LARGE, zero=False)
    votes = np.zeros((100, 4, 3), np.int64)
    known = np.full(100, 5)
    ops = np.full(100, BOTH, np.uint8)
    _advance(plain, spread, X, y, ops, known, categorical, votes)
    before = {name: array.tobytes() for name, array in plain.dump().items()}
    ops = np.full(100, PREDICT, np.uint8)
    for x in (X, X + 0.5):
        _advance(plain, spread, x, y, ops, known, categorical, votes)
    assert {name: array.tobytes() for name, array in plain.dump().items()} == before


def test_the_mix_follows_the_errors_of_mixtures() -> None:
    rng = np.random.default_rng(1)
    n, classes = 300, 4
    y = rng.integers(0, classes, n)
    P = rng.dirichlet(np.ones(classes), (n, 4))
    P[:, 1] = 0.5 * P[:, 1] + 0.5 * np.eye(classes)[y]  # the second expert is the best
    P[200:, 3] = 0.0  # the fourth falls silent
    votes = np.rint(P * 20 * VOTE_UNIT).astype(np.int64)
    ops = np.where(rng.random(n) < 0.9, BOTH, PREDICT).astype(np.uint8)
    loss = np.zeros(len(MIXTURES))
    out = np.empty((n, classes), np.int64)
    mixing.mix_and_judge(votes, y, ops, loss, out)
    expected = np.zeros(len(MIXTURES))
    for r in range(n):
        total = votes[r].sum(axis=1, keepdims=True)
        share = votes[r] / np.where(total == 0, 1, total)
        weight = np.exp(expected.min() - expected)
        weight = weight @ MIXTURES / weight.sum()
        heard = weight[total[:, 0] > 0].sum()
        np.testing.assert_allclose(out[r] / VOTE_UNIT, weight @ share / heard, atol=1e-9)
        by_itself = np.empty((1, classes), np.int64)
        mixing.mix(votes[r : r + 1], expected, by_itself)
        np.testing.assert_allclose(by_itself[0], out[r], rtol=0, atol=1)
        if ops[r] == BOTH:
            mixed = MIXTURES @ share
            wrong = (mixed.argmax(axis=1) != y[r]) | (mixed.max(axis=1) == 0)
            expected = 0.9995 * expected + wrong
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    final = np.zeros(4)
    mixing.weigh(loss, final)
    assert final.argmax() == 1
    assert final.sum() == pytest.approx(1.0)


def test_mixtures_are_the_experts_and_their_pairs() -> None:
    assert MIXTURES.shape == (4 + 6 * 3, 4)
    np.testing.assert_array_equal(MIXTURES[:4], np.eye(4))
    np.testing.assert_allclose(MIXTURES.sum(axis=1), 1.0)
    assert len({tuple(row) for row in MIXTURES.tolist()}) == len(MIXTURES)
