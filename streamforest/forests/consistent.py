"""The consistent online forest as a River estimator."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import ConsistencyWarning, ParameterError
from streamforest.forests.candidate import CandidateForest
from streamforest.forests.parameters import check_choice, check_int, check_number
from streamforest.kernels import consistent as kernels
from streamforest.kernels.compiling import Announced
from streamforest.kernels.growing import UNBOUNDED


class ConsistentForestClassifier(CandidateForest):
    """Consistent online random forest."""

    _kernel = Announced(kernels.advance, "consistent forest")
    _streams = kernels.STREAMS

    def __init__(
        self,
        n_trees: int = 10,
        lam: float = 10.0,
        n_splits: int = 4,
        tau: float = 0.1,
        alpha0: float = 1.0,
        alpha_growth: float = 1.1,
        beta_factor: float = 50.0,
        p_structure: float = 0.5,
        p_ignore: float = 0.0,
        max_fringe: int | None = None,
        max_fringe_bytes: int = 16_000_000,
        max_nodes: int = 32_768,
        voting: str = "soft",
        max_classes: int = 10_000,
        max_features: int = 10_000,
        max_categories: int = 1_000,
        nonfinite: str = "error",
        n_jobs: int = 1,
        seed: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.lam = lam
        self.n_splits = n_splits
        self.tau = tau
        self.alpha0 = alpha0
        self.alpha_growth = alpha_growth
        self.beta_factor = beta_factor
        self.p_structure = p_structure
        self.p_ignore = p_ignore
        self.max_fringe = max_fringe
        self.max_fringe_bytes = max_fringe_bytes
        self.max_nodes = max_nodes
        self.voting = voting
        self.max_classes = max_classes
        self.max_features = max_features
        self.max_categories = max_categories
        self.nonfinite = nonfinite
        self.n_jobs = n_jobs
        self.seed = seed
        self._start()

    @property
    def _points_per_dim(self) -> int:
        return self.n_splits

    def _pack_params(self) -> NDArray[np.void]:
        check_number("lam", self.lam, 0, 1e6)
        check_int("n_splits", self.n_splits, 1)
        check_number("tau", self.tau, 0)
        check_number("alpha0", self.alpha0, 0, above=True)
        check_number("alpha_growth", self.alpha_growth, 1)
        check_number("beta_factor", self.beta_factor, 0, above=True)
        check_number("p_structure", self.p_structure, 0, 1)
        check_number("p_ignore", self.p_ignore, 0, 1)
        if self.max_fringe is not None:
            check_int("max_fringe", self.max_fringe, 1)
        check_int("max_fringe_bytes", self.max_fringe_bytes, 1)
        check_int("max_nodes", self.max_nodes, 1)
        check_choice("voting", self.voting, ("soft", "hard"))
        if self.beta_factor < 1:
            raise ParameterError(
                f"beta_factor={self.beta_factor!r} makes beta smaller than alpha: use at least 1"
            )
        if self.alpha_growth == 1:
            warnings.warn(
                "alpha_growth=1: alpha(d) does not grow with the depth, so the forest's "
                "theorem of consistency does not hold; use a value above 1",
                ConsistencyWarning,
                stacklevel=4,
            )
        params = np.zeros(1, kernels.PARAMS)
        for name in kernels.PARAMS.names or ():
            if name not in ("max_fringe", "hard"):
                params[name] = getattr(self, name)
        params["max_fringe"] = UNBOUNDED if self.max_fringe is None else self.max_fringe
        params["hard"] = self.voting == "hard"
        return params
