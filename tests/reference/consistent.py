"""The consistent online forest in plain Python, straight from the description of the algorithm.

Nothing is kept up to date: gains are computed from the counts whenever they are needed, the fringe is a
set, histograms are Counters. It shares no code with the kernels, only the definition of the random
draws (splitmix64 hashes) and of x·log₂ x (integers in units of 2⁻²⁴).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
STREAM, DIMENSIONS, SUBSETS = 1, 2, 4


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def key(seed: int, purpose: int, index: int) -> int:
    return mix((mix((seed + purpose * GOLDEN) & MASK) + index) & MASK)


def uniform(start: int, k: int) -> float:
    return (mix((start + (k + 1) * GOLDEN) & MASK) >> 11) / 2**53


def subset(start: int, k: int) -> float:
    return -2.0 - float(mix((start + (k + 1) * GOLDEN) & MASK) >> 12)


def in_right_set(code: float, point: float) -> int:
    if point >= 0:
        return int(code != point)
    return mix((int(-point) + (int(code) + 1) * GOLDEN) & MASK) >> 63


def poisson(lam: float, start: int) -> int:
    total, k, left = 0, 0, lam
    while left > 0:
        step = min(left, 30.0)
        left -= step
        product = uniform(start, k)
        k += 1
        while product > math.exp(-step):
            total += 1
            product *= uniform(start, k)
            k += 1
    return total


_XLOGX = [0] + [
    int(v) for v in np.rint(np.arange(1, 1 << 15) * np.log2(np.arange(1, 1 << 15)) * 2**24)
]


def entropy_sum(counts: Counter) -> int:
    """n·H of a histogram, in fixed point."""
    return _XLOGX[sum(counts.values())] - sum(_XLOGX[n] for n in counts.values())


@dataclass
class Candidate:
    feature: int
    point: float
    born: int
    structure: list[Counter] = field(default_factory=lambda: [Counter(), Counter()])
    estimation: list[Counter] = field(default_factory=lambda: [Counter(), Counter()])

    def scaled_gain(self) -> int:
        left, right = self.structure
        return entropy_sum(left + right) - entropy_sum(left) - entropy_sum(right)

    def gain(self) -> float:
        return self.scaled_gain() / sum((self.structure[0] + self.structure[1]).values())

    def missing_right(self) -> bool:
        return sum(self.structure[1].values()) > sum(self.structure[0].values())


@dataclass
class Node:
    depth: int
    born: int
    counts: Counter = field(default_factory=Counter)
    errors: int = 0
    active: bool = False
    dims: list[int] = field(default_factory=list)
    candidates: list[list[Candidate]] = field(default_factory=list)
    reserved: int = 0
    rows: set[int] = field(default_factory=set)
    split: Candidate | None = None
    missing_right: bool = False
    left: int = -1

    def best(self) -> int:
        top = max(self.counts.values(), default=0)
        return min((y for y, n in self.counts.items() if n == top), default=-1)


class ReferenceTree:
    """One tree. `categorical` is the set of features without order."""

    def __init__(self, seed, categorical=(), **params):
        self.seed = int(seed)
        self.categorical = set(categorical)
        self.p = params
        self.nodes = [Node(0, 0)]
        self.n_seen = 0
        self.n_estimation = 0

    # -- routing

    def side(self, candidate, x, missing_right):
        v = x[candidate.feature]
        if v != v:
            return int(missing_right)
        if candidate.feature in self.categorical:
            return in_right_set(v, candidate.point)
        return int(v > candidate.point)

    def leaf_of(self, x):
        i = 0
        while self.nodes[i].split is not None:
            node = self.nodes[i]
            i = node.left + self.side(node.split, x, node.missing_right)
        return i

    # -- the fringe

    def leaf_bytes(self, n_dims, rows):
        cands = n_dims * self.p["n_splits"]
        return 4 * (2 * n_dims + 4 * cands + rows * (1 + 4 * cands)) + 24 * cands

    def fringe_bytes(self):
        return sum(
            self.leaf_bytes(len(n.dims), max(len(n.rows), n.reserved))
            for n in self.nodes
            if n.active
        )

    def fill_fringe(self, n_features):
        if len(self.nodes) + 2 > self.p["max_nodes"]:
            for node in self.nodes:
                node.active = False
            return
        while True:
            active = sum(n.active for n in self.nodes)
            waiting = [(i, n) for i, n in enumerate(self.nodes) if n.split is None and not n.active]
            if active >= (self.p["max_fringe"] or math.inf) or not waiting:
                return
            i, node = max(
                waiting,
                key=lambda w: (Fraction(w[1].errors, max(1, self.n_estimation - w[1].born)), -w[0]),
            )
            start = key(self.seed, DIMENSIONS, i)
            n_dims = min(1 + poisson(self.p["lam"], start), n_features)
            reserved = max(1, len(node.counts))
            size = self.leaf_bytes(n_dims, reserved)
            if active and self.fringe_bytes() + size > self.p["max_fringe_bytes"]:
                return
            pool = list(range(n_features))
            for a in range(n_dims):
                b = a + int(uniform(mix(start), a) * (n_features - a))
                pool[a], pool[b] = pool[b], pool[a]
            node.active = True
            node.dims = pool[:n_dims]
            node.candidates = [[] for _ in node.dims]
            node.reserved = reserved
            node.rows = set()

    # -- learning

    def learn(self, x, y, n_features):
        p = self.p
        i = self.leaf_of(x)
        node = self.nodes[i]
        if len(self.nodes) == 1 and not node.active:
            self.fill_fringe(n_features)
        u = uniform(key(self.seed, STREAM, self.n_seen), 0)
        self.n_seen += 1
        if u < p["p_ignore"]:
            return
        if u < p["p_ignore"] + (1.0 - p["p_ignore"]) * p["p_structure"]:
            self.learn_structure(i, node, x, y, n_features)
        else:
            self.learn_estimation(node, x, y)

    def learn_estimation(self, node, x, y):
        node.errors += node.best() != y
        node.counts[y] += 1
        self.n_estimation += 1
        if node.active:
            node.rows.add(y)
            for c in (c for dim in node.candidates for c in dim):
                c.estimation[self.side(c, x, c.missing_right())][y] += 1

    def learn_structure(self, i, node, x, y, n_features):
        if not node.active:
            return
        p = self.p
        node.rows.add(y)
        for j, (f, candidates) in enumerate(zip(node.dims, node.candidates)):
            v, k = x[f], len(candidates)
            if k == p["n_splits"] or v != v:
                continue
            known = v in [c.point for c in candidates]
            if f in self.categorical and (known or k % 2 == 1):
                v = subset(key(self.seed, SUBSETS, i), j * p["n_splits"] + k)
            elif known:
                continue
            candidates.append(Candidate(f, v, self.n_estimation))
        for c in (c for dim in node.candidates for c in dim):
            c.structure[self.side(c, x, c.missing_right())][y] += 1
        alpha = p["alpha0"] * p["alpha_growth"] ** node.depth
        valid = [
            c
            for dim in node.candidates
            for c in dim
            if min(sum(child.values()) for child in c.estimation) >= alpha
        ]
        if not valid:
            return
        best = max(valid, key=Candidate.gain)  # the first of equals
        if (
            best.gain() * 2.0**-24 > p["tau"]
            or sum(node.counts.values()) >= p["beta_factor"] * alpha
        ):
            self.split(node, best, n_features)

    def split(self, node, candidate, n_features):
        node.split = candidate
        node.missing_right = candidate.missing_right()
        node.left = len(self.nodes)
        node.active = False
        for side in (0, 1):
            counts = Counter({y: n for y, n in candidate.estimation[side].items() if n})
            child = Node(node.depth + 1, candidate.born, counts)
            child.errors = sum(counts.values()) - max(counts.values())
            self.nodes.append(child)
        self.fill_fringe(n_features)
