"""Modules beside a pipeline file, loaded by their path.

`factory = "orders:model"` means the file `orders.py` beside the pipeline file, whatever else on this machine
has that name. Nobody else sees it: `import orders` elsewhere finds what it always found, `sys.path` is
unchanged, and the `orders.py` of another pipeline is another module. To achieve that, each folder is a
package with a name of its own, `streamforest_beside_…`, and its files are modules of that package.

Imports inside such a module follow Python's rules first and look beside the module last: `import helper`
finds a `helper.py` there, `import json` is Python's own even if there is a `json.py`, and
`from . import json` is the one beside it.
"""

from __future__ import annotations

import builtins
import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import ModuleType
from typing import Any

_PREFIX = "streamforest_beside_"


def load_beside(name: str, folder: Path) -> ModuleType | None:
    """The module with this dotted name in a folder; None if there is none."""
    here = str(folder.resolve())
    if not _is_there(name, here):
        return None
    return import_module(f"{_package(here)}.{name}")


def hide_package(text: str) -> str:
    """A message without the internal package names.

    >>> hide_package("module 'streamforest_beside_0123456789abcdef.orders' has no attribute 'f'")
    "module 'orders' has no attribute 'f'"
    """
    return re.sub(rf"{_PREFIX}[0-9a-f]{{16}}\.?", "", text)


def _is_there(name: str, folder: str) -> bool:
    """Whether a folder holds a module. A folder without `__init__.py` is not a module, but its files are."""
    places: Sequence[str] = [folder]
    found = None
    for part in name.split("."):
        found = next(filter(None, (_files(place).find_spec(part) for place in places)), None)
        if not part or found is None:
            return False
        places = found.submodule_search_locations or ()
    return found is not None and found.loader is not None


def _package(folder: str) -> str:
    """The name of the package for a folder; the first call creates it."""
    name = (
        _PREFIX
        + hashlib.blake2b(folder.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    )
    if name not in sys.modules:
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())  # it only finds modules of these packages
        package = ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package
    return name


class _Finder(MetaPathFinder):
    """Finds the modules of the packages that are made here."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's file in its package's folder."""
        if not fullname.startswith(_PREFIX):
            return None
        return next(filter(None, (_files(place).find_spec(fullname) for place in path or ())), None)


class _Loader(SourceFileLoader):
    """Loads a source file whose `import` looks beside the file last."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module with its own `import`."""
        package = module.__name__.partition(".")[0]
        own = {**vars(builtins), "__import__": _import_within(package)}
        module.__dict__["__builtins__"] = own
        super().exec_module(module)


def _files(folder: str) -> FileFinder:
    return FileFinder(
        folder,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_Loader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )


def _import_within(package: str) -> Callable[..., ModuleType]:
    """The `import` of a module of a package: Python's own first, then the package."""

    def import_(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        try:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        except ModuleNotFoundError as error:
            first = name.partition(".")[0]
            missing = level == 0 and error.name == first
            folders = sys.modules[package].__path__
            if not missing or not any(_files(f).find_spec(first) for f in folders):
                raise
        found = builtins.__import__(f"{package}.{name}", globals, locals, fromlist or (), 0)
        return found if fromlist else sys.modules[f"{package}.{first}"]

    return import_
