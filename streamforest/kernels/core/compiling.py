"""How kernels are compiled: cached on disk, free of the interpreter's lock, one notice to the user.

No `fastmath` anywhere: the order of every floating-point sum is the one written down, so that the
same events give the same bits whatever the batch size or the number of threads.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit
from numba.core.caching import _CacheLocator

_KEPT_CACHES = 8


def _cache_folder() -> Path:
    """A cache that belongs to exactly these sources.

    numba looks whether the file of a cached function has changed, not whether a function inlined
    into it has: after an upgrade it would go on running the old one. A folder named after the
    sources cannot be stale. It stands in NUMBA_CACHE_DIR, or in the user's cache folder; of other
    versions the few that were used last are kept. Every environment and checkout with the same
    sources uses the same folder (`KernelCacheLocator`).
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.parent.rglob("*.py")):
        digest.update(path.read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    base = Path(os.environ.get("NUMBA_CACHE_DIR") or os.path.join(home, "streamforest"))
    folder = base / f"kernels-{digest.hexdigest()[:16]}"
    try:
        if folder.exists():
            os.utime(folder)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            others = sorted(base.glob("kernels-*"), key=lambda path: path.stat().st_mtime)
            for old in others[:-_KEPT_CACHES]:
                shutil.rmtree(old, ignore_errors=True)
    except OSError:
        pass  # nowhere to write: numba says so, or compiles at every start
    return folder


_FOLDER = _cache_folder()
_config: Any = numba.config
_Function = TypeVar("_Function", bound=Callable[..., Any])


class KernelCacheLocator(_CacheLocator):
    """Where numba keeps a compiled function: by its module's name, whatever path it was installed under.

    numba's own locators add the path and the time of the source file, so that each new environment
    would compile everything again. The folder's name already says which sources these are.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._module = function.__module__.rpartition("kernels.")[2]
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> KernelCacheLocator:
        """The locator of a function; numba calls this."""
        return cls(py_func)

    def get_cache_path(self) -> str:
        """A folder for each room."""
        return str(_FOLDER / self._module.rpartition(".")[0])

    def get_source_stamp(self) -> str:
        """The same for all functions of these sources."""
        return _FOLDER.name

    def get_disambiguator(self) -> str:
        """Tells functions of the same name apart."""
        return f"{self._module}-{self._line}"


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
    _config.CACHE_DIR = str(_FOLDER)  # for a numba without the other setting
    _config.CACHE_LOCATOR_CLASSES = f"{KernelCacheLocator.__module__}.{KernelCacheLocator.__name__}"
    try:
        cache = os.access(_FOLDER, os.W_OK)
        compile_it = njit(cache=cache, nogil=True, error_model="numpy", forceinline=inline)
        return cast(_Function, compile_it(function))
    finally:
        _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = before


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
