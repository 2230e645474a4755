"""One NCM tree and the papers' strategies in plain Python, straight from their description.

Nodes are objects, rows are looked through whenever something is asked of them, entropies are counted
afresh each time. It shares no code with the kernels, only the definition of the random draws and of
x·log₂ x (`reference.consistent`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from reference.consistent import entropy_sum, key, mix, uniform

SPLIT, BAG, NODES = 16, 17, 18


def below(start: int, k: int, n: int) -> int:
    return int(uniform(start, k) * n)


@dataclass
class Row:
    number: int
    x: np.ndarray
    y: int


@dataclass(eq=False)
class Node:
    left: Node | None = None
    right: Node | None = None
    means: list[np.ndarray] = field(default_factory=list)
    sides: list[int] = field(default_factory=list)
    plane: np.ndarray | None = None  # of an SVM tree: left is where x·plane > half
    half: float = 0.0
    rows: list[Row] = field(default_factory=list)  # of a leaf
    due: int = 0

    def side_of(self, x: np.ndarray) -> int:
        if self.plane is not None:
            return 0 if float(x @ self.plane) > self.half else 1
        distances = [float(((x - mean) ** 2).sum()) for mean in self.means]
        return self.sides[distances.index(min(distances))]

    def child(self, x: np.ndarray) -> Node:
        assert self.left is not None
        assert self.right is not None
        return self.right if self.side_of(x) else self.left

    def below(self) -> Iterator[Node]:
        """All nodes in preorder."""
        yield self
        if self.left is not None and self.right is not None:
            yield from self.left.below()
            yield from self.right.below()

    def rows_below(self) -> list[Row]:
        return sorted((r for node in self.below() for r in node.rows), key=lambda r: r.number)

    def levels(self) -> Iterator[Node]:
        """All nodes, upper ones first."""
        queue = [self]
        while queue:
            node = queue.pop(0)
            yield node
            if node.left is not None and node.right is not None:
                queue += [node.left, node.right]


class Tree:
    """A tree with the euclidean metric."""

    def __init__(
        self,
        seed: int,
        mu: int,
        assignments: int = 0,
        bagged: bool = False,
        planes: bool = True,
        balanced: bool = False,
    ) -> None:
        self.seed, self.mu, self.assignments, self.bagged = seed, mu, assignments, bagged
        self.planes = (
            planes  # a split by two means is asked of the plane between them: ties go right
        )
        self.balanced = balanced
        self.tests = self.rounds = self.bag = self.grown_bag = self.kept = self.born = 0
        self.root = Node()
        self.made = [self.root]  # leaves are looked at in the order they were made in

    # ---- rows

    def times(self, row: Row, bag: int | None = None) -> int:
        """How often the bag holds a row: Poisson(1) from one uniform number."""
        if not self.bagged:
            return 1
        u = uniform(key(self.seed, BAG, self.bag if bag is None else bag), row.number)
        times, chance = 0, math.exp(-1)
        total = chance
        while u >= total and times < 12:
            times += 1
            chance /= times
            total += chance
        return times

    def counts(self, rows: Sequence[Row]) -> Counter[int]:
        out: Counter[int] = Counter()
        for row in rows:
            out[row.y] += self.times(row)
        return +out

    def leaf(self, x: np.ndarray, node: Node | None = None) -> Node:
        node = node or self.root
        while node.left is not None:
            node = node.child(x)
        return node

    def update_leaves(self, rows: Sequence[Row]) -> None:
        """ULS."""
        for row in rows:
            self.leaf(row.x).rows.append(row)

    # ---- growing

    def grow(self, top: Node, rows: list[Row], n_centroids: int) -> None:
        top.left = top.right = None
        top.means, top.sides, top.plane = [], [], None
        stack = [(top, rows)]
        while stack:
            node, rows = stack.pop()
            node.rows, node.due = rows, 0
            counts = self.counts(rows)
            total = sum(counts.values())
            if len(counts) < 2 or total <= 2 * self.mu:
                continue
            start = key(self.seed, SPLIT, self.tests)
            self.tests += 1
            if not self.split(node, rows, max(2, min(n_centroids, len(counts))), start):
                node.due = total + max(2, total // 2)
                continue
            node.rows = []
            node.left, node.right = Node(), Node()
            self.made += [node.left, node.right]
            sides = [node.side_of(row.x) for row in rows]
            stack.append((node.left, [r for r, side in zip(rows, sides) if side == 0]))
            stack.append((node.right, [r for r, side in zip(rows, sides) if side == 1]))

    def split(self, node: Node, rows: list[Row], k: int, start: int) -> bool:
        present = list(dict.fromkeys(row.y for row in rows if self.times(row) > 0))
        for j in range(k):
            other = j + below(start, j, len(present) - j)
            present[j], present[other] = present[other], present[j]
        node.means = [self.mean(rows, y) for y in present[:k]]
        node.sides = list(range(k))  # for now: each its own, to ask which is nearest
        cells = [Counter() for _ in range(k)]
        for row in rows:
            cells[node.side_of(row.x)][row.y] += self.times(row)
        if k == 2 and self.planes:
            node.sides = [0, 1]
            found = self.value(cells, node.sides) < entropy_sum(self.counts(rows))
            found &= min(sum(cell.values()) for cell in cells) > self.mu
        else:
            found = self.search(node, cells, mix(start))
        if not found:
            node.means, node.sides = [], []
        return found

    def mean(self, rows: list[Row], y: int) -> np.ndarray:
        own = [(self.times(row), row.x) for row in rows if row.y == y]
        return sum(w * x for w, x in own) / sum(w for w, _ in own)

    def halves(self, cells: list[Counter[int]], sides: Sequence[int]) -> list[Counter[int]]:
        return [sum((c for c, s in zip(cells, sides) if s == side), Counter()) for side in (0, 1)]

    def value(self, cells: list[Counter[int]], sides: Sequence[int]) -> int:
        return sum(entropy_sum(+half) for half in self.halves(cells, sides))

    def room(self, cells: list[Counter[int]], sides: Sequence[int]) -> int:
        return min(sum(half.values()) for half in self.halves(cells, sides))

    def drawn_sides(self, k: int, start: int, number: int) -> list[int]:
        words = -(-k // 32)
        bits = [int(uniform(start, number * words + w) * (1 << 32)) for w in range(words)]
        return [(bits[j // 32] >> (j % 32)) & 1 for j in range(k)]

    def search(self, node: Node, cells: list[Counter[int]], start: int) -> bool:
        k = len(cells)
        least = entropy_sum(+sum(cells, Counter()))
        best: list[int] | None = None
        if self.assignments:
            every = k <= 16 and (1 << (k - 1)) - 1 <= self.assignments
            tried = (
                [[((a + 1) >> j) & 1 for j in range(k)] for a in range((1 << (k - 1)) - 1)]
                if every
                else [self.drawn_sides(k, start, a) for a in range(self.assignments)]
            )
        else:
            tried = [self.flipped(cells, self.drawn_sides(k, start, s)) for s in range(2)]
        for sides in tried:
            if self.room(cells, sides) > self.mu and self.value(cells, sides) < least:
                least, best = self.value(cells, sides), sides
        if best is None:
            return False
        node.sides = best
        return True

    def flipped(self, cells: list[Counter[int]], sides: list[int]) -> list[int]:
        """Single cells go over one after the other, as long as that is better."""
        k, stale = len(cells), 0
        for step in range(8 * k):
            if stale == k:
                break
            j = step % k
            other = [1 - s if c == j else s for c, s in enumerate(sides)]
            room, now = self.room(cells, other), self.room(cells, sides)
            if now > self.mu:
                better = room > self.mu and self.value(cells, other) < self.value(cells, sides)
            else:
                better = room > now
            sides, stale = (other, 0) if better else (sides, stale + 1)
        return sides

    # ---- strategies

    def fresh(self, rows: list[Row], n_centroids: int) -> None:
        self.rounds += 1
        self.bag = self.grown_bag = self.rounds
        self.tests = self.rounds << 32
        self.born = max(row.number for row in rows) + 1
        self.kept = 0
        self.root = Node()
        self.made = [self.root]
        self.grow(self.root, rows, n_centroids)

    def igt(self, n_centroids: int) -> None:
        """Leaves that can now be split are."""
        for node in [node for node in self.made if node.left is None]:
            counts = self.counts(node.rows)
            n = sum(counts.values())
            if len(counts) > 1 and n > 2 * self.mu and n >= node.due:
                self.grow(node, sorted(node.rows, key=lambda row: row.number), n_centroids)

    def draw(self, pi: float, mode: str) -> list[Node]:
        """Splitting nodes by a race of exponential times; upper ones first."""
        places = list(self.root.below())
        splits = [q for q, node in enumerate(places) if node.left is not None]
        start = key(self.seed, NODES, self.rounds)

        def slow(node: Node) -> float:
            if mode == "uniform":
                return 1.0
            if mode == "size":
                return len(list(node.below())) + 1.0
            counts = self.counts(node.rows_below())
            leaves = sum(entropy_sum(self.counts(leaf.rows)) for leaf in node.below())
            n = sum(counts.values())
            return max(1e-6, (entropy_sum(counts) - leaves) * 2.0**-24 / n) if n else 1e-6

        time = {q: -math.log(1.0 - uniform(start, q)) * slow(places[q]) for q in splits}
        first = sorted(splits, key=lambda q: time[q])[: math.ceil(pi * len(splits) - 1e-9)]
        depth = {self.root: 0}
        for node in places:
            if node.left is not None and node.right is not None:
                depth[node.left] = depth[node.right] = depth[node] + 1
        return [places[q] for q in sorted(first, key=lambda q: (depth[places[q]], q))]

    def rtst(self, n_centroids: int, pi: float, mode: str = "quality") -> None:
        drawn = self.draw(pi, mode)
        order = list(self.root.below())
        inside: set[Node] = set()
        for node in sorted(drawn, key=order.index):
            if node not in inside:
                inside |= set(node.below())
                self.grow(node, node.rows_below(), n_centroids)
        if drawn:
            self.made = list(self.root.levels())
        self.igt(n_centroids)

    def rust(self, n_centroids: int, pi: float, new: list[int], mode: str = "quality") -> None:
        for node in self.draw(pi, mode):
            self.take_in(node, new, n_centroids)
        self.cut_small()
        self.made = list(self.root.levels())
        self.igt(n_centroids)

    def take_in(self, node: Node, new: list[int], n_centroids: int) -> None:
        rows = node.rows_below()
        counts = self.counts(rows)
        if not any(y in counts for y in new):
            return
        start = key(self.seed, SPLIT, self.tests)
        self.tests += 1
        self.refit(node, rows, counts, new, n_centroids, start)
        assert node.left is not None
        at_left = set(map(id, node.left.rows_below()))
        for row in rows:  # those that now go the other way go down again
            if node.side_of(row.x) != (0 if id(row) in at_left else 1):
                for leaf in node.below():
                    leaf.rows = [other for other in leaf.rows if other is not row]
                self.leaf(row.x, node.child(row.x)).rows.append(row)

    def refit(
        self,
        node: Node,
        rows: list[Row],
        counts: Counter[int],
        new: list[int],
        n_centroids: int,
        start: int,
    ) -> None:
        known = max(len(counts) - sum(y in counts for y in new), len(node.means))
        for c, y in enumerate(new):
            if y not in counts:
                continue
            known += 1
            j = len(node.means)
            if j < n_centroids:
                node.means.append(self.mean(rows, y))
                node.sides.append(0)
            else:
                j = below(start, c, known)
                if j >= len(node.means):
                    continue
                node.means[j] = self.mean(rows, y)
            values = []
            for side in (0, 1):
                node.sides[j] = side
                halves: list[Counter[int]] = [Counter(), Counter()]
                for row in rows:
                    halves[node.side_of(row.x)][row.y] += self.times(row)
                worst = min(sum(half.values()) for half in halves) == 0
                values.append(1 << 62 if worst else sum(entropy_sum(+half) for half in halves))
            node.sides[j] = 0 if values[0] <= values[1] else 1

    def cut_small(self) -> None:
        while True:
            for parent in self.root.levels():
                for leaf, sibling in ((parent.left, parent.right), (parent.right, parent.left)):
                    if leaf is None or sibling is None or leaf.left is not None:
                        continue
                    if sum(self.counts(leaf.rows).values()) < self.mu:
                        break
                else:
                    continue
                break
            else:
                return
            lost = leaf.rows
            parent.left, parent.right = sibling.left, sibling.right
            parent.means, parent.sides = sibling.means, sibling.sides
            parent.plane, parent.half = sibling.plane, sibling.half
            parent.rows, parent.due = sibling.rows, sibling.due
            for row in lost:
                self.leaf(row.x, parent).rows.append(row)

    # ---- hi-RF

    def out_of_bag_error(self, rows: Sequence[Row], weighted: bool = False) -> float:
        """Over rows in neither the bag that grew the splits nor the one that filled the leaves.

        Weighted by one over the chance to be outside, up to a factor that is the same for all.
        """
        total = wrong = 0.0
        for row in rows:
            grown = row.number < self.born and self.times(row, self.grown_bag) > 0
            if grown or self.times(row) > 0:
                continue
            counts = self.counts(self.leaf(row.x).rows)
            favoured = min(counts, key=lambda y: (-counts[y], y)) if counts else None
            bags = len({self.bag, self.grown_bag}) if row.number < self.born else 1
            weight = math.e ** (bags - 1) if weighted else 1.0
            total += weight
            wrong += weight * (favoured != row.y)
        return wrong / max(total, 1)

    def refill(self) -> None:
        """A fresh bag fills the leaves."""
        self.bag = self.rounds
        self.kept += 1
        for node in self.root.below():
            node.due = 0
