"""Shortcuts through numba's front end while a kernel is compiled: they save time and change no code.

- What `+` or `np.empty` means for arguments of some types is looked up once for all kernels. numba goes
  through every meaning of an operator each time, and makes an error message of each that does not fit.
- Those messages, which nobody sees, are not coloured.
- Options of the compiler, which it looks up in dictionaries, are hashed at once.

Looking up took 5.3 s of the 45 s of CPU that the NCM forest took to compile, and takes 1 s.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba import types
from numba.core import compiler, errors
from numba.core.registry import cpu_target

_errors: Any = errors


class _Meanings:
    """Signatures of numba's own functions by the types of their arguments."""

    def __init__(self, resolve: Callable[..., Any], lookup: Callable[..., Any]) -> None:
        self._resolve = resolve  # numba's
        self._lookup = lookup
        self._known: dict[Any, tuple[Any, Any, Any]] = {}

    def find(self, function: Any, args: Any, kws: Any, literals: Any = None) -> Any:
        """The signature, for numba's typing context."""
        kind = function if isinstance(function, types.Type) else self._lookup(function)
        if not isinstance(kind, types.Function):
            return self._resolve(function, args, kws)
        implementations: dict[Any, Any] = kind._impl_keys  # type: ignore[attr-defined]
        key = (id(kind), tuple(args), tuple(dict(kws).items()))
        if key in self._known:
            _, signature, implementation = self._known[key]
            implementations[signature.args] = implementation
            return signature
        signature = self._resolve(function, args, kws)
        if signature is not None:
            # `kind` is kept, so that its id stays its own
            self._known[key] = kind, signature, implementations[signature.args]
        return signature


class _Uncoloured:
    """In place of what colours the parts of a message."""

    def __getattr__(self, part: str) -> Callable[[str], str]:
        return str


class QuickFlags(compiler.Flags):
    """numba's options, quicker to hash and to compare, as it does for every call of a function of its own."""

    def __hash__(self) -> int:
        return _HASH

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, compiler.Flags):
            return NotImplemented
        return self._values == other._values or bool(super().__eq__(other))


_HASH = hash(tuple(sorted(compiler.Flags.options)))  # as numba's own hash is: of the names alone
_meanings: list[_Meanings] = []


@contextmanager
def shortcuts() -> Iterator[None]:
    """Take them until the end of the block. numba compiles one function at a time: no other is concerned."""
    context: Any = cpu_target.typing_context
    if not _meanings:
        _meanings.append(_Meanings(context._resolve_user_function_type, context._lookup_global))
    coloured = _errors._termcolor_inst
    context._resolve_user_function_type = _meanings[0].find
    _errors._termcolor_inst = _Uncoloured()
    try:
        yield
    finally:
        del context._resolve_user_function_type
        _errors._termcolor_inst = coloured
