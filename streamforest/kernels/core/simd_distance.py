"""Distances in eight explicit lanes.

A sum of floats depends on its order, and the bits of this package may not depend on what a compiler
makes of a loop. So the order is written down: eight running sums, feature f in sum f mod 8, added up
pairwise at the end. Loops over eight variables say the same, but numba leaves them scalar; here the
vector instructions are spelled out, and a distance over 256 features takes 40 ns instead of 260.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 8
SCALE, CAP, GAP = range(3)
"""Rows of a metric. What feature f adds to a distance is u² with u = SCALE·difference where that is at
most CAP, else GAP: a category differs or not, and a value that is missing says nothing about closeness,
so it counts as much as two rows differ on average."""


def _distances(context: Any, builder: Any, sig: Any, args: Any, slots: int) -> list[Any]:
    """Squared distances of `slots` rows: arguments are rows, the slots, x, r, metric, kind."""
    word = context.get_value_type(types.intp)
    lanes = ir.VectorType(ir.FloatType(), LANES)
    of_x, of_metric = 1 + slots, 3 + slots

    def start(which: int, *index: Any) -> tuple[Any, Any]:
        """Pointer to the beginning of a row of an argument, and the row's width."""
        array = context.make_array(sig.args[which])(context, builder, args[which])
        shape = cgutils.unpack_tuple(builder, array.shape)  # type: ignore[no-untyped-call]
        at = ir.Constant(word, 0)
        for size, i in zip(shape, index):
            at = builder.add(builder.mul(at, size), i)
        return builder.gep(array.data, [builder.mul(at, shape[-1])]), shape[-1]

    def as_word(which: int) -> Any:
        return context.cast(builder, args[which], sig.args[which], types.intp)

    def load(pointer: Any, at: Any) -> Any:
        address = builder.bitcast(builder.gep(pointer, [at]), lanes.as_pointer())
        return builder.load(address, align=4)

    rows = [start(0, as_word(1 + k))[0] for k in range(slots)]
    event, width = start(of_x, as_word(of_x + 1))
    scale, cap, gap = (
        start(of_metric, as_word(of_metric + 1), ir.Constant(word, row))[0]
        for row in (SCALE, CAP, GAP)
    )
    zero = ir.Constant(lanes, [0.0] * LANES)
    sums = [cgutils.alloca_once_value(builder, zero) for _ in rows]  # type: ignore[no-untyped-call]
    for total in sums:
        builder.store(zero, total)
    zero_word, step = ir.Constant(word, 0), ir.Constant(word, LANES)
    with cgutils.for_range_slice(builder, zero_word, width, step, word) as (f, _):
        value, scaled_by, limit, otherwise = (
            load(pointer, f) for pointer in (event, scale, cap, gap)
        )
        for row, total in zip(rows, sums):
            u = builder.fmul(builder.fsub(value, load(row, f)), scaled_by)
            square = builder.fmul(u, u)
            near = builder.fcmp_ordered("<=", square, limit)
            part = builder.select(near, square, otherwise)
            builder.store(builder.fadd(builder.load(total), part), total)
    return sums_of(builder, [builder.load(total) for total in sums])


def sums_of(builder: Any, vectors: list[Any]) -> list[Any]:
    """The lanes of each vector added up pairwise: the upper half to the lower one, until one is left.

    Four vectors go together: turned round after the first step, their sums are the lanes of one.
    """

    def pick(a: Any, b: Any, *which: int) -> Any:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(which)), list(which))
        return builder.shuffle_vector(a, b, mask)

    def lane(vector: Any, k: int) -> Any:
        return builder.extract_element(vector, ir.Constant(ir.IntType(32), k))

    fours = [builder.fadd(pick(v, v, 0, 1, 2, 3), pick(v, v, 4, 5, 6, 7)) for v in vectors]
    out = []
    while len(fours) >= 4:
        a, b, c, d = fours[:4]
        del fours[:4]
        ab, cd = pick(a, b, 0, 4, 1, 5), pick(c, d, 0, 4, 1, 5)  # a0 b0 a1 b1, c0 d0 c1 d1
        ab2, cd2 = pick(a, b, 2, 6, 3, 7), pick(c, d, 2, 6, 3, 7)
        ab, cd = builder.fadd(ab, ab2), builder.fadd(cd, cd2)  # a0+a2 b0+b2 a1+a3 b1+b3, …
        total = builder.fadd(pick(ab, cd, 0, 1, 4, 5), pick(ab, cd, 2, 3, 6, 7))
        out += [lane(total, k) for k in range(4)]
    for v in fours:
        two = builder.fadd(pick(v, v, 0, 1), pick(v, v, 2, 3))
        out.append(builder.fadd(lane(two, 0), lane(two, 1)))
    return out


@intrinsic
def _lane_distance(
    typingctx: Any, rows: Any, slot: Any, x: Any, r: Any, metric: Any, kind: Any
) -> Any:
    """Squared distance of row `slot` of `rows` from row `r` of `x`, by metric `kind`.

    All are float32 and contiguous; the widths are multiples of LANES, and `rows` and `metric` are at
    least as wide as `x`. Padding has a SCALE of zero and adds nothing.
    """
    signature = types.float32(rows, slot, x, r, metric, kind)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _distances(context, builder, sig, args, 1)[0]

    return signature, codegen


@intrinsic
def _lane_distance4(
    typingctx: Any,
    rows: Any,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    x: Any,
    r: Any,
    metric: Any,
    kind: Any,
) -> Any:
    """The distances of rows `a` to `d`: the same numbers as four calls of `lane_distance`.

    Four sums at a time do not wait for each other's additions, and read event and metric once.
    """
    four = types.UniTuple(types.float32, 4)  # type: ignore[no-untyped-call]
    signature = four(rows, a, b, c, d, x, r, metric, kind)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        found = _distances(context, builder, sig, args, 4)
        return context.make_tuple(builder, sig.return_type, found)

    return signature, codegen


lane_distance: Callable[..., float] = _lane_distance
lane_distance4: Callable[..., tuple[float, float, float, float]] = _lane_distance4
"""What kernels call: without the typing context that numba adds."""
