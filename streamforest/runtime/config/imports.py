"""Functions named in a pipeline file as `module:function`: a model's factory, a decoder."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError
from streamforest.io.codec.decoders import Function
from streamforest.runtime.config.local_modules import hide_package, load_beside
from streamforest.text import printable, shown

_MAX_ERROR = 500  # characters
_MAX_VERSION = 64  # characters


def find_function(key: str, spec: Any, beside: Path) -> Callable[..., Any]:
    """The function that `module:function` names; ConfigError if it cannot be loaded.

    The module is the file beside the pipeline file; if there is none, whatever Python finds.
    """
    if not isinstance(spec, str) or not all(spec.partition(":")):
        raise ConfigError(f"{key} = {shown(spec)}: expected module:function")
    module, _, name = spec.partition(":")
    try:
        function = getattr(load_beside(module, beside) or import_module(module), name)
    except ModuleNotFoundError as error:
        remedy = f"; put {module}.py beside the pipeline file, or install it"
        if error.name != module:  # it is there, and imports something that is not
            remedy = f"; install {shown(error.name)}, which it imports"
        if hide_package(str(error.name)) != error.name:  # a file beside it: nothing to install
            remedy = ""
        raise ConfigError(f"{key} = {spec!r}: {failure(error)}{remedy}") from error
    except (Exception, SystemExit) as error:  # the module is user code and may raise anything
        raise ConfigError(f"{key} = {spec!r}: {failure(error)}") from error
    if not callable(function):
        raise ConfigError(f"{key} = {spec!r}: is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def find_decoder(spec: Any, beside: Path) -> Function:
    """The decoder that `events.decoder` names, and its version."""
    call = find_function("decoder", spec, beside)
    version = getattr(call, "version", "")
    if not isinstance(version, str | int) or len(str(version)) > _MAX_VERSION:
        raise ConfigError(
            f"decoder = {spec!r}: invalid version {shown(version)}; use a number or a short text"
        )
    return Function(spec, printable(str(version)), call)


def failure(error: BaseException) -> str:
    """An error of user code, as one line."""
    return printable(hide_package(f"{type(error).__name__}: {error}"), _MAX_ERROR)
