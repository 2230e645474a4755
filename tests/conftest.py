"""Shared by all tests: a kernel cache that belongs to exactly these sources.

numba notices when the file of a cached function changes, not when a function inlined into it does; a
folder named after the sources keeps a test run from seeing kernels of another version.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

_KERNELS = Path(__file__).parent.parent / "streamforest" / "kernels"


def _cache_folder() -> str:
    digest = hashlib.sha256()
    for path in sorted(_KERNELS.glob("*.py")):
        digest.update(path.read_bytes())
    user = os.getuid() if hasattr(os, "getuid") else 0
    return os.path.join(
        tempfile.gettempdir(), f"streamforest-kernels-{user}-{digest.hexdigest()[:16]}"
    )


os.environ.setdefault("NUMBA_CACHE_DIR", _cache_folder())
