"""Parameters of NCM forests: checked, and packed for the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import ParameterError
from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.parameters import check_choice, check_int, check_number
from streamforest.forests.ncm.metric_choice import KINDS
from streamforest.forests.ncm.retraining import STRATEGIES
from streamforest.forests.ncm.training import NODE_SAMPLING
from streamforest.forests.ncm.width import centroids_for
from streamforest.kernels.ncm import leaf_growth
from streamforest.kernels.ncm.layout import PARAMS

if TYPE_CHECKING:
    from streamforest.forests.ncm.forest import NCMForestClassifier

PAPER: dict[str, Any] = {
    "n_trees": 50,
    "mu": 10,
    "side_search": 1024,
    "metric": "whitened",
    "bagging": True,
    "balanced": False,
    "neighbours": 0,
    "mean_vote": False,
}
"""What the papers use where the defaults differ (Ristin 2016, section 5.1; hi-RF, section IV)."""

PAPER_HIRF: dict[str, Any] = {"mu": 0, "grow_kept": False}
"""And what hi-RF has otherwise: trees are grown to purity (Algorithm III), those that are kept grow no
further (RLP, section III-C)."""

REGULARISED: dict[str, Any] = {
    "strategy": "rtst",
    "n_sets": 1000,
    "side_search": 50,
    "lambda_reg": 0.001,
}
"""The regularised forest beside that (Ristin 2015, section 5.1)."""

COARSE_METHODS = ("stacked", "joint", "nn", "h", "nn-h")
_LAMBDA = {"joint": 0.1, "h": 1.0, "nn-h": 1.0}

FULL = ("auto", "full", "full-scaled")
"""Metrics that need the covariance within the classes."""

_STARTS = 2  # random starts of the greedy search for sides
NODES = 2  # for each row of the memory, at most


def check(forest: NCMForestClassifier) -> None:
    """Refuse parameters that no forest can be made with."""
    check_choice("split", forest.split, ("ncm", "svm"))
    check_choice("strategy", forest.strategy, STRATEGIES)
    check_choice("metric", forest.metric, ("auto", *KINDS))
    check_choice("node_sampling", forest.node_sampling, tuple(NODE_SAMPLING))
    check_int("mu", forest.mu, 0, 1 << 20)
    check_int("n_planes", forest.n_planes, 1, 10_000)
    check_int("memory", forest.memory, 2, 1 << 26)
    check_int("neighbours", forest.neighbours, 0, 10_000)
    check_int("class_ready", forest.class_ready, 1)
    if forest.class_batch is not None:
        check_int("class_batch", forest.class_batch, 1)
    check_int("swap_after", forest.swap_after, 0, 1 << 20)
    check_number("pi", forest.pi, 0, 1)
    check_number("svm_passes", forest.svm_passes, 0.1, 1e4)
    check_number("svm_penalty", forest.svm_penalty, 0, 1)
    check_number("oob_boost", forest.oob_boost, 0, 100)
    check_number("event_credit", forest.event_credit, 0, 1e6)
    check_number("mistake_credit", forest.mistake_credit, 0, 1e6)
    check_int("n_sets", forest.n_sets, 0, 1 << 20)
    check_number("lambda_reg", forest.lambda_reg, 0, 100)
    check_number("c", forest.c, 0, 1_000, inside=True)
    if forest.lambda_coarse is not None:
        check_number("lambda_coarse", forest.lambda_coarse, 0, 1e6, inside=True)
    if forest.coarse_method is not None:
        check_choice("coarse_method", forest.coarse_method, COARSE_METHODS)
    if forest.n_sets and (forest.split == "svm" or forest.strategy == "rust"):
        raise ParameterError(
            f"n_sets={forest.n_sets} with split={forest.split!r}, strategy={forest.strategy!r}: sets of "
            "class means need split 'ncm' and any strategy but 'rust'"
        )
    if forest.coarse_method in _LAMBDA and not forest.n_sets:
        raise ParameterError(
            f"coarse_method={forest.coarse_method!r} with n_sets=0: categories are drawn into sets of "
            "class means, so use n_sets of at least 1, or NCMForestClassifier.paper('rncmf', …)"
        )
    for name in ("balanced", "drift", "mean_vote", "oob_weighting", "grow_kept", "background"):
        if not isinstance(getattr(forest, name), bool):
            raise ParameterError(f"{name}={getattr(forest, name)!r}: use True or False")
    if forest.bagging not in (None, True, False) or (
        forest.strategy == "hirf" and forest.bagging is False
    ):
        raise ParameterError(
            f"bagging={forest.bagging!r} with strategy={forest.strategy!r}: use None, True or False; "
            "with strategy 'hirf' None or True, since it judges trees by rows outside their bags"
        )
    if forest.split == "svm" and forest.metric in ("full", "full-scaled"):
        raise ParameterError(
            f"metric={forest.metric!r} with split='svm': fitting a plane rotates it anyway, "
            "use 'auto', 'raw', 'standardised', 'within' or 'whitened'"
        )


def pack(forest: NCMForestClassifier) -> NDArray[np.void]:
    """The kernels' view of the parameters."""
    check(forest)
    params = np.zeros(1, PARAMS)
    params["mu"] = forest.mu
    params["svm"] = forest.split == "svm"
    params["starts"] = _STARTS
    if forest.side_search != "greedy":
        check_int("side_search", forest.side_search, 1, 1 << 20)
        params["assignments"] = forest.side_search
    params["candidates"] = forest.n_planes
    params["svm_passes"], params["svm_penalty"] = forest.svm_passes, forest.svm_penalty
    params["planes"] = forest.strategy != "rust"  # which needs the centroids one by one
    params["bagged"] = forest.strategy == "hirf" if forest.bagging is None else forest.bagging
    params["covariance"] = forest.mean_vote or forest.metric in FULL
    params["balanced"] = forest.balanced
    params["neighbours"] = forest.neighbours
    params["max_nodes"] = NODES * forest.memory + EPOCH
    params["max_rows"] = centroids_for(forest.memory, forest.n_trees, 0)
    params["rule"], params["amount"] = _centroid_rule(forest.n_centroids)
    if forest.n_centroids == "sqrt":
        params["amount"] = forest.c
    params["sets"] = forest.n_sets
    params["lambda_reg"] = forest.lambda_reg
    weight = _LAMBDA.get(forest.coarse_method or "", 0.0)
    params["lambda_coarse"] = forest.lambda_coarse if weight and forest.lambda_coarse else weight
    params["joint"] = forest.coarse_method == "joint"
    return params


def _centroid_rule(n: Any) -> tuple[int, float]:
    """How the number of classes gives the number of centroids of a node."""
    if n in ("sqrt", "log"):
        return (leaf_growth.SQRT if n == "sqrt" else leaf_growth.LOG), 1.0
    if isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 2:
        return leaf_growth.FIXED, float(n)
    if isinstance(n, float) and 0 < n <= 1:
        return leaf_growth.SHARE, n
    raise ParameterError(
        f"n_centroids={n!r}: use 'sqrt', 'log', a share of the classes in (0, 1] or a whole "
        "number of at least 2"
    )
