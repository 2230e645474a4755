"""Many arrays as one: a table of addresses.

Handing an array to a compiled function costs a tenth of a microsecond, one of records a quarter, and a
forest has dozens. Where one event is one call that is more than the trees take. So kernels get a table of
addresses and shapes, made anew only when an array is exchanged for another; whoever makes a table keeps
the arrays alive as long as it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel

_MOST_AXES = 3


def table_of(arrays: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """A row for each array: its address, then its shape."""
    out = np.zeros((len(arrays), 1 + _MOST_AXES), np.int64)
    for row, array in zip(out, arrays):
        if not array.flags.c_contiguous:
            raise ValueError(f"an array of shape {array.shape} is not contiguous")
        row[: 1 + array.ndim] = array.ctypes.data, *array.shape
    return out


class Seats:
    """The table of a forest, made anew when one of its arrays has been exchanged for another."""

    def __init__(self, spread: Callable[..., Sequence[NDArray[Any]]]) -> None:
        self._spread = spread  # from what the forest holds to the arrays in the order of the table
        self._made: tuple[tuple[Any, ...], NDArray[np.int64]] = (), np.zeros((0, 0), np.int64)

    def table(self, held: tuple[Any, ...]) -> NDArray[np.int64]:
        """The table of what a forest holds now."""
        made = self._made
        if not made[0] or not all(map(is_, held, made[0])):
            made = self._made = held, table_of(self._spread(*held))  # at once: threads ask too
        return made[1]


@intrinsic
def _pointer(typingctx: Any, address: Any) -> Any:
    """An address as a pointer."""
    signature = types.voidptr(types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return signature, codegen


pointer: Callable[..., Any] = _pointer
"""What kernels call: without the typing context that numba adds."""


@kernel
def borrowed(array: NDArray[Any]) -> NDArray[Any]:
    """The same array without an owner, for whoever is done before its owner is.

    Each time an owned array is handed on or taken out of a tuple its references are counted up and down,
    in loops too; one that is known to have no owner is not counted.
    """
    return carray(pointer(array.ctypes.data), array.shape, array.dtype)
