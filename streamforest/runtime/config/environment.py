"""Environment variables that look like settings but are not."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping

from streamforest.errors import StreamForestWarning
from streamforest.runtime.config import schema
from streamforest.runtime.config.layers import PREFIX
from streamforest.runtime.processing.models import kinds_with

_KEYS: dict[str, Collection[str]] = {**schema.KEYS, "model": ("kind", "factory")}


def warn_of_single_underscores(environ: Mapping[str, str]) -> None:
    """Warn about a variable such as `STREAMFOREST_MODEL_N_TREES`, which needs two underscores.

    It is only a warning, since Kubernetes derives variables from service names and may hit a key by chance.
    """
    for name in sorted(environ):
        rest = name.removeprefix(PREFIX).lower()
        if not name.startswith(PREFIX) or "__" in rest:
            continue
        for table, keys in _KEYS.items():
            key = rest.removeprefix(f"{table}_")
            if key != rest and (key in keys or (table == "model" and kinds_with(key))):
                meant = f"{PREFIX}{table}__{key}".upper()
                warnings.warn(
                    f"{name}: has no effect; two underscores separate table and key: {meant}",
                    StreamForestWarning,
                    stacklevel=2,
                )
