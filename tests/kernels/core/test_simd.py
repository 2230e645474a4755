"""Several sums at a time give the very bits of one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from streamforest.kernels.core.simd_distance import lane_distance, lane_distance4
from streamforest.kernels.core.simd_dot import add_times, dot, dot2, dot4, through
from streamforest.kernels.ncm.class_means import invert


@njit
def _products(x, c, j):  # type: ignore[no-untyped-def]
    one = np.array([dot(x, 0, c, j + k) for k in range(4)], np.float32)
    two = np.array(dot2(x, 0, c, j), np.float32)
    four = np.array(dot4(x, 0, c, j), np.float32)
    return one, two, four


@njit
def _distances(rows, slots, x, metric, kind):  # type: ignore[no-untyped-def]
    a, b, c, d = slots
    one = np.array([lane_distance(rows, s, x, 0, metric, kind) for s in slots], np.float32)
    four = np.array(lane_distance4(rows, a, b, c, d, x, 0, metric, kind), np.float32)
    return one, four


@njit
def _added(out, j, x, rows, w):  # type: ignore[no-untyped-def]
    for b in range(rows.shape[0]):
        add_times(out, j, x, rows[b], w[b])


@pytest.mark.parametrize("width", [8, 40])
def test_rows_added_up(width: int) -> None:
    rng = np.random.default_rng(width)
    x = rng.normal(size=(20, width + 8)).astype(np.float32)  # may be wider
    w = rng.normal(size=20).astype(np.float32)
    out = np.zeros((3, width), np.float32)
    _added(out, 1, x, np.arange(20, dtype=np.int32), w)
    expected = np.zeros(width, np.float32)
    for row, times in zip(x, w):
        expected += times * row[:width]
    assert out[1].tobytes() == expected.tobytes()
    assert not out[[0, 2]].any()


@pytest.mark.parametrize("width", [8, 16, 40, 104])
def test_products_of_several_rows(width: int) -> None:
    rng = np.random.default_rng(width)
    x = rng.normal(size=(1, width + 8)).astype(np.float32)  # may be wider
    c = rng.normal(size=(width, width)).astype(np.float32)
    expected = []
    for j in range(width - 3):
        one, two, four = _products(x, c, j)
        assert one[:2].tobytes() == two.tobytes()
        assert one.tobytes() == four.tobytes()
        np.testing.assert_allclose(one, c[j : j + 4] @ x[0, :width], rtol=1e-4, atol=1e-4)
        expected.append(one[0])
    out = np.zeros((3, width), np.float32)
    through(np.concatenate([x, 2 * x]), 0, 2, c, out, 1)
    assert out[1, : width - 3].tobytes() == np.array(expected, np.float32).tobytes()
    assert (out[2] == 2 * out[1]).all()
    assert (out[0] == 0).all()


@pytest.mark.parametrize("width", [8, 16, 104])
def test_distances_of_several_rows(width: int) -> None:
    rng = np.random.default_rng(width)
    x = rng.normal(size=(1, width)).astype(np.float32)
    rows = rng.normal(size=(30, width + 8)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    metric = np.abs(rng.normal(size=(2, 3, width + 8))).astype(np.float32)
    for _ in range(10):
        slots = tuple(rng.integers(0, 30, 4).tolist())
        one, four = _distances(rows, slots, x, metric, int(rng.integers(2)))
        assert one.tobytes() == four.tobytes()


@pytest.mark.parametrize("n", [0, 1, 2, 7, 33])
def test_the_inverse_is_one(n: int) -> None:
    rng = np.random.default_rng(n)
    z = rng.normal(size=(n + 5, n))
    a = z.T @ z + np.eye(n)
    low = invert(np.tril(a))
    np.testing.assert_allclose(low, np.tril(np.linalg.inv(a)), rtol=1e-9, atol=1e-12)
