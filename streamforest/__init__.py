"""Online random forests for labelled event streams that never end and keep bringing new classes.

Names are loaded on first use, so that `import streamforest` (and the command's `--help`) stays
free of numba and River.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamforest._version import __version__

if TYPE_CHECKING:
    from streamforest.forests.candidate.consistent import ConsistentForestClassifier
    from streamforest.forests.candidate.online import OnlineForestClassifier
    from streamforest.forests.ncm.forest import NCMForestClassifier
    from streamforest.forests.persistence.snapshot import load, save
    from streamforest.forests.stream.forest import StreamForestClassifier
    from streamforest.kernels.core.operations import BOTH, LEARN, PREDICT

_HOME = {
    "BOTH": "streamforest.kernels.core.operations",
    "LEARN": "streamforest.kernels.core.operations",
    "PREDICT": "streamforest.kernels.core.operations",
    "ConsistentForestClassifier": "streamforest.forests.candidate.consistent",
    "NCMForestClassifier": "streamforest.forests.ncm.forest",
    "OnlineForestClassifier": "streamforest.forests.candidate.online",
    "StreamForestClassifier": "streamforest.forests.stream.forest",
    "load": "streamforest.forests.persistence.snapshot",
    "save": "streamforest.forests.persistence.snapshot",
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
