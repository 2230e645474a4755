"""Random numbers without a state: each draw is a hash of the tree's seed, its purpose and its index.

Nothing has to be saved but the seed, the order in which things happen does not matter, and the draws
of one purpose can never disturb those of another. (With one shared generator a split that happens
earlier would change which stream the next event goes to, and the two streams would not be
independent.) The hash is splitmix64's finaliser; uniforms use its upper 53 bits.
"""

from __future__ import annotations

import math

import numpy as np

from streamforest.kernels.core.compiling import kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_S30 = np.uint64(30)
_S27 = np.uint64(27)
_S31 = np.uint64(31)
_S11 = np.uint64(11)
_S12 = np.uint64(12)
_UNIT = 1.0 / 9007199254740992.0  # 2**-53

# Purposes. The numbers are part of the snapshot format: never reuse one.
STREAM = 1  # which stream an event belongs to, by event
DIMENSIONS = 2  # candidate dimensions of a leaf, by node
BAG = 3  # how often a tree sees an event, by event
THRESHOLDS = 4  # random tests of a leaf, and its subsets of categories, by node
DISCARD = 5  # which tree is looked at, and whether it goes, by event
RING_STREAM = 6  # stream forest: which stream a row belongs to, by generation of the tree
RING_SPLIT = 7  # stream forest: features and thresholds of a split test, by generation
RING_CHALLENGE = 8  # stream forest: whether a challenger is grown, and from how many rows, by event
NCM_SPLIT = 16  # NCM forest: classes, sides and planes of a split test, by test
NCM_BAG = 17  # NCM forest: how often a tree has a row, by bag and row
NCM_NODES = 18  # NCM forest: nodes drawn in a round, by round
NCM_MEMORY = 19  # NCM forest: which row leaves the memory, by row
NCM_METRIC = 20  # NCM forest: metric of a tree that is grown anew, by event


@kernel
def mix(z: np.uint64) -> np.uint64:
    """splitmix64's finaliser: every bit of the input moves half the bits of the output."""
    z = (z ^ (z >> _S30)) * _A
    z = (z ^ (z >> _S27)) * _B
    return z ^ (z >> _S31)


@kernel
def key(seed: np.uint64, purpose: int, index: int) -> np.uint64:
    """The start of the sequence of draws that belongs to (`seed`, `purpose`, `index`)."""
    return mix(mix(seed + np.uint64(purpose) * GOLDEN) + np.uint64(index))


@kernel
def uniform(start: np.uint64, k: int) -> float:
    """The k-th number of a sequence, in [0, 1)."""
    return float(mix(start + np.uint64(k + 1) * GOLDEN) >> _S11) * _UNIT


@kernel
def below(start: np.uint64, k: int, n: int) -> int:
    """The k-th number of a sequence as a whole number in 0 … n - 1."""
    return int(uniform(start, k) * n)


@kernel
def subset(start: np.uint64, k: int) -> float:
    """The k-th random set of categories of a sequence: see tree.in_right_set."""
    return -2.0 - float(mix(start + np.uint64(k + 1) * GOLDEN) >> _S12)


@kernel
def poisson(lam: float, start: np.uint64, k: int) -> tuple[int, int]:
    """A Poisson number, and the index of the next unused draw.

    Knuth's product of uniforms in steps of at most 30, since exp(-λ) vanishes for a large λ.
    """
    total = 0
    left = lam
    while left > 0.0:
        step = min(left, 30.0)
        left -= step
        floor = math.exp(-step)
        product = uniform(start, k)
        k += 1
        while product > floor:
            total += 1
            product *= uniform(start, k)
            k += 1
    return total, k
