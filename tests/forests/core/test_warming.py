"""Warming up works for every forest, however little room it has itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from streamforest.forests.core import registry


@pytest.mark.parametrize("kind", registry.kinds())
def test_a_forest_with_little_room_is_warmed_up(kind: str) -> None:
    made = registry.get(kind).load()
    forest = made(n_trees=2, max_classes=1, max_features=1, max_text_bytes=200, seed=1)
    forest.on_capacity = "error"
    forest.warm_up(first_events=True)
    forest.warm_up()
    assert forest.n_learned == 0


def test_a_cache_that_cannot_be_read_only_means_compiling() -> None:
    script = "from streamforest.kernels.core.rng import mix; import numpy; mix(numpy.uint64(1))"
    env = {**os.environ, "NUMBA_CACHE_DIR": "/dev/null/no-folder"}
    subprocess.run([sys.executable, "-c", script], env=env, check=True)
