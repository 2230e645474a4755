"""A low-rank metric for nearest class means, learned by gradient descent: MET + NCM of Ristin 2016.

Mensink et al. 2013: with W of few rows, p(c | x) ∝ exp(−½·|W·x − W·µ_c|²); W follows the gradient of the
log-likelihood. With several centroids a class (MET_k) a class' chance is the sum over its centroids.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.bench.machine import require_scikit_learn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_LEAST_STEPS = 1_000


class LowRankMetric:
    """Nearest class means in a metric that is learned.

    Parameters
    ----------
    rank
        Rows of W, at most.
    centroids
        Of a class, by k-means; 1: its mean.
    passes, batch, rate
        Of gradient descent; the rate falls to a tenth.
    """

    def __init__(
        self,
        rank: int = 64,
        centroids: int = 1,
        passes: int = 30,
        batch: int = 256,
        rate: float = 0.3,
        seed: int = 0,
    ) -> None:
        self.rank, self.centroids, self.passes = rank, centroids, passes
        self.batch, self.rate, self.seed = batch, rate, seed

    def fit(self, X: Floats, y: Ints) -> LowRankMetric:
        """Learn W from rows and their classes 0, 1, …"""
        rng = np.random.default_rng(self.seed)
        self.mean, self.scale = X.mean(axis=0), np.maximum(X.std(axis=0), 0.1 * X.std())
        Z = (X - self.mean) / self.scale
        self.points, self.owner = self._centroids(Z, y)
        _, _, principal = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
        self.W = principal[: min(self.rank, Z.shape[1])] * np.sqrt(4.0 / Z.shape[1])
        own = self.owner[None, :] == np.arange(int(y.max()) + 1)[:, None]
        steps = max(_LEAST_STEPS, self.passes * -(-len(y) // self.batch))
        for step in range(steps):
            rows = rng.integers(0, len(y), self.batch)
            self._step(Z[rows], own[y[rows]], self.rate / (1 + 9 * step / steps))
        return self

    def _centroids(self, Z: Floats, y: Ints) -> tuple[Floats, Ints]:
        require_scikit_learn()
        from sklearn.cluster import KMeans

        points, owner = [], []
        for c in range(int(y.max()) + 1):
            rows = Z[y == c]
            k = min(self.centroids, len(rows))
            if k > 1:
                points.append(
                    KMeans(k, n_init=1, random_state=self.seed).fit(rows).cluster_centers_
                )
            else:
                points.append(rows.mean(axis=0, keepdims=True))
            owner += [c] * len(points[-1])
        return np.concatenate(points), np.array(owner)

    def _chances(self, Z: Floats) -> Floats:
        a, b = Z @ self.W.T, self.points @ self.W.T
        half = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T
        score = -0.5 * half
        chances: Floats = np.exp(score - score.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        return chances

    def _step(self, Z: Floats, own: NDArray[np.bool_], rate: float) -> None:
        """∂/∂W of the mean log-likelihood: Σ (p − q)·W·(x − µ)(x − µ)ᵀ, with q the share within the class."""
        p = self._chances(Z)
        q = p * own
        q /= np.maximum(q.sum(axis=1, keepdims=True), 1e-30)
        g = (p - q) / len(Z)
        Wx, Wm = Z @ self.W.T, self.points @ self.W.T
        # Σ g·(Wx − Wm)(x − m)ᵀ without forming the differences
        by_row, by_point = g.sum(axis=1), g.sum(axis=0)
        gradient = (Wx * by_row[:, None]).T @ Z - Wx.T @ (g @ self.points)
        gradient += (Wm * by_point[:, None]).T @ self.points - Wm.T @ (g.T @ Z)
        self.W += rate * gradient

    def predict(self, X: Floats) -> Ints:
        """The class with the largest chance."""
        p = self._chances((X - self.mean) / self.scale)
        total = np.zeros((len(X), int(self.owner.max()) + 1))
        for k, c in enumerate(self.owner.tolist()):
            total[:, c] += p[:, k]
        best: Ints = total.argmax(axis=1)
        return best
