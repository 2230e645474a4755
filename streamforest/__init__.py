"""Online random forests for labelled event streams that never end and keep bringing new classes.

Names are imported on first use, so that `import streamforest` (and the command's `--help`) imports
neither numba nor River. The forests come from their registry; those below are also known to type checkers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamforest._version import __version__
from streamforest.forests.core import registry

if TYPE_CHECKING:
    from streamforest.forests.auto.forest import AutoForestClassifier
    from streamforest.forests.candidate.consistent import ConsistentForestClassifier
    from streamforest.forests.candidate.online import OnlineForestClassifier
    from streamforest.forests.few.forest import FewShotForestClassifier
    from streamforest.forests.ncm.forest import NCMForestClassifier
    from streamforest.forests.persistence.snapshot import load, save
    from streamforest.forests.stream.forest import StreamForestClassifier
    from streamforest.kernels.core.operations import BOTH, LEARN, PREDICT

_HOME = {
    "BOTH": "streamforest.kernels.core.operations",
    "LEARN": "streamforest.kernels.core.operations",
    "PREDICT": "streamforest.kernels.core.operations",
    "load": "streamforest.forests.persistence.snapshot",
    "save": "streamforest.forests.persistence.snapshot",
}

__all__ = [
    "BOTH",
    "LEARN",
    "PREDICT",
    "AutoForestClassifier",
    "ConsistentForestClassifier",
    "FewShotForestClassifier",
    "NCMForestClassifier",
    "OnlineForestClassifier",
    "StreamForestClassifier",
    "__version__",
    "load",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name == "results":
        return import_module("streamforest.results")
    forest = registry.find_class(name)
    if forest is None:
        raise AttributeError(f"module 'streamforest' has no attribute {name!r}")
    return forest.load()


def __dir__() -> list[str]:
    return sorted({*__all__, *(forest.class_name for forest in registry.entries())})
