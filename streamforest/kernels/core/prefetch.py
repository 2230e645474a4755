"""Prefetching: memory is requested before it is needed.

One event visits every tree of a forest, and a forest is larger than the caches near the core: each step
of a descent would wait for main memory or the last cache. So single events go through all trees step by
step, and the next step of a tree is prefetched while the other trees make theirs. Prefetching changes
nothing but time: any address will do, also one that holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LINE = 64
"""Bytes that memory moves at a time."""

_READ, _SOON, _DATA = 0, 3, 1


@intrinsic
def _prefetch(typingctx: Any, address: Any) -> Any:
    """Request the cache line at an address."""
    signature = types.void(types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        how = [ir.Constant(word, part) for part in (_READ, _SOON, _DATA)]
        builder.call(function, [builder.inttoptr(args[0], byte), *how])
        return context.get_dummy_value()

    return signature, codegen


prefetch: Callable[..., None] = _prefetch
"""What kernels call: without the typing context that numba adds."""
