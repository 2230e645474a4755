"""The parts of a split test and of a distance against their plain definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numba import njit

from streamforest.kernels.core.entropy import STEPS, UNIT, XLOGX
from streamforest.kernels.core.simd_distance import CAP, GAP, SCALE, lane_distance
from streamforest.kernels.stream.layout import bucket
from streamforest.kernels.stream.scan import NATS, scan_category, scan_number
from streamforest.kernels.stream.sort import LABEL_BITS, key_bits, pack_key, sort_keys


@njit
def _distance(rows, slot, x, r, metric, kind):  # type: ignore[no-untyped-def]
    return lane_distance(rows, slot, x, r, metric, kind)


def _entropy_sum(labels: list[int]) -> float:
    counts = np.bincount(labels)
    counts = counts[counts > 0]
    return float(len(labels) * np.log2(len(labels)) - (counts * np.log2(counts)).sum())


def _gain(left: list[int], right: list[int]) -> float:
    return _entropy_sum(left + right) - _entropy_sum(left) - _entropy_sum(right)


@pytest.mark.parametrize("n", [1, 2, 17, 40, 41, 300, 512])
def test_keys_sort_as_their_values(n: int) -> None:
    rng = np.random.default_rng(n)
    for scale in (1e-30, 1.0, 1e30):
        values = (rng.normal(size=n) * scale).astype(np.float32)
        values[rng.random(n) < 0.3] = np.float32(rng.normal() * scale)
        labels = rng.integers(0, 500, n)
        bits = values.view(np.int32)
        keys = np.array([pack_key(int(b), int(y)) for b, y in zip(bits, labels)])
        sort_keys(keys, np.empty(n, np.int64), n)
        back = np.array([key_bits(int(k)) for k in keys], np.int32).view(np.float32)
        np.testing.assert_array_equal(back, np.sort(values))
        pairs = sorted(zip(values.tolist(), labels.tolist()))
        found = sorted(zip(back.tolist(), (keys & ((1 << LABEL_BITS) - 1)).tolist()))
        assert found == pairs


@pytest.mark.parametrize("seed", range(5))
def test_every_threshold_is_looked_at(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, classes = 60, 4
    values = np.round(rng.normal(size=n), 1).astype(np.float32) + 0.0  # the ring has no -0.0
    labels = (values > rng.normal(size=n)).astype(int) + 2 * rng.integers(0, 2, n)
    keys = np.array([pack_key(int(b), int(y)) for b, y in zip(values.view(np.int32), labels)])
    sort_keys(keys, np.empty(n, np.int64), n)
    low, high = np.float32(-0.75), np.float32(1.05)
    limits = [pack_key(int(v.view(np.int32)), 0) >> LABEL_BITS for v in (low, high)]
    gain, at, looked = scan_number(keys, n, *limits, classes, STEPS, XLOGX, 0)
    order = np.unique(values)
    assert looked == len(order) - 1
    best = max(
        _gain(labels[values <= a].tolist(), labels[values > a].tolist())
        for a, b in itertools.pairwise(order)
        if b > low and a < high
    )
    assert gain * UNIT == pytest.approx(best, abs=1e-4)
    assert at >= 0


@pytest.mark.parametrize("seed", range(5))
def test_two_classes_get_the_best_of_all_sets_of_categories(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, values = 80, 6
    codes = rng.integers(0, values, n)
    labels = (rng.random(n) < rng.random(values)[codes]).astype(np.int64)
    spread = np.zeros(64, np.int64)
    spread[:values] = 1
    gain, mask, right, cuts, found = scan_category(
        codes, labels, n, spread, 2, np.uint64(1), XLOGX, -(1 << 60)
    )
    best = max(
        _gain(labels[inside].tolist(), labels[~inside].tolist())
        for size in range(1, values)
        for chosen in itertools.combinations(range(values), size)
        for inside in [np.isin(codes, chosen)]
    )
    price = 0.5 * (values - 2) / NATS * UNIT
    assert gain * UNIT == pytest.approx(best - price, abs=1e-4)
    assert found == 1
    assert cuts == values - 1
    goes_right = np.array([int(mask) >> int(c) & 1 for c in codes])
    assert goes_right.sum() == right


def test_categories_beyond_64_come_apart_somewhere() -> None:
    assert [bucket(c, 5) for c in range(64)] == list(range(64))
    for other in (64, 70, 999):
        together = [i for i in range(200) if bucket(other, i) == bucket(3, i)]
        assert len(together) < 20


@pytest.mark.parametrize("width", [8, 64, 256])
def test_distance_is_the_sum_of_its_lanes(width: int) -> None:
    rng = np.random.default_rng(width)
    rows = rng.normal(size=(3, width)).astype(np.float32)
    x = rng.normal(size=(2, width)).astype(np.float32)
    metric = np.zeros((2, 3, width), np.float32)
    metric[:, SCALE] = rng.random((2, width))
    metric[:, CAP] = np.inf
    metric[:, GAP] = rng.random((2, width))
    rows[1, 3] = np.nan  # missing
    metric[1, :, 5] = 1.0, 0.5, 2.0  # a category
    square = ((x[1] - rows[1]) * metric[1, SCALE]) ** 2
    parts = np.where(square <= metric[1, CAP], square, metric[1, GAP])
    lanes = np.zeros(8, np.float32)
    for f in range(0, width, 8):
        lanes += parts[f : f + 8]
    lanes = lanes[:4] + lanes[4:]
    lanes = lanes[:2] + lanes[2:]
    assert _distance(rows, 1, x, 1, metric, 1) == lanes[0] + lanes[1]
