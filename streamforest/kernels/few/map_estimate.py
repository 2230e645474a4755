"""The MAP estimate of a class's leaf shares under a constrained Gaussian prior (Rodner 2011, section 4.4).

A class of few rows has counts c_l in the leaves of a tree, and a prior: a Gaussian of mean µ_l and variance
σ² on the simplex of shares. The estimate that maximises likelihood times prior is

    θ_l = h_l + √(h_l² + σ²·c_l)    with    h_l = (µ_l + u) / 2,

where u = λσ² is one number, chosen so that the shares sum to one. The sum rises with u, so a root finder
with a bracket finds it in a few steps. (The paper's fixed-point iteration needs 16,000 to over 100,000.)

The bracket needs no search. For u = (1 − Σµ)/m every θ_l is at least µ_l + u, so they sum to at least one.
For u = −(max µ + σ²·Σc) every θ_l is at most σ²·c_l / |µ_l + u|, so they sum to at most one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel, routine

MOST_STEPS = 200
"""Of the root finder, at most; 5 to 25 are usual."""

_CLOSE = 1e-13  # to a sum of one


@kernel
def map_share(mean: float, count: float, u: float, variance: float) -> float:
    """The share θ of one leaf, for a given u = λσ²; never negative."""
    h = 0.5 * (mean + u)
    a = variance * count
    if h >= 0.0:
        return h + math.sqrt(h * h + a)
    if a == 0.0:
        return 0.0
    return a / (math.sqrt(h * h + a) - h)  # the same without the difference of two near numbers


@routine
def map_multiplier(
    mean: NDArray[np.float64], count: NDArray[np.float64], variance: float
) -> tuple[float, int]:
    """The u = λσ² for which the shares of all leaves sum to one, and the steps it took.

    Leaves without counts and without prior mean may be left out where the means sum to one: their share
    is 0 then. Newton's steps, which come from the right and cannot pass the root since the sum is convex; a
    step that leaves the bracket, and every eighth, is replaced by a bisection.
    """
    m = mean.shape[0]
    total_mean = 0.0
    largest = 0.0
    n = 0.0
    for k in range(m):
        total_mean += mean[k]
        largest = max(largest, mean[k])
        n += count[k]
    high = max(0.0, 1.0 - total_mean) / m
    low = -(largest + variance * n)
    u = high
    steps = 0
    while steps < MOST_STEPS:
        steps += 1
        excess = -1.0
        slope = 0.0
        for k in range(m):
            h = 0.5 * (mean[k] + u)
            a = variance * count[k]
            root = math.sqrt(h * h + a)
            theta = map_share(mean[k], count[k], u, variance)
            excess += theta
            if root > 0.0:
                slope += 0.5 * theta / root
        if abs(excess) <= _CLOSE:
            break
        if excess > 0.0:
            high = u
        else:
            low = u
        new = u - excess / slope if slope > 0.0 else low
        if not low < new < high or steps % 8 == 0:
            new = 0.5 * (low + high)
        if new == u or abs(new - u) <= 1e-16 * abs(u):
            break
        u = new
    return u, steps
