"""Kernels called by their address give what linked ones give, errors included."""

from __future__ import annotations

import numpy as np
import pytest
from numba import types
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from streamforest.kernels.core.by_address import CalledByAddress
from streamforest.kernels.core.compiling import kernel

_NUMBERS = np.zeros(0)
RULES = CalledByAddress(types.float64, lambda: (_NUMBERS, 0))
_call = RULES.call


@kernel
def total(x: NDArray[np.float64], least: int) -> float:
    if x.shape[0] < least:
        raise ValueError("too few")
    return x.sum()


@kernel
def largest(x: NDArray[np.float64], least: int) -> float:
    return x.max()


@kernel
def by_rule(address: int, x: NDArray[np.float64]) -> float:
    return 1.0 + _call(address, (x, 2))


@kernel
def wrongly(address: int, x: NDArray[np.float64]) -> float:
    return _call(address, (2.5, x))


def test_the_rule_behind_the_address_is_called() -> None:
    x = np.array([1.0, 5.0, 2.0])
    assert by_rule(RULES.address(total), x) == 9.0
    assert by_rule(RULES.address(largest), x) == 6.0
    assert RULES.address(total) == RULES.address(total) != RULES.address(largest)


@kernel
def count(x: NDArray[np.float64], least: int) -> int:
    return x.shape[0]


def test_a_kernel_that_returns_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="returns int64, callers expect float64"):
        RULES.address(count)


def test_an_error_comes_through() -> None:
    with pytest.raises(ValueError, match="too few"):
        by_rule(RULES.address(total), np.zeros(1))


def test_other_arguments_are_refused_when_the_caller_is_compiled() -> None:
    with pytest.raises(NumbaError):
        wrongly(RULES.address(total), np.zeros(1))
