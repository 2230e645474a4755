"""The MAP estimate of leaf shares, for Python: arrays in, shares out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamforest.errors import ParameterError
from streamforest.forests.core.parameters import check_number
from streamforest.kernels.few.map_estimate import map_multiplier, map_share


def map_estimate(counts: ArrayLike, prior_mean: ArrayLike, variance: float) -> NDArray[np.float64]:
    """The shares of a class in the leaves of a tree, from few counts and a prior.

    A class of two rows lies in at most two leaves. Where do its other rows fall? The classes most like it
    tell: the mean of their shares is the prior mean. The result is the distribution that maximises the
    multinomial likelihood of the counts times a Gaussian around that mean, on the simplex (Rodner and Denzler
    2011, section 4.4). A large variance trusts the counts, a small one the prior.

    Parameters
    ----------
    counts
        Rows of the class in each leaf, none negative; they may all be zero.
    prior_mean
        Mean share of the support classes in each leaf, none negative, summing to one.
    variance
        σ² of the prior, above 0. The paper's is 10⁻⁵.

    Returns
    -------
    One share a leaf, none negative, summing to one.

    Examples
    --------
    >>> map_estimate([2, 0, 0], [0.0, 0.5, 0.5], variance=1e-2).round(3).tolist()
    [0.115, 0.442, 0.442]
    >>> map_estimate([2, 0, 0], [0.0, 0.5, 0.5], variance=1e6).round(3).tolist()
    [1.0, 0.0, 0.0]
    """
    c, mu = _vector("counts", counts), _vector("prior_mean", prior_mean)
    if len(c) != len(mu) or len(c) == 0:
        raise ParameterError(
            f"counts has {len(c)} leaves, prior_mean {len(mu)}: give one of each for every leaf"
        )
    if abs(mu.sum() - 1.0) > 1e-9:
        raise ParameterError(f"prior_mean sums to {mu.sum():g}: divide it by its sum")
    check_number("variance", variance, 0, inside=True)
    u, _ = map_multiplier(mu, c, float(variance))
    theta: NDArray[np.float64] = np.array([map_share(a, b, u, variance) for a, b in zip(mu, c)])
    theta /= theta.sum()
    return theta


def _vector(name: str, values: Any) -> NDArray[np.float64]:
    try:
        array = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty((0, 0))
    if array.ndim != 1 or not np.isfinite(array).all() or (array < 0).any():
        raise ParameterError(f"{name}: give a list of finite numbers, none below 0")
    return array
