"""The kernels against the plain re-telling of the algorithm: the same tree, node by node."""

from __future__ import annotations

import numpy as np
import pytest
from reference.consistent import Node, ReferenceTree

from streamforest import LEARN, ConsistentForestClassifier

N = 20_000
N_TREES = 1


def events(seed: int) -> tuple[list[dict[str, object]], list[int]]:
    """Five classes, of which two appear late; numbers, steps, a category; values that are missing."""
    rng = np.random.default_rng(seed)
    xs, ys = [], []
    for n in range(N):
        y = int(rng.integers(0, 3 if n < 4_000 else 5))
        x: dict[str, object] = {
            "a": float(rng.normal(y, 1.0)),
            "b": float(np.round(rng.normal(y % 2, 1.0))),
            "c": "uvw"[(y + int(rng.random() < 0.3)) % 3],
        }
        if n >= 7_000:
            x["d"] = float(rng.normal(-y, 2.0))
        if rng.random() < 0.15:
            del x["abc"[int(rng.integers(0, 3))]]
        xs.append(x)
        ys.append(y)
    return xs, ys


CASES = {
    "unbounded": {},
    "bounded in leaves": {"max_fringe": 7},
    "bounded in bytes": {"max_fringe_bytes": 12_000},
    "one leaf at a time": {"max_fringe_bytes": 1},
    "alpha holds back": {"alpha0": 40.0, "alpha_growth": 1.3, "tau": 0.0},
    "beta forces": {"tau": 10.0, "beta_factor": 4.0},
    "tau decides": {"tau": 0.08, "beta_factor": 1e6},
    "third stream": {"p_ignore": 0.3, "p_structure": 0.4},
    "full tree": {"max_nodes": 31},
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_same_tree_node_by_node(case: str, seed: int) -> None:
    params = {
        "lam": 1.5,
        "n_splits": 4,
        "tau": 0.02,
        "alpha0": 5.0,
        "alpha_growth": 1.05,
        "beta_factor": 20.0,
        "p_structure": 0.5,
        "p_ignore": 0.0,
        "max_fringe": None,
        "max_fringe_bytes": 10**9,
        "max_nodes": 4_000,
    } | CASES[case]
    model = ConsistentForestClassifier(n_trees=N_TREES, seed=seed, **params)
    xs, ys = events(seed)
    model.advance(xs, ys, op=np.full(N, LEARN))

    names = model._features.names
    assert sorted(names) == ["a", "b", "c", "d"]
    first = model._features.categories[names.index("c")]
    order = {label: k for k, label in enumerate(model.classes_)}
    width = np.zeros(N, np.int64)
    rows = []
    known: set[str] = set()
    for n, x in enumerate(xs):
        known |= set(x)
        width[n] = len(known)
        row = [float("nan")] * 4
        for name, value in x.items():
            row[names.index(name)] = float(first[value]) if name == "c" else value
        rows.append(row)

    assert model.summary()["nodes"] > 5
    for t in range(N_TREES):
        tree = ReferenceTree(model._trees.tree["seed"][t], categorical={names.index("c")}, **params)
        for n in range(N):
            tree.learn(rows[n], order[ys[n]], int(width[n]))
        compare(model, t, tree)


def compare(model: ConsistentForestClassifier, t: int, tree: ReferenceTree) -> None:
    trees = model._trees
    assert trees.tree["n_nodes"][t] == len(tree.nodes)
    assert trees.tree["n_estimation"][t] == tree.n_estimation
    assert trees.tree["n_active"][t] == sum(node.active for node in tree.nodes)
    assert trees.tree["fringe_bytes"][t] == tree.fringe_bytes()
    for i, expected in enumerate(tree.nodes):
        node, leaf = trees.node[t, i], trees.leaf[t, i]
        assert node["depth"] == expected.depth
        if expected.split is not None:
            assert node["feature"] == expected.split.feature
            assert node["threshold"] == expected.split.point
            assert node["left"] == expected.left
            assert node["missing_right"] == expected.missing_right
            continue
        assert node["feature"] == -1
        at, room, k = leaf["hist"], leaf["room"], leaf["n_classes"]
        classes = trees.hist[t, at : at + k].tolist()
        counts = trees.hist[t, at + room : at + room + k].tolist()
        assert dict(zip(classes, counts)) == dict(expected.counts)
        assert leaf["best"] == expected.best()
        assert leaf["errors"] == expected.errors
        assert leaf["born"] == expected.born
        assert bool(leaf["active"]) == expected.active
        if expected.active and leaf["block"] >= 0:
            compare_candidates(model, t, i, expected)


def compare_candidates(model: ConsistentForestClassifier, t: int, i: int, expected: Node) -> None:
    """Dimensions, points and all counts of an active leaf."""
    trees, leaf, m = model._trees, model._trees.leaf[t, i], model.n_splits
    d, at = int(leaf["n_dims"]), int(leaf["block"])
    block = trees.block[t]
    assert block[at : at + d].tolist() == expected.dims
    assert block[at + d : at + 2 * d].tolist() == [len(c) for c in expected.candidates]
    classes = at + 2 * d
    rows = classes + int(leaf["row_room"]) + 4 * d * m
    for j, candidates in enumerate(expected.candidates):
        for s, c in enumerate(candidates):
            k = j * m + s
            assert trees.point[t, leaf["points"] + k] == c.point
            assert trees.born[t, leaf["points"] + k] == c.born
            assert trees.score[t, leaf["points"] + k] == c.scaled_gain()
            for r in range(int(leaf["rows"])):
                row, y = rows + r * 4 * d * m, int(block[classes + r])
                for stream, counts in enumerate((c.structure, c.estimation)):
                    for side in (0, 1):
                        assert block[row + 2 * d * m * stream + 2 * k + side] == counts[side][y]
