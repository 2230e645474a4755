"""Online random forests for labelled event streams that never end and keep bringing new classes.

Names are loaded on first use, so that `import streamforest` (and the command's `--help`) stays
free of numba and River.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamforest._version import __version__

if TYPE_CHECKING:
    from streamforest.forests.consistent import ConsistentForestClassifier
    from streamforest.forests.ncm import NCMForestClassifier
    from streamforest.forests.online import OnlineForestClassifier
    from streamforest.forests.snapshot import load, save
    from streamforest.forests.stream import StreamForestClassifier
    from streamforest.kernels.tree import BOTH, LEARN, PREDICT

_HOME = {
    "BOTH": "streamforest.kernels.tree",
    "LEARN": "streamforest.kernels.tree",
    "PREDICT": "streamforest.kernels.tree",
    "ConsistentForestClassifier": "streamforest.forests.consistent",
    "NCMForestClassifier": "streamforest.forests.ncm",
    "OnlineForestClassifier": "streamforest.forests.online",
    "StreamForestClassifier": "streamforest.forests.stream",
    "load": "streamforest.forests.snapshot",
    "save": "streamforest.forests.snapshot",
}

__all__ = [
    "BOTH",
    "LEARN",
    "PREDICT",
    "ConsistentForestClassifier",
    "NCMForestClassifier",
    "OnlineForestClassifier",
    "StreamForestClassifier",
    "__version__",
    "load",
    "save",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'streamforest' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
