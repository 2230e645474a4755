"""The MAP estimate: its limits, its constraints, and the same answer as two other ways to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from streamforest.errors import ParameterError
from streamforest.forests.few.map_estimate import map_estimate
from streamforest.kernels.few.map_estimate import MOST_STEPS, map_multiplier


def _problem(rng: np.random.Generator, m: int, n: int) -> tuple[Any, Any]:
    """Counts of n rows in m leaves, and a prior mean with gaps."""
    counts = np.bincount(rng.integers(0, m, n), minlength=m).astype(float)
    mean = rng.dirichlet(np.full(m, 0.5)) * (rng.random(m) < 0.7)
    mean[int(rng.integers(m))] += 0.1
    return counts, mean / mean.sum()


def _problems() -> list[tuple[NDArray[Any], NDArray[Any], float]]:
    rng = np.random.default_rng(5)
    out = []
    for m in (1, 2, 3, 10, 100, 1_000):
        for n in (0, 1, 2, 8, 256):
            for variance in (1e-12, 1e-5, 1.0 / m**2, 1e-2, 1.0, 1e6, 1e12):
                problem = _problem(rng, m, n)
                out += [(*problem, variance)]
    return out


def _log_posterior(theta: Any, counts: Any, mean: Any, variance: float) -> float:
    seen = counts > 0
    likelihood = (counts[seen] * np.log(theta[seen])).sum()
    return float(likelihood - ((theta - mean) ** 2).sum() / (2 * variance))


def test_shares_are_a_distribution_found_in_few_steps() -> None:
    most = 0
    for counts, mean, variance in _problems():
        theta = map_estimate(counts, mean, variance)
        assert (theta >= 0).all()
        assert theta.sum() == pytest.approx(1.0, abs=1e-12)
        u, steps = map_multiplier(mean, counts, variance)
        most = max(most, steps)
        # before it is scaled: the root itself is found
        raw = 0.5 * (mean + u) + np.sqrt((0.5 * (mean + u)) ** 2 + variance * counts)
        if variance <= 1:  # beyond it this form of the sum loses digits
            assert raw.sum() == pytest.approx(1.0, abs=1e-7)
    assert most < MOST_STEPS // 2


@pytest.mark.parametrize("m", [2, 10, 200])
def test_a_wide_prior_leaves_the_maximum_likelihood(m: int) -> None:
    rng = np.random.default_rng(m)
    for n in (1, 2, 8, 100):
        counts, mean = _problem(rng, m, n)
        np.testing.assert_allclose(map_estimate(counts, mean, 1e9), counts / n, atol=1e-6)


@pytest.mark.parametrize("m", [2, 10, 200])
def test_a_narrow_prior_leaves_its_mean(m: int) -> None:
    rng = np.random.default_rng(m)
    for n in (0, 1, 8, 100):
        counts, mean = _problem(rng, m, n)
        np.testing.assert_allclose(map_estimate(counts, mean, 1e-14), mean, atol=2e-6)


def test_without_rows_it_is_the_prior_mean() -> None:
    _, mean = _problem(np.random.default_rng(0), 50, 1)
    for variance in (1e-8, 1e-2, 1e4):
        np.testing.assert_allclose(map_estimate(np.zeros(50), mean, variance), mean, atol=1e-12)


def test_it_agrees_with_a_general_optimiser() -> None:
    rng = np.random.default_rng(3)
    for _ in range(25):
        m, n = int(rng.integers(2, 9)), int(rng.integers(1, 9))
        counts, mean = _problem(rng, m, n)
        variance = float(10.0 ** rng.uniform(-3, 0))
        ours = map_estimate(counts, mean, variance)
        found = minimize(
            lambda t, c=counts, mu=mean, v=variance: -v * _log_posterior(t, c, mu, v),
            np.full(m, 1.0 / m),
            jac=lambda t, c=counts, mu=mean, v=variance: t - mu - v * c / t,
            method="SLSQP",
            bounds=[(1e-9, 1.0)] * m,
            constraints={"type": "eq", "fun": lambda t: t.sum() - 1.0},
            options={"maxiter": 1_000, "ftol": 1e-14},
        )
        np.testing.assert_allclose(ours, found.x, atol=2e-5)
        best = _log_posterior(found.x, counts, mean, variance)
        assert _log_posterior(ours, counts, mean, variance) >= best - 1e-9


def _fixed_point(counts: Any, mean: Any, variance: float, tolerance: float) -> tuple[Any, int]:
    """Equation 11 of the paper, from the multiplier of maximum likelihood on."""
    m = len(counts)
    lam = -float(counts.sum())
    step = 0
    while step < 200_000:
        step += 1
        root = np.sqrt(((mean + lam * variance) / 2) ** 2 + variance * counts)
        new = (1.0 - 2.0 * root.sum()) / (m * variance)
        if abs(new - lam) <= tolerance:
            break
        lam = new
    h = (mean + lam * variance) / 2
    return h + np.sqrt(h * h + variance * counts), step


def test_the_papers_own_iteration_ends_there_and_takes_longer() -> None:
    rng = np.random.default_rng(8)
    for m in (5, 40):
        counts, mean = _problem(rng, m, 4)
        mean = (mean + 0.2 / m) / 1.2  # every leaf has prior mass: the iteration's worst case
        theirs, steps = _fixed_point(counts, mean, 1e-4, tolerance=1e-9)
        ours = map_estimate(counts, mean, 1e-4)
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
        assert steps > 10 * map_multiplier(mean, counts, 1e-4)[1]


def test_a_row_raises_the_share_of_its_leaf() -> None:
    _, mean = _problem(np.random.default_rng(2), 30, 1)
    for leaf in range(30):
        counts = np.zeros(30)
        counts[leaf] = 1.0
        theta = map_estimate(counts, mean, 1e-3)
        assert theta[leaf] > mean[leaf]
        assert (np.delete(theta, leaf) <= np.delete(mean, leaf) + 1e-12).all()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (([1, 2], [1.0], 1e-5), "counts has 2 leaves, prior_mean 1"),
        (([], [], 1e-5), "counts has 0 leaves"),
        (([1, -1], [0.5, 0.5], 1e-5), "counts: give a list of finite numbers, none below 0"),
        (([1, 1], [0.5, float("nan")], 1e-5), "prior_mean: give"),
        ((["a", 1], [0.5, 0.5], 1e-5), "counts: give"),
        (([1, 1], [0.5, 0.6], 1e-5), "prior_mean sums to 1.1: divide"),
        (([1, 1], [0.5, 0.5], 0.0), "variance=0.0: use a number above 0"),
    ],
)
def test_mistakes_are_named(args: Any, says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        map_estimate(*args)
