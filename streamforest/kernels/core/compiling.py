"""How kernels are compiled: cached on disk, free of the interpreter's lock, one notice to the user.

No `fastmath` anywhere: the order of every floating-point sum is the one written down, so that the
same events give the same bits whatever the batch size or the number of threads.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import njit, types

from streamforest.kernels.core import cache

_config: Any = numba.config
_plain_type: Any = types.unliteral
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
    before = _config.CACHE_DIR, getattr(_config, "CACHE_LOCATOR_CLASSES", "")
    module = cache.name_of(function)
    keep = cache.is_writable(module)
    _config.CACHE_DIR = str(cache.folder(module))  # for a numba without the other setting
    _config.CACHE_LOCATOR_CLASSES = f"{cache.__name__}.{cache.KernelCacheLocator.__name__}"
    try:
        compile_it = njit(cache=keep, nogil=True, error_model="numpy", forceinline=inline)
        return cast(_Function, _once_for_constants(compile_it(function)))
    finally:
        _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = before


def _once_for_constants(compiled: Any) -> Any:
    """Have a constant argument compiled as any number of its type.

    numba compiles a function once more for each constant that it is called with, a fifth of all compiling.
    Inlined functions know their constants without that.
    """
    template_for = compiled.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        plain = {name: _plain_type(kind) for name, kind in dict(kws).items()}
        return template_for([_plain_type(kind) for kind in args], plain)

    compiled.get_call_template = get_call_template
    return compiled


_NOTICE_AFTER = 2.5  # seconds; loading from the cache is quicker than this, compiling is not


def _say(text: str) -> None:
    if not os.environ.get("STREAMFOREST_QUIET"):
        print(f"streamforest: {text}", file=sys.stderr, flush=True)


class Announced:
    """A kernel whose first call in this process tells the user why it takes seconds.

    Compiling happens once per machine; later starts load the cache, and nothing is said. Whether a
    call compiles or loads is numba's own affair, so the notice goes by the clock. After the first
    call `run` is the bare kernel: nothing is left in the way.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.name = name
        self.run: Callable[..., Any] = self._first

    def _first(self, *args: Any) -> Any:
        timer = threading.Timer(
            _NOTICE_AFTER,
            _say,
            [f"compiling the {self.name} kernels for this machine (first start only) …"],
        )
        timer.daemon = True
        timer.start()
        try:
            return self.function(*args)
        finally:
            timer.cancel()
            self.run = self.function
