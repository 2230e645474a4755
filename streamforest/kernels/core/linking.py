"""Functions that only other kernels call: lowered once, and optimised where they end up.

numba compiles every function as if Python might call it: it wraps it, optimises it and makes machine code of
it, and then does the same again with its caller, into which it was inlined, and with the caller of that. Here
a function that kernels call becomes LLVM code and no more. It is linked into its callers, and optimised once
for each function that Python calls. That takes less than half the time (stream forest 27 s of CPU instead of
57 s), for the same bits: LLVM may not reorder sums at any level.

numba's own functions (`max`, `np.zeros`) are treated alike while a kernel is compiled.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from types import MethodType
from typing import Any

from numba import types
from numba.core import compiler, event, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.registry import CPUDispatcher

from streamforest.kernels.core.shortcuts import QuickFlags, shortcuts

_plain_type: Any = types.unliteral
_SELDOM = 50_000  # objects between two collections: a compiler makes many and drops few


class _Progress:
    """How many functions are being compiled, one inside the other, and how many were."""

    depth = 0
    functions = 0


class _LinkedLibrary(JITCodeLibrary):
    """The code of a function and of all that it calls, for its callers."""

    def _optimize_final_module(self) -> None:
        """Nothing: the caller is optimised with this in it."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LinkedLowering(typed_passes.NativeLowering):
    """Lower a function for its callers: no wrapper for Python, no machine code."""

    _name = "streamforest_linked_lowering"

    def run_pass(self, state: Any) -> bool:
        flags = state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        state.library = _LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        super().run_pass(state)
        handle = object()  # what callers know the function by; numba takes its entry point
        state.targetctx.insert_user_function(handle, state["cr"].fndesc, [state.library])
        if hasattr(state.library, "_reload_init"):  # numba 0.61 has none
            state.reload_init.extend(state.library._reload_init)
        state["cr"] = state["cr"]._replace(cfunc=handle)
        return True


def _passes(lowering: type) -> PassManager:
    """numba's passes, less those for closures, contexts, threads and listings, which no kernel has."""
    passes = PassManager("kernel")
    for each in (
        untyped_passes.TranslateByteCode,
        untyped_passes.FixupArgs,
        untyped_passes.IRProcessing,
        untyped_passes.RewriteSemanticConstants,
        untyped_passes.DeadBranchPrune,
        untyped_passes.GenericRewrites,
        untyped_passes.ReconstructSSA,
        typed_passes.NopythonTypeInference,
        typed_passes.PreLowerStripPhis,
        typed_passes.NopythonRewrites,
        typed_passes.IRLegalization,
        lowering,
        typed_passes.NoPythonBackend,
    ):
        passes.add_pass(each)
    passes.finalize()
    return passes


class _QuickCompiler(compiler.CompilerBase):
    def _compile_core(self) -> Any:
        self.state.flags = QuickFlags(self.state.flags)
        return super()._compile_core()


class KernelCompiler(_QuickCompiler):
    """Compiles a kernel that Python calls, with all that it calls."""

    def define_pipelines(self) -> list[PassManager]:
        """The passes; numba calls this."""
        return [_passes(typed_passes.NativeLowering)]

    def _compile_core(self) -> Any:
        thresholds = gc.get_threshold()
        if _Progress.depth == 0 and thresholds[0]:
            gc.set_threshold(_SELDOM, *thresholds[1:])
        _Progress.depth += 1
        try:
            with shortcuts() if _Progress.depth == 1 else nullcontext():
                return super()._compile_core()
        finally:
            _Progress.depth -= 1
            _Progress.functions += 1
            if _Progress.depth == 0:
                gc.set_threshold(*thresholds)


class _LinkedCompiler(KernelCompiler):
    """Compiles a kernel that another one calls."""

    def define_pipelines(self) -> list[PassManager]:
        return [_passes(_LinkedLowering)]


class _NumbasCompiler(_QuickCompiler):
    """Compiles a function of numba that a kernel calls: all of numba's passes but the last."""

    def define_pipelines(self) -> list[PassManager]:
        passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        lowering = typed_passes.NativeLowering
        passes.passes = [
            (_LinkedLowering if each is lowering else each, told) for each, told in passes.passes
        ]
        passes.finalize()
        return [passes]


def _keep(self: Any, compiled: Any) -> None:
    """Instead of `add_overload`, which wants an entry point for Python."""
    self.overloads[tuple(compiled.signature.args)] = compiled


class _LinkedDispatcher(CPUDispatcher):
    """A function by the types of its arguments, for its callers."""

    add_overload = _keep  # type: ignore[assignment]


def _is_numbas(function: Any) -> bool:
    """Whether it belongs to numba, and is compiled as usual."""
    usual = function._compiler.pipeline_class is compiler.Compiler
    return usual and str(function.py_func.__module__).startswith("numba.")


class _NumbasFunctions(event.Listener):
    """Has functions of numba compiled for linking, as long as a kernel calls them."""

    def __init__(self) -> None:
        self._compiling: list[Any] = []  # one inside the other; None for those left alone

    def on_start(self, event: Any) -> None:
        """A function is about to be compiled; numba calls this."""
        function = event.data["dispatcher"]
        if not (_Progress.depth and _is_numbas(function)):
            self._compiling.append(None)
            return
        self._compiling.append(function)
        function._compiler.pipeline_class = _NumbasCompiler
        function.add_overload = MethodType(_keep, function)

    def on_end(self, event: Any) -> None:
        """It was: for other callers than kernels it is as it was before."""
        function = self._compiling.pop()
        if function is not None:
            function._compiler.pipeline_class = compiler.Compiler
            del function.add_overload


event.register("numba:compile", _NumbasFunctions())


def link_into_callers(compiled: Any, function: Callable[..., Any], options: dict[str, Any]) -> None:
    """Have kernels that call `compiled` link its code, whatever Python's own calls get.

    A constant argument counts as any number of its type: numba compiles a function once more for each
    constant that it is called with, a fifth of all compiling. Inlined functions know their constants without.
    """
    made: list[Any] = []

    def linked() -> Any:
        if not made:
            targets = {"nopython": True, **options}
            made.append(_LinkedDispatcher(function, {}, targets, _LinkedCompiler))
        return made[0]

    def get_call_template(args: Any, kws: Any) -> Any:
        plain = {name: _plain_type(kind) for name, kind in dict(kws).items()}
        return linked().get_call_template([_plain_type(kind) for kind in args], plain)

    compiled.get_call_template = get_call_template
    compiled.get_overload = lambda signature: linked().get_overload(signature)


def functions_compiled() -> int:
    """Kernels that this process has compiled so far, with those that they call."""
    return _Progress.functions
