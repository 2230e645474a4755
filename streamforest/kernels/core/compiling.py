"""How kernels are compiled: cached on disk, free of the interpreter's lock.

No `fastmath` anywhere: the order of every floating-point sum is the one written down, so that the
same events give the same bits whatever the batch size or the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

from streamforest.kernels.core import cache, linking

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(function: _Function) -> _Function:
    """Compile a function for arrays, cached on disk and free of the interpreter's lock.

    Inlined by force: a call that stays a call counts references to every array of the forest up and
    down again, which costs more than most of these functions do.
    """
    return _compile(function, inline=True)


def routine(function: _Function) -> _Function:
    """The same for large functions that run seldom (a sort, a split test), without inlining.

    A call of a microsecond more is nothing to them, and inlined at every place they are called from
    they would make compiling slow.
    """
    return _compile(function, inline=False)


def _compile(function: _Function, inline: bool) -> _Function:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    compiled = njit(pipeline_class=linking.KernelCompiler, **options)(function)
    compiled._cache = cache.KernelCache(function)
    linking.link_into_callers(compiled, function, {**options, "forceinline": inline})
    return cast(_Function, compiled)
