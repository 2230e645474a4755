"""The arrays of a kernel, declared once: name, type and dimensions.

A group of arrays is a NamedTuple whose fields are annotated with what each array must be:

    class Trees(NamedTuple):
        node: Annotated[NDArray[np.void], array(NODE, "trees", "nodes")]
        count: Annotated[NDArray[np.int64], array(np.int64, "trees")]

Allocation, growth, checks, the table of addresses that a kernel gets and the views that it makes of that
table all follow from the declaration. An array of another type, with other dimensions or in another's
place is an error when the table is made, before a kernel could misread it.

Why a table: handing an array to a compiled function costs a tenth of a microsecond, one of records a
quarter, and a forest has dozens. Where one event is one call that is more than the trees take. So kernels
get one table of addresses and shapes, made again only when an array was replaced by another. Whoever makes
a table keeps the arrays alive as long as it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple, TypeVar, get_type_hints

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj
from numpy.typing import NDArray

_MAX_AXES = 3
ADDRESS, SIZE = 0, 1
"""A row of a table: the address of an array, then its size along each axis."""

ROW = SIZE + _MAX_AXES
"""Numbers in a row of a table."""

_REST = tuple((0,) * (_MAX_AXES - axes) for axes in range(_MAX_AXES + 1))

# numba has no types of these
_tuple_of: Any = types.BaseTuple.from_types
_make_array: Any = arrayobj.make_array
_populate_array: Any = arrayobj.populate_array
_pack: Any = cgutils.pack_array
_unpack: Any = cgutils.unpack_tuple
_null: Any = cgutils.get_null_value

Group = TypeVar("Group", bound=tuple[Any, ...])


class Declared(NamedTuple):
    """What an array must be. Dimensions of one name are of one size in all arrays of a table."""

    dtype: np.dtype[Any]
    dimensions: tuple[int | str, ...]


def array(dtype: Any, *dimensions: int | str) -> Declared:
    """The declaration of an array, for `Annotated`."""
    if not 1 <= len(dimensions) <= _MAX_AXES:
        raise ValueError(f"{len(dimensions)} dimensions: 1 to {_MAX_AXES} are possible")
    return Declared(np.dtype(dtype), dimensions)


_declarations: dict[type[Any], dict[str, Declared]] = {}  # since evaluating hints takes long


def declared(group: type[Any]) -> dict[str, Declared]:
    """The arrays of a group by name, in order."""
    if group not in _declarations:
        hints = get_type_hints(group, include_extras=True)
        names: tuple[str, ...] = group._fields
        _declarations[group] = {name: hints[name].__metadata__[0] for name in names}
    return _declarations[group]


def zeros(group: type[Group], **sizes: int) -> Group:
    """A group of zeroed arrays whose named dimensions have these sizes."""
    return group(
        *(
            np.zeros([d if isinstance(d, int) else sizes[d] for d in one.dimensions], one.dtype)
            for one in declared(group).values()
        )
    )


def smallest(group: type[Group]) -> Group:
    """A group of arrays with one entry each: an example of their types."""
    names = {d for one in declared(group).values() for d in one.dimensions if isinstance(d, str)}
    return zeros(group, **dict.fromkeys(names, 1))


def grown(arrays: Group, **sizes: int) -> Group:
    """The same arrays with these dimensions enlarged, zeros beyond what was there."""
    changed = {}
    for old, (name, one) in zip(arrays, declared(type(arrays)).items()):
        if sizes.keys().isdisjoint(one.dimensions):
            continue
        shape = tuple(sizes.get(str(d), n) for d, n in zip(one.dimensions, old.shape))
        if shape != old.shape:
            changed[name] = widened(old, shape)
    return arrays._replace(**changed)  # type: ignore[attr-defined,no-any-return]


def widened(old: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A copy in a larger array, zeros beyond it."""
    out = np.zeros(shape, old.dtype)
    out[tuple(slice(0, n) for n in old.shape)] = old
    return out


class ArrayTable:
    """The groups of arrays that a kernel works on, in order.

    Parameters
    ----------
    groups
        NamedTuples of declared arrays.
    """

    def __init__(self, *groups: type[Any]) -> None:
        self._declared = [declared(group) for group in groups]
        self.view: Callable[..., Any] = _view_of(groups, self._declared)
        """What kernels call on a table of addresses: the groups, as a tuple."""

    def addresses(self, *groups: tuple[NDArray[Any], ...]) -> NDArray[np.int64]:
        """A row for each array: its address, then its shape. ValueError if one is not as declared."""
        if len(groups) != len(self._declared):
            raise ValueError(f"{len(groups)} groups of arrays, not {len(self._declared)}")
        sizes: dict[int | str, int] = {}
        numbers: list[int] = []
        for arrays, wanted in zip(groups, self._declared):
            if len(arrays) != len(wanted):
                raise ValueError(f"{len(arrays)} arrays, not {len(wanted)}")
            for one, (name, as_declared) in zip(arrays, wanted.items()):
                numbers += _checked(name, one, as_declared, sizes)
        return np.array(numbers, np.int64).reshape(-1, ROW)

    def update(
        self,
        table: NDArray[np.int64],
        before: tuple[NDArray[Any], ...],
        after: tuple[NDArray[Any], ...],
    ) -> None:
        """Bring the table of one group up to date: only arrays that were replaced are looked at."""
        (wanted,) = self._declared
        sizes: dict[int | str, int] = {}
        for old, new, one in zip(before, after, wanted.values()):
            if new is old:
                sizes.update(zip(one.dimensions, new.shape))
        for row, (old, new, (name, one)) in enumerate(zip(before, after, wanted.items())):
            if new is not old:
                table[row] = _checked(name, new, one, sizes)


def _checked(
    name: str, one: NDArray[Any], wanted: Declared, sizes: dict[int | str, int]
) -> tuple[int, ...]:
    """The row of an array that is as declared; `sizes` gets its dimensions."""
    shape, dimensions = one.shape, wanted.dimensions
    if one.dtype == wanted.dtype and len(shape) == len(dimensions) and one.flags.c_contiguous:
        for dimension, size in zip(dimensions, shape):
            known = dimension if isinstance(dimension, int) else sizes.setdefault(dimension, size)
            if size != known:
                break
        else:
            return one.ctypes.data, *shape, *_REST[len(shape)]
    raise ValueError(
        f"array {name!r} is {one.dtype}{list(shape)}, not a contiguous "
        f"{wanted.dtype}{list(dimensions)} with {sizes}"
    )


class Addresses:
    """The table of one forest, made again when one of its arrays was replaced by another."""

    def __init__(self, table: ArrayTable, grouped: Callable[..., Sequence[Any]]) -> None:
        self._table = table
        self._grouped = grouped  # from what the forest holds to the groups of the table
        self._made: tuple[tuple[Any, ...], NDArray[np.int64]] = (), np.zeros((0, 0), np.int64)

    def of(self, arrays: tuple[Any, ...]) -> NDArray[np.int64]:
        """The table of what a forest holds now."""
        made = self._made
        if not made[0] or not all(map(is_, arrays, made[0])):
            table = self._table.addresses(*self._grouped(*arrays))
            made = self._made = arrays, table  # in one step: other threads call this too
        return made[1]


def _view_of(
    groups: tuple[type[Any], ...], declarations: list[dict[str, Declared]]
) -> Callable[..., Any]:
    """The function that makes arrays of a table of addresses, inside a kernel.

    They have no owner, so that handing them on counts no references.
    """
    members = [
        [types.Array(numba.from_dtype(one.dtype), len(one.dimensions), "C") for one in of.values()]
        for of in declarations
    ]
    kinds = [_tuple_of(of, group) for of, group in zip(members, groups)]
    all_of_it = _tuple_of(kinds)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = context.get_value_type(types.intp)
        data = _make_array(sig.args[0])(context, builder, args[0]).data
        out = []
        row = 0
        for group, of_type, of in zip(kinds, members, declarations):
            made = []
            for kind, one in zip(of_type, of.values()):

                def number(column: int, row: int = row) -> Any:
                    index = ir.Constant(word, row * ROW + column)
                    return builder.load(builder.gep(data, [index]))

                shape = [
                    ir.Constant(word, d) if isinstance(d, int) else number(SIZE + axis)
                    for axis, d in enumerate(one.dimensions)
                ]
                strides = [ir.Constant(word, one.dtype.itemsize)]
                for size in reversed(shape[1:]):
                    strides.insert(0, builder.mul(strides[0], size))
                view = _make_array(kind)(context, builder)
                _populate_array(
                    view,
                    data=builder.inttoptr(number(ADDRESS), view.data.type),
                    shape=_pack(builder, shape, ty=word),
                    strides=_pack(builder, strides, ty=word),
                    itemsize=one.dtype.itemsize,
                    meminfo=None,
                )
                made.append(view._getvalue())
                row += 1
            out.append(context.make_tuple(builder, group, made))
        return context.make_tuple(builder, all_of_it, out)

    def view(typingctx: Any, table: Any) -> Any:
        return all_of_it(table), codegen

    made: Callable[..., Any] = intrinsic(view)
    return made


# ---- arrays without an owner


def _codegen_unowned(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The arguments again, with a null pointer where each array points to its owner."""

    def one(kind: Any, value: Any) -> Any:
        out = _make_array(kind)(context, builder, value)
        out.meminfo = _null(out.meminfo.type)
        out.parent = _null(out.parent.type)
        return out._getvalue()

    kind = sig.args[0]
    if isinstance(kind, types.Array):
        return one(kind, args[0])
    members = _unpack(builder, args[0], len(kind))
    return context.make_tuple(
        builder, kind, [one(member, value) for member, value in zip(kind, members)]
    )


@intrinsic
def _unowned(typingctx: Any, arrays: Any) -> Any:
    """Arrays whose references are not counted."""
    return arrays(arrays), _codegen_unowned


unowned: Callable[..., Any] = _unowned
"""What kernels call: an array, or a group of arrays, that belongs to nobody.

Each time an owned array is handed on or taken out of a tuple its references are counted up and down, in
loops too; one without an owner is not counted. For functions that return before the owner lets go.
"""
