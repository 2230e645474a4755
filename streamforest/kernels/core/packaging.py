"""Compiles the kernels of every kind of forest into the package: what is built from it starts at once.

    python -m streamforest.kernels.core.packaging --cpu x86-64-v3
    pip wheel --no-deps .

For wheels and images. The kernels fit the Python and the numba that compiled them, and every CPU that can do
what the named one does; elsewhere they are compiled on the first start, as ever. The bits are the same. What
only parameters other than the defaults call (splits by SVM planes, the papers' strategies) is not among them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import llvmlite.binding as llvm

from streamforest.kernels.core import packaged

_VECTORS = ("sse3", "sse4.1", "sse4.2", "ssse3", "avx", "avx2", "f16c", "fma")
_V3 = (*_VECTORS, "bmi", "bmi2", "cx16", "lzcnt", "movbe", "popcnt", "sahf", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
LEVELS = {"x86-64-v3": _V3, "x86-64-v4": _V4}
"""What a CPU of each level can do, in LLVM's words. Not v2: without FMA a dot product takes 20 times as
long, on every CPU that such kernels fit."""

_COMPILE = """
from streamforest.forests.core import registry
for kind in registry.kinds():
    print(kind, flush=True)
    registry.get(kind).warm_up()
"""


def built(cpu: str) -> packaged.Built:
    """What is known of a CPU by its name, or of this one."""
    if cpu != "host":
        return packaged.Built(cpu, "", LEVELS[cpu])
    features = llvm.get_host_cpu_features()
    able = tuple(sorted(name for name, has in features.items() if has))
    return packaged.Built(llvm.get_host_cpu_name(), features.flatten(), able)


def compile_into_package(cpu: str) -> None:
    """Compile everything for a CPU, and put it where the package looks for it."""
    about = built(cpu)
    with tempfile.TemporaryDirectory() as folder:
        env = {
            **os.environ,
            "NUMBA_CACHE_DIR": folder,
            "NUMBA_CPU_NAME": about.name,
            "NUMBA_CPU_FEATURES": about.features,
        }
        shutil.rmtree(packaged.FOLDER, ignore_errors=True)
        subprocess.run([sys.executable, "-c", _COMPILE], env=env, check=True)
        shutil.copytree(Path(folder) / "kernels", packaged.FOLDER)
    text = json.dumps({"name": about.name, "features": about.features, "needs": about.needs})
    packaged.ABOUT.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compile the kernels into the package.")
    parser.add_argument(
        "--cpu",
        choices=("host", *LEVELS),
        default="host",
        help="for which CPU: this one, or all of a level (default: host)",
    )
    compile_into_package(parser.parse_args().cpu)
    print(f"compiled into {packaged.FOLDER}")


if __name__ == "__main__":
    main()
