"""Arrays of a kernel are what was declared, or there is no table of them."""

from __future__ import annotations

import sys
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from streamforest.kernels.core.array_table import (
    Addresses,
    ArrayTable,
    array,
    declared,
    grown,
    unowned,
    zeros,
)

NODE = np.dtype([("left", "i4"), ("weight", "f8")], align=True)


class Trees(NamedTuple):
    node: Annotated[NDArray[np.void], array(NODE, "trees", "nodes")]
    count: Annotated[NDArray[np.int64], array(np.int64, "trees")]
    score: Annotated[NDArray[np.int64], array(np.int64, "trees")]
    plane: Annotated[NDArray[np.float32], array(np.float32, 2, "trees", "width")]


class Shared(NamedTuple):
    scale: Annotated[NDArray[np.float64], array(np.float64, "width")]
    spread: Annotated[NDArray[np.float64], array(np.float64, "width")]


TABLE = ArrayTable(Trees, Shared)
_view = TABLE.view


@njit
def _read(table):  # type: ignore[no-untyped-def]
    trees, shared = _view(table)
    trees.count[1] += 5
    trees.node[1, 2].left = 7
    return (
        trees.node[1, 2].weight,
        trees.plane[1, 2, 3],
        shared.spread.sum(),
        trees.plane.shape,
        shared.scale.shape,
    )


def _arrays() -> tuple[Trees, Shared]:
    return zeros(Trees, trees=3, nodes=4, width=5), zeros(Shared, width=5)


def test_views_read_and_write_the_arrays() -> None:
    trees, shared = _arrays()
    trees.node["weight"][1, 2] = 2.5
    trees.plane[1, 2, 3] = 0.25
    shared.spread[:] = 2.0
    answer = _read(TABLE.addresses(trees, shared))
    assert answer == (2.5, 0.25, 10.0, (2, 3, 5), (5,))
    assert trees.count.tolist() == [0, 5, 0]
    assert trees.node["left"][1, 2] == 7


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": np.zeros(3, np.int32)},
        {"count": np.zeros(4, np.int64)},
        {"count": np.zeros((3, 1), np.int64)},
        {"count": np.zeros(6, np.int64)[::2]},
        {"node": np.zeros((3, 4), [("left", "i4"), ("weight", "f8")])},  # not aligned
        {"plane": np.zeros((3, 3, 5), np.float32)},
        {"plane": np.zeros((2, 3, 6), np.float32)},  # as wide as nothing else is
    ],
)
def test_another_type_or_shape_is_refused(wrong: dict[str, Any]) -> None:
    trees, shared = _arrays()
    with pytest.raises(ValueError, match="not a contiguous"):
        TABLE.addresses(trees._replace(**wrong), shared)


def test_swapped_or_missing_arrays_are_refused() -> None:
    trees, shared = _arrays()
    with pytest.raises(ValueError, match="array 'node'"):
        TABLE.addresses((trees.count, trees.node, *trees[2:]), shared)
    for groups in ((trees,), (trees[:-1], shared), (shared, trees)):
        with pytest.raises(ValueError, match="arrays"):
            TABLE.addresses(*groups)


def test_a_table_is_brought_up_to_date() -> None:
    trees, _ = _arrays()
    table = ArrayTable(Trees)
    before = table.addresses(trees)
    after = grown(trees, nodes=9)
    table.update(before, trees, after)
    np.testing.assert_array_equal(before, table.addresses(after))
    with pytest.raises(ValueError, match="array 'count'"):  # as long as nothing else is
        table.update(before, after, after._replace(count=np.zeros(4, np.int64)))


def test_growth_follows_from_the_dimensions() -> None:
    trees, _ = _arrays()
    trees.node["left"] = 1
    larger = grown(trees, nodes=9)
    assert larger.node.shape == (3, 9)
    assert larger.node["left"].sum() == 12
    assert larger.count is trees.count
    assert list(declared(Trees)) == ["node", "count", "score", "plane"]


def test_a_table_is_made_again_only_for_other_arrays() -> None:
    trees, shared = _arrays()
    table = Addresses(TABLE, lambda trees, *others: (trees, Shared(*others)))
    first = table.of((trees, *shared))
    assert table.of((trees, *shared)) is first
    other = np.ones(5)
    second = table.of((trees, other, shared.spread))
    assert second is not first
    assert second[4, 0] == other.ctypes.data


@njit
def _write_unowned(trees, scale):  # type: ignore[no-untyped-def]
    same = unowned(trees)
    same.count[2] = 3
    same.node[0, 1].left = 4
    array = unowned(scale)
    array[1] += 2.0
    return same.plane.shape, array.sum()


def test_unowned_arrays_are_the_same_arrays() -> None:
    trees, shared = _arrays()
    counts = [sys.getrefcount(one) for one in (*trees, *shared)]
    for _ in range(5):
        shape, total = _write_unowned(trees, shared.scale)
    assert shape == (2, 3, 5)
    assert total == shared.scale[1] == 10.0
    assert trees.count.tolist() == [0, 0, 3]
    assert trees.node["left"][0, 1] == 4
    assert [sys.getrefcount(one) for one in (*trees, *shared)] == counts
