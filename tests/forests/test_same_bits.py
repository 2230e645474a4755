"""Every forest gives the bits it gave before: predictions and state over fixed streams, as hashes.

Whoever changes what a forest learns raises its revision and renews the hashes in a commit of its own:

    STREAMFOREST_RENEW_BITS=1 python -m pytest tests/forests/test_same_bits.py

The hash of the state knows no names: arrays may be called otherwise, their content stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.events import blobs, growing_stream

from streamforest import (
    AutoForestClassifier,
    ConsistentForestClassifier,
    FewShotForestClassifier,
    NCMForestClassifier,
    OnlineForestClassifier,
    StreamForestClassifier,
)
from streamforest.datasets import load, schedule

FILE = Path(__file__).parent.parent / "golden" / "bits.json"
RENEW = bool(os.environ.get("STREAMFOREST_RENEW_BITS"))
ROWS = 2_500

FORESTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "consistent": (ConsistentForestClassifier, {}),
    "consistent-bounded": (
        ConsistentForestClassifier,
        {"max_fringe_bytes": 80_000, "voting": "hard", "p_ignore": 0.1},
    ),
    "online": (OnlineForestClassifier, {"min_samples": 20, "gamma": 0.002}),
    "stream": (StreamForestClassifier, {}),
    "stream-bounded": (
        StreamForestClassifier,
        {"ring_rows": 1_000, "max_ring_bytes": 200_000, "challenge_rate": 0.01, "max_nodes": 201},
    ),
    "ncm": (NCMForestClassifier, {}),
    "ncm-small": (NCMForestClassifier, {"memory": 500}),
    "ncm-svm": (NCMForestClassifier, {"split": "svm", "memory": 500}),
    **{
        f"ncm-{strategy}": (NCMForestClassifier, {"strategy": strategy, "memory": 500})
        for strategy in ("hirf", "igt", "rtst", "rust", "uls")
    },
    "ncm-whitened": (
        NCMForestClassifier,
        {"strategy": "rtst", "memory": 500, "metric": "whitened", "side_search": 64},
    ),
    "few": (FewShotForestClassifier, {}),
    "few-small": (FewShotForestClassifier, {"memory": 300, "few_rows": 20, "regrow": 0.2}),
    "auto": (AutoForestClassifier, {}),
    "auto-bounded": (
        AutoForestClassifier,
        {"ring_rows": 1_000, "max_ring_bytes": 200_000, "max_nodes": 201, "memory": 500},
    ),
}


def _digits() -> tuple[Any, Any]:
    stream = schedule(load("digits"), order="random", first=2, every=200, seed=7)
    return stream.X[:ROWS], list(stream.y[:ROWS])


STREAMS = {
    "growing": lambda: growing_stream(ROWS),
    "blobs": lambda: blobs(ROWS, 6, 8, seed=4),
    "digits": _digits,
}


def _hash(arrays: Iterable[Any]) -> str:
    """Of the content of arrays, whatever they are called and in whatever order they stand."""
    parts = [
        hashlib.sha256(f"{a.dtype.str} {a.shape}".encode() + np.ascontiguousarray(a).tobytes())
        for a in arrays
    ]
    return hashlib.sha256(b"".join(sorted(part.digest() for part in parts))).hexdigest()[:20]


def _versions() -> dict[str, str]:
    packages = ("numpy", "numba", "llvmlite")
    return {"machine": platform.machine(), **{name: version(name) for name in packages}}


def _bits(forest: str, stream: str) -> dict[str, str]:
    kind, params = FORESTS[forest]
    X, y = STREAMS[stream]()
    model = kind(n_trees=5, seed=11, **params)
    answers = hashlib.sha256()
    for start in range(0, len(y), 500):
        answers.update(model.advance(X[start : start + 500], y[start : start + 500]).tobytes())
    return {"answers": answers.hexdigest()[:20], "state": _hash(model._dump().values())}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("forest", FORESTS)
def test_answers_and_state_are_those_of_before(forest: str, stream: str) -> None:
    kept = json.loads(FILE.read_text()) if FILE.exists() else {"bits": {}}
    bits = _bits(forest, stream)
    if RENEW:
        kept["versions"] = _versions()
        kept["bits"][f"{forest}/{stream}"] = bits
        FILE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        return
    if kept["versions"]["machine"] != platform.machine():
        pytest.skip(
            f"the hashes are of {kept['versions']['machine']}, and bits of one architecture"
        )
    told = f"hashes of {kept['versions']}, here {_versions()}"
    assert bits == kept["bits"][f"{forest}/{stream}"], told
