"""Kernels that other kernels call by address: compiled once, by themselves, and only where they are used.

A kernel is usually linked into every kernel that calls it. For a large one that runs seldom (growing a part
of a tree) that means compiling it again for each of its callers, and compiling all variants where a forest
uses one of them. Called by its address it is one function with its own entry in the cache. The address is an
argument of the caller, since it is another one in each process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# numba has no types of these
_if_unlikely: Any = cgutils.if_unlikely
_unpack: Any = cgutils.unpack_tuple
_type_of: Any = numba.typeof


class CalledByAddress:
    """A family of kernels with the same arguments, which callers choose from by address.

    Parameters
    ----------
    returns
        What they return, as a type of numba. A number or a flag: nothing that is counted.
    examples
        Gives an example of each argument. A caller's arguments are converted to their types, or refused when
        the caller is compiled.
    """

    def __init__(self, returns: Any, examples: Callable[[], tuple[Any, ...]]) -> None:
        self._returns = returns
        self._examples = examples
        self.call: Callable[..., Any] = self._make_call()
        """What kernels call: the address, and the arguments as a tuple."""

    @cached_property
    def _arguments(self) -> tuple[Any, ...]:
        return tuple(_type_of(example) for example in self._examples())

    def _make_call(self) -> Callable[..., Any]:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            address, values = args[0], _unpack(builder, args[1], len(sig.args[1]))
            wanted = self._arguments
            values = [
                context.cast(builder, value, have, want)
                for value, have, want in zip(values, sig.args[1], wanted, strict=True)
            ]
            convention = context.call_conv
            kind = convention.get_function_type(sig.return_type, wanted)
            function = builder.inttoptr(address, kind.as_pointer())
            status, out = convention.call_function(
                builder, function, sig.return_type, wanted, values
            )
            with _if_unlikely(builder, status.is_error):
                convention.return_status_propagate(builder, status)
            return out

        def call(typingctx: Any, address: Any, arguments: Any) -> Any:
            return self._returns(types.int64, arguments), codegen

        made: Callable[..., Any] = intrinsic(call)
        return made

    def address(self, kernel: Any) -> int:
        """Where a kernel is in memory; it is compiled, or loaded, for that."""
        return _entry_point(kernel, self._arguments, self._returns)


@cache
def _entry_point(kernel: Any, arguments: tuple[Any, ...], returns: Any) -> int:
    kernel.compile(arguments)
    compiled = kernel.overloads[arguments]
    if compiled.signature.return_type != returns:
        raise TypeError(
            f"{kernel} returns {compiled.signature.return_type}, callers expect {returns}"
        )
    name = compiled.fndesc.llvm_func_name
    return int(compiled.library.get_pointer_to_function(name))
