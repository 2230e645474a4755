"""A low-rank metric for nearest class means, learned by gradient descent: MET + NCM of Ristin 2016.

Mensink et al. 2013: with W of few rows, p(c | x) ∝ exp(−½·|W·x − W·µ_c|²); W follows the gradient of the
log-likelihood. MET_k: W is learned on k initial classes alone, and later classes only add their means. It is
the paper's main rival for classes that come one after the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_LEAST_STEPS = 1_000


class LowRankMetric:
    """Nearest class means in a metric that is learned.

    Parameters
    ----------
    rank
        Rows of W, at most.
    passes, batch, rate
        Of gradient descent; the rate falls to a tenth.
    """

    def __init__(
        self,
        rank: int = 64,
        passes: int = 30,
        batch: int = 256,
        rate: float = 0.3,
        seed: int = 0,
    ) -> None:
        self.rank, self.passes, self.batch, self.rate, self.seed = rank, passes, batch, rate, seed

    def fit(self, X: Floats, y: Ints, initial: int | None = None) -> LowRankMetric:
        """Learn W and the class means from rows and their classes 0, 1, …

        W from the first `initial` classes alone (MET_k), the means from all rows; None: W from all too.
        """
        rng = np.random.default_rng(self.seed)
        first = y < (y.max() + 1 if initial is None else initial)
        known, labels = X[first], y[first]
        self.mean, self.scale = known.mean(axis=0), np.maximum(known.std(axis=0), 0.1 * known.std())
        Z = (known - self.mean) / self.scale
        self.points = _means(Z, labels)
        _, _, principal = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
        self.W = principal[: min(self.rank, Z.shape[1])] * np.sqrt(4.0 / Z.shape[1])
        steps = max(_LEAST_STEPS, self.passes * -(-len(labels) // self.batch))
        for step in range(steps):
            rows = rng.integers(0, len(labels), self.batch)
            self._step(Z[rows], labels[rows], self.rate / (1 + 9 * step / steps))
        self.points = _means((X - self.mean) / self.scale, y)
        return self

    def _chances(self, Z: Floats) -> Floats:
        a, b = Z @ self.W.T, self.points @ self.W.T
        half = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T
        score = -0.5 * half
        chances: Floats = np.exp(score - score.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        return chances

    def _step(self, Z: Floats, y: Ints, rate: float) -> None:
        """∂/∂W of the mean log-likelihood: Σ (p − own)·W·(x − µ)(x − µ)ᵀ, own = 1 for the row's class."""
        g = self._chances(Z)
        g[np.arange(len(y)), y] -= 1.0
        g /= len(Z)
        Wx, Wm = Z @ self.W.T, self.points @ self.W.T
        # Σ g·(Wx − Wm)(x − m)ᵀ without forming the differences
        by_row, by_point = g.sum(axis=1), g.sum(axis=0)
        gradient = (Wx * by_row[:, None]).T @ Z - Wx.T @ (g @ self.points)
        gradient += (Wm * by_point[:, None]).T @ self.points - Wm.T @ (g.T @ Z)
        self.W += rate * gradient

    def predict(self, X: Floats) -> Ints:
        """The class with the largest chance."""
        best: Ints = self._chances((X - self.mean) / self.scale).argmax(axis=1)
        return best


def _means(Z: Floats, y: Ints) -> Floats:
    n = np.bincount(y)
    out = np.zeros((len(n), Z.shape[1]))
    np.add.at(out, y, Z)
    return out / np.maximum(n, 1)[:, None]
