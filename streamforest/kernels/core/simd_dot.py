"""Inner products in eight explicit lanes, for one row or for several at once.

As in `simd_distance`, the order of every sum is written down: eight running sums, feature f in sum f mod 8,
each step one fused multiply-add, added up pairwise at the end. Several rows at once give the same numbers as
one after the other, and keep as many sums going while memory is on its way: a single sum waits four cycles
for each addition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from streamforest.kernels.core.compiling import kernel
from streamforest.kernels.core.simd_distance import LANES, sums_of


def _row(
    context: Any, builder: Any, sig: Any, args: Any, which: int, index: int
) -> tuple[Any, Any]:
    """Pointer to row `args[index]` of the matrix `args[which]`, and the matrix' width."""
    word = context.get_value_type(types.intp)
    array = context.make_array(sig.args[which])(context, builder, args[which])
    width = cgutils.unpack_tuple(builder, array.shape)[1]  # type: ignore[no-untyped-call]
    at = context.cast(builder, args[index], sig.args[index], types.intp)
    assert word == at.type
    return builder.gep(array.data, [builder.mul(at, width)]), width


def _dots(context: Any, builder: Any, x: Any, c: Any, width: Any, rows: int) -> list[Any]:
    """The products of the row at `x` with `rows` rows at `c`, each of `width` numbers."""
    word = context.get_value_type(types.intp)
    lanes = ir.VectorType(ir.FloatType(), LANES)
    kind = ir.FunctionType(lanes, [lanes] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")  # type: ignore[no-untyped-call]

    def load(pointer: Any, at: Any) -> Any:
        address = builder.bitcast(builder.gep(pointer, [at]), lanes.as_pointer())
        return builder.load(address, align=4)

    starts = [c]
    for _ in range(rows - 1):
        starts.append(builder.gep(starts[-1], [width]))
    zero = ir.Constant(lanes, [0.0] * LANES)
    sums = [cgutils.alloca_once_value(builder, zero) for _ in starts]  # type: ignore[no-untyped-call]
    for total in sums:
        builder.store(zero, total)
    start, step = ir.Constant(word, 0), ir.Constant(word, LANES)
    with cgutils.for_range_slice(builder, start, width, step, word) as (f, _):
        value = load(x, f)
        for total, row in zip(sums, starts):
            builder.store(builder.call(fma, [value, load(row, f), builder.load(total)]), total)
    return sums_of(builder, [builder.load(total) for total in sums])


@intrinsic
def _dot(typingctx: Any, x: Any, r: Any, c: Any, j: Any) -> Any:
    """Inner product of row `r` of `x` with row `j` of `c`.

    Both are float32, contiguous, with widths that are multiples of LANES; `x` is at least as wide as
    `c`, whose width counts.
    """
    signature = types.float32(x, r, c, j)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        left, _ = _row(context, builder, sig, args, 0, 1)
        right, width = _row(context, builder, sig, args, 2, 3)
        return _dots(context, builder, left, right, width, 1)[0]

    return signature, codegen


def _several(rows: int) -> Callable[..., Any]:
    """The products with `rows` rows of `c` from row `j` on: the same numbers as so many calls of `dot`."""

    @intrinsic
    def products(typingctx: Any, x: Any, r: Any, c: Any, j: Any) -> Any:
        signature = types.UniTuple(types.float32, rows)(x, r, c, j)  # type: ignore[no-untyped-call]

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            left, _ = _row(context, builder, sig, args, 0, 1)
            right, width = _row(context, builder, sig, args, 2, 3)
            values = _dots(context, builder, left, right, width, rows)
            return context.make_tuple(builder, sig.return_type, values)

        return signature, codegen

    return products


dot: Callable[..., float] = _dot
dot2: Callable[..., tuple[float, float]] = _several(2)
dot4: Callable[..., tuple[float, float, float, float]] = _several(4)
dot8: Callable[..., tuple[float, ...]] = _several(8)
"""What kernels call: without the typing context that numba adds."""


@intrinsic
def _add_times(typingctx: Any, out: Any, j: Any, x: Any, r: Any, w: Any) -> Any:
    """Add `w` times row `r` of `x` to row `j` of `out`, whose width counts.

    Both are float32, contiguous, with widths that are multiples of LANES; `x` is at least as wide. The
    same numbers as a loop: product and sum are rounded each. Compilers leave that loop as it is,
    since what it writes might be what says which row to read.
    """
    signature = types.void(out, j, x, r, types.float32)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = context.get_value_type(types.intp)
        lanes = ir.VectorType(ir.FloatType(), LANES)
        to, width = _row(context, builder, sig, args, 0, 1)
        of, _ = _row(context, builder, sig, args, 2, 3)
        times = ir.Constant(lanes, ir.Undefined)
        for k in range(LANES):
            times = builder.insert_element(times, args[4], ir.Constant(ir.IntType(32), k))
        start, step = ir.Constant(word, 0), ir.Constant(word, LANES)
        with cgutils.for_range_slice(builder, start, width, step, word) as (f, _):
            at = [builder.bitcast(builder.gep(p, [f]), lanes.as_pointer()) for p in (to, of)]
            total, value = (builder.load(p, align=4) for p in at)
            builder.store(builder.fadd(total, builder.fmul(times, value)), at[0], align=4)
        return context.get_dummy_value()

    return signature, codegen


add_times: Callable[..., None] = _add_times


@kernel
def through(
    x: NDArray[np.float32],
    r: int,
    n: int,
    matrix: NDArray[np.float32],
    out: NDArray[np.float32],
    row: int,
) -> None:
    """`n` rows of `x` from row `r` on through a matrix of as many rows as they are wide, to rows of
    `out` from `row` on. A few rows of the matrix at a time, so that it is read once for all.
    """
    for f in range(0, matrix.shape[0], LANES):
        for j in range(n):
            parts = dot8(x, r + j, matrix, f)
            for k in range(LANES):
                out[row + j, f + k] = parts[k]
