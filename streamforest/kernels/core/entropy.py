"""x·log₂ x in fixed point.

Information gain is kept up to date one count at a time. Floating-point sums kept that way drift; sums
of integers do not, so x·log₂ x is an integer in units of 2⁻²⁴ and a running sum always equals the sum
computed afresh.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel

UNIT = 2.0**-24
_SCALE = 2.0**24
_TABLED = 1 << 15


def _table() -> NDArray[np.int64]:
    x = np.arange(1, _TABLED + 1, dtype=np.float64)
    return np.concatenate(([0], np.rint(x * np.log2(x) * _SCALE).astype(np.int64)))


# Never written, but not read-only: that would be a type of its own beside the arrays that kernels find in
# their tables of addresses, and all that grows trees would be compiled twice.
XLOGX: NDArray[np.int64] = _table()
STEPS: NDArray[np.int64] = np.diff(XLOGX)


@kernel
def _beyond(n: int) -> int:
    x = float(n)
    return np.int64(np.rint(x * np.log2(x) * _SCALE))  # type: ignore[return-value]


@kernel
def xlogx(n: int, table: NDArray[np.int64]) -> int:
    """n·log₂ n in units of 2⁻²⁴; `table` is XLOGX.

    Beyond the table it goes on from the last entry in the steps of `xlogx_step`: the two functions
    agree to the last bit even where the compiler's logarithm and NumPy's do not.
    """
    if n < table.shape[0]:
        return table[n]  # type: ignore[no-any-return]
    end = table.shape[0] - 1
    return table[end] + _beyond(n) - _beyond(end)  # type: ignore[no-any-return]


@kernel
def xlogx_step(n: int, steps: NDArray[np.int64]) -> int:
    """What x·log₂ x gains when a count goes from n to n + 1; `steps` is STEPS."""
    if n < steps.shape[0]:
        return steps[n]  # type: ignore[no-any-return]
    return _beyond(n + 1) - _beyond(n)
