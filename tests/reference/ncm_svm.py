"""An SVM tree in plain Python (Ristin 2016, sections 3.2 and 4.4.2); strategies are those of `reference.ncm`.

A plane is fitted by stochastic gradient descent on the hinge loss with a penalty on its length, in double
precision and one vector at a time; what is random is defined as in the kernels.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from reference.consistent import entropy_sum, mix, uniform
from reference.ncm import Node, Row, Tree, below

GOLDEN = 0x9E3779B97F4A7C15
_WORST = 1 << 62


class SvmTree(Tree):
    """A tree of planes, by the columns as they are."""

    passes, penalty, n_planes = 6.0, 0.003, 20  # the forest's defaults

    def fitted(
        self,
        U: np.ndarray,
        signs: dict[int, float],
        rows: list[Row],
        start: int,
        plane: np.ndarray,
        bias: float,
    ) -> tuple[np.ndarray, float]:
        """The plane after descent; rows of classes without a sign have no part in it."""
        inside = [a for a, row in enumerate(rows) if self.times(row) > 0 and row.y in signs]
        steps = int(self.passes * min(max(len(rows), 100), 1_000))
        length = max(float((U[:64] ** 2).sum(axis=1).mean()), 1e-12)
        w = plane.astype(np.float64)
        for s in range(steps):
            a = inside[below(start, s, len(inside))]
            rate = 0.5 / length / (1.0 + 3.0 * s / steps)
            sign = signs[rows[a].y]
            wrong = sign * (U[a] @ w + bias) < 1.0
            w = w * (1.0 - rate * self.penalty * length)
            if wrong:
                step = rate * sign * self.times(rows[a])
                w = w + step * U[a]
                bias += step
        return w, bias

    def halves_of(self, rows: list[Row], right: np.ndarray) -> list[Counter[int]]:
        halves: list[Counter[int]] = [Counter(), Counter()]
        for row, side in zip(rows, right.tolist()):
            halves[side][row.y] += self.times(row)
        return [+half for half in halves]

    def split(self, node: Node, rows: list[Row], k: int, start: int) -> bool:
        present = list(dict.fromkeys(row.y for row in rows if self.times(row) > 0))
        X = np.array([row.x for row in rows])
        mean = X.mean(axis=0)
        least = entropy_sum(self.counts(rows))
        for a in range(self.n_planes):
            draw = mix((start + (a + 1) * GOLDEN) % (1 << 64))
            signs = {y: 1.0 if uniform(draw, c) < 0.5 else -1.0 for c, y in enumerate(present)}
            if len(set(signs.values())) == 1:  # one class goes to the other side
                n = len(present)
                odd = present[below(draw, n, n)]
                signs[odd] = -signs[odd]
            nothing = np.zeros(X.shape[1])
            w, bias = self.fitted(X - mean, signs, rows, mix(draw), nothing, 0.0)
            halves = self.halves_of(rows, ~((X - mean) @ w + bias > 0) * 1)
            value = sum(entropy_sum(half) for half in halves)
            if min(sum(half.values()) for half in halves) > self.mu and value < least:
                least, node.plane, node.half = value, w, float(mean @ w) - bias
        return node.plane is not None

    def refit(
        self,
        node: Node,
        rows: list[Row],
        counts: Counter[int],
        new: list[int],
        n_centroids: int,
        start: int,
    ) -> None:
        """Each new class on either side; a known class has the side that most of its rows go to."""
        X = np.array([row.x for row in rows])
        mean = X.mean(axis=0)
        lean: Counter[int] = Counter()
        for row in rows:
            lean[row.y] += self.times(row) * (1 if node.side_of(row.x) == 0 else -1)
        waiting = {y for y in new if y in counts}
        signs = {y: 1.0 if lean[y] > 0 else -1.0 for y in counts if y not in waiting}
        for c, y in enumerate(new):
            if y not in counts:
                continue
            least = _WORST
            assert node.plane is not None
            before, bias_before = node.plane, float(mean @ node.plane) - node.half
            best = 1.0
            for way, sign in enumerate((1.0, -1.0)):
                draw = mix((start + (2 * c + way + 1) * GOLDEN) % (1 << 64))
                signs[y] = sign
                w, bias = self.fitted(X - mean, signs, rows, draw, before, bias_before)
                halves = self.halves_of(rows, ~((X - mean) @ w + bias > 0) * 1)
                if min(sum(half.values()) for half in halves) == 0:
                    continue
                value = sum(entropy_sum(half) for half in halves)
                if value < least:
                    least, best = value, sign
                    node.plane, node.half = w, float(mean @ w) - bias
            signs[y] = best
