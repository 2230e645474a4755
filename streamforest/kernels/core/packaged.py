"""Compiled kernels that a wheel or an image carries: for which CPU they are, and whether this one will do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

FOLDER = Path(__file__).parent.parent / "packaged"
"""Where they are; only built packages have it."""
ABOUT = FOLDER / "cpu.json"


@dataclass(frozen=True)
class Built:
    """The CPU that kernels were compiled for, as numba and LLVM name it, and what it must be able to do."""

    name: str
    features: str
    needs: tuple[str, ...]

    def codegen(self, own: Any) -> Any:
        """What numba identifies compiled code by: as of this machine's, but for the CPU."""
        return _Codegen((own.magic_tuple()[0], self.name, self.features))


@dataclass(frozen=True)
class _Codegen:
    magic: tuple[str, str, str]

    def magic_tuple(self) -> tuple[str, str, str]:
        """As numba's has it."""
        return self.magic


@cache
def usable() -> Built | None:
    """The kernels in this package, if there are any and this CPU can run them."""
    try:
        about = json.loads(ABOUT.read_text(encoding="utf-8"))
        built = Built(about["name"], about["features"], tuple(about["needs"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    able: dict[str, bool] = llvm.get_host_cpu_features()
    return built if all(able.get(feature) for feature in built.needs) else None
