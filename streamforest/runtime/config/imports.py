"""Functions named in a pipeline file as `module:function`: a model's factory, a decoder."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError
from streamforest.io.codec.decoders import Function
from streamforest.runtime.config.local_modules import load_beside, plain
from streamforest.text import printable, shown

_MOST = 500
_LONGEST_VERSION = 64


def find_function(key: str, spec: Any, beside: Path) -> Callable[..., Any]:
    """The function that `module:function` names; ConfigError says what is wrong with it.

    The module is the one that stands beside the pipeline file; where there is none, as Python finds it.
    """
    if not isinstance(spec, str) or not all(spec.partition(":")):
        raise ConfigError(f"{key} = {shown(spec)}: expected module:function")
    module, _, name = spec.partition(":")
    try:
        found = getattr(load_beside(module, beside) or import_module(module), name)
    except (Exception, SystemExit) as error:  # whatever a stranger's module raises
        raise ConfigError(f"{key} = {spec!r}: {failure(error)}") from error
    if not callable(found):
        raise ConfigError(f"{key} = {spec!r}: is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def find_decoder(spec: Any, beside: Path) -> Function:
    """The decoder that `events.decoder` names, and its version."""
    call = find_function("decoder", spec, beside)
    version = getattr(call, "version", "")
    if not isinstance(version, str | int) or len(str(version)) > _LONGEST_VERSION:
        raise ConfigError(
            f"decoder = {spec!r}: its version is {shown(version)}; use a number or a short text"
        )
    return Function(spec, printable(str(version)), call)


def failure(error: BaseException) -> str:
    """What went wrong in code that is not ours, in one line."""
    return printable(plain(f"{type(error).__name__}: {error}"), _MOST)
