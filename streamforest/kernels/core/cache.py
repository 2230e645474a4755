"""Where compiled kernels are kept: a folder for each module, named after the sources that went into it.

numba looks whether the file of a cached function has changed, not whether a function inlined into it
has: after an upgrade it would go on running the old one. A folder named after a module's own source
and all kernel sources it imports cannot be stale, and a change compiles only what it concerns.

A wheel or an image may carry compiled kernels (`packaging.py`); they are used where the user's cache has
none.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
)

from streamforest.kernels.core import packaged

_KERNELS = Path(__file__).parent.parent
_PACKAGE = "streamforest.kernels."
_KEPT = 8  # versions of a module
_NO_CODE = {f"core.{name}" for name in ("beside", "cache", "notice", "packaged", "shortcuts")}
"""Modules that the code of a kernel does not depend on."""
_IMPORT = re.compile(
    r"^(?:from streamforest\.kernels\.([\w.]+) import (\([^)]*\)|.*)|import streamforest\.kernels\.([\w.]+))",
    re.MULTILINE,
)


def base_folder() -> Path:
    """NUMBA_CACHE_DIR, or a folder in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(os.environ.get("NUMBA_CACHE_DIR") or os.path.join(home, "streamforest")) / "kernels"


def _imported(source: str) -> set[str]:
    """The kernel modules that a source imports, by their names below `kernels`."""
    found = set()
    for module, names, plain in _IMPORT.findall(source):
        found.add(plain or module)
        found.update(f"{module}.{name}" for name in re.findall(r"\w+", names) if module)
    return found


def _path(module: str) -> Path | None:
    """The file of a module; None for a name that is a function or a folder."""
    path = _KERNELS.joinpath(*module.split(".")).with_suffix(".py")
    return path if path.is_file() else None


def sources(module: str) -> dict[str, bytes]:
    """A module and everything it imports from the kernels and depends on, by name."""
    found: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if name not in found and name not in _NO_CODE and path is not None:
            found[name] = path.read_bytes()
            waiting.extend(_imported(found[name].decode()))
    return found


@cache
def digest(module: str) -> str:
    """What identifies a module's compiled functions, whatever path it was installed under."""
    hashed = hashlib.sha256()
    for name, source in sorted(sources(module).items()):
        hashed.update(f"{name} {len(source)}\n".encode() + source)
    return hashed.hexdigest()[:16]


def folder(module: str) -> Path:
    """The cache of a module: made where it can be, of older versions the few that were used last are kept."""
    versions = base_folder() / module
    own = versions / digest(module)
    try:
        if own.exists():
            os.utime(own)
        else:
            own.mkdir(parents=True, exist_ok=True)
            others = sorted(versions.iterdir(), key=lambda path: path.stat().st_mtime)
            for old in others[:-_KEPT]:
                shutil.rmtree(old, ignore_errors=True)
    except OSError:
        pass  # nowhere to write: `is_writable` says so
    return own


def is_writable(module: str) -> bool:
    """Whether compiled functions of this module can be kept. Without, they are compiled at every start."""
    return os.access(folder(module), os.W_OK)


def is_compiled(module: str) -> bool:
    """Whether a module has compiled functions here. Those of another CPU count too: numba alone can tell."""
    places = [base_folder()] if packaged.usable() is None else [base_folder(), packaged.FOLDER]
    return any(any((place / module / digest(module)).glob("*.nbi")) for place in places)


def name_of(function: Callable[..., object]) -> str:
    """The name of a function's module below `kernels`; a function of another package has its full name."""
    return function.__module__.removeprefix(_PACKAGE)


class KernelCacheLocator(_CacheLocator):
    """Tells numba where it keeps a compiled function.

    numba's own locators add the path and the time of the source file, so that each new environment
    would compile everything again.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._module = name_of(function)
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Callable[..., object], py_file: str) -> KernelCacheLocator:
        """The locator of a function; numba calls this."""
        return cls(py_func)

    def get_cache_path(self) -> str:
        """The folder of its module."""
        return str(base_folder() / self._module / digest(self._module))

    def get_source_stamp(self) -> str:
        """The same for all functions of a module."""
        return digest(self._module)

    def get_disambiguator(self) -> str:
        """Tells functions of the same name apart."""
        return f"{self._module}-{self._line}"


class _Kept(CompileResultCacheImpl):
    """How a compiled function is kept, whatever locators numba is told to use elsewhere."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._locator = KernelCacheLocator(function)
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._filename_base = self.get_filename_base(name, getattr(sys, "abiflags", ""))


class KernelCache(FunctionCache):
    """The compiled forms of one kernel: from the user's cache, else those that came with the package."""

    _impl_class = _Kept

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._module = name_of(function)
        folder(self._module)  # it is in use

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super()._load_overload(sig, target_context)
        except OSError:  # a folder that this user may not read: then it is compiled
            found = None
        built = packaged.usable()
        if found is not None or built is None:
            return found
        file = IndexDataCacheFile(
            str(packaged.FOLDER / self._module / digest(self._module)),
            self._impl.filename_base,
            digest(self._module),
        )
        try:
            data = file.load(self._index_key(sig, built.codegen(target_context.codegen())))
        except OSError:
            return None
        return None if data is None else self._impl.rebuild(target_context, data)

    def _save_overload(self, sig: Any, data: Any) -> None:
        if is_writable(self._module):  # else it is compiled at every start
            super()._save_overload(sig, data)
