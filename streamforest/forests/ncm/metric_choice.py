"""Which metric a tree of an NCM forest gets: one whose young trees make few errors, and any now and then."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.serialization import demand
from streamforest.forests.ncm.column_scales import Take
from streamforest.kernels.core import rng
from streamforest.kernels.ncm.layout import (
    FULL_DIAGONAL,
    FULL_IDENTITY,
    METRICS,
    RAW,
    STANDARD,
    WITHIN,
)

KINDS = {
    "raw": RAW,
    "standardised": STANDARD,
    "within": WITHIN,
    "full": FULL_IDENTITY,
    "full-scaled": FULL_DIAGONAL,
    "whitened": STANDARD,
}
METRIC_NAMES = tuple(KINDS)[:METRICS]
_RATE = 0.002  # an event of a tree, in the running error of its metric
_TEMPERATURE = 0.05  # error that makes a metric e times less likely to be drawn
_EXPLORE = 0.1  # share of draws among all metrics alike
_YOUNG = 1_024  # events of its life by which a tree judges its metric


class MetricChoice:
    """The running error of each metric, and the choice by it.

    Parameters
    ----------
    metric
        The forest's parameter: the name of a metric for all trees, or "auto".
    split
        The forest's parameter: SVM trees have no use for whole matrices.
    seed
        Of the draws.
    """

    def __init__(self, metric: str, split: str, seed: np.uint64) -> None:
        self._metric = metric
        self._split = split
        self.seed = seed
        self.error = np.full(METRICS, 0.5)

    def kinds(self, whole: bool) -> list[int]:
        """The metrics that trees may have; `whole`: whether the whole covariance is kept."""
        if self._metric != "auto":
            return [KINDS[self._metric]]
        return list(range(METRICS if whole and self._split == "ncm" else FULL_IDENTITY))

    def spread(self, kinds: list[int], n_trees: int) -> list[int]:
        """A metric for each tree: all equally often, or by their chances once they were judged."""
        if np.ptp(self.error[kinds]) == 0.0:
            return [kinds[t % len(kinds)] for t in range(n_trees)]
        quantiles = (np.arange(n_trees) + 0.5) / n_trees
        chosen = np.searchsorted(np.cumsum(self._chances(kinds)), quantiles)
        return [kinds[min(int(k), len(kinds) - 1)] for k in chosen]

    def draw(self, kinds: list[int], learned: int, t: int) -> int:
        """A metric for tree `t`, started after so many rows."""
        if len(kinds) == 1:
            return kinds[0]
        start = np.uint64(rng.key(self.seed, rng.NCM_METRIC, learned))
        u = rng.uniform(start, t)
        k = int(np.searchsorted(np.cumsum(self._chances(kinds)), u, side="right"))
        return kinds[min(k, len(kinds) - 1)]

    def _chances(self, kinds: list[int]) -> NDArray[np.float64]:
        error = self.error[kinds]
        chance: NDArray[np.float64] = np.exp((error.min() - error) / _TEMPERATURE)
        chance = (1 - _EXPLORE) * chance / chance.sum() + _EXPLORE / len(kinds)
        return chance

    def note_errors(self, info: NDArray[np.void], events: int, learned: int) -> None:
        """Update the errors by those of young trees (their `info`) in an epoch of so many events."""
        young = learned - info["born"] <= _YOUNG
        metric = info["metric"][young]
        wrong = np.bincount(metric, info["errors"][young], minlength=METRICS)
        judged = np.bincount(metric, minlength=METRICS) * float(events)
        for kind in np.flatnonzero(judged).tolist():
            keep = (1.0 - _RATE) ** judged[kind]
            share = wrong[kind] / judged[kind]
            self.error[kind] = share + (self.error[kind] - share) * keep

    # ---- snapshots

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        return {"retraining.metric_error": self.error.copy()}

    def restore(self, take: Take) -> None:
        """The state that `dump` described, checked."""
        error = take("retraining.metric_error", np.float64, METRICS)
        demand(np.isfinite(error) & (error >= 0), "retraining.metric_error")
        # rows that `extend_many` took in once left counts behind, and shares of over one
        self.error = np.minimum(error, 1.0)
