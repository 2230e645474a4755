"""Compiling: once per machine, with a word to the user, and only what is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamforest.kernels.core import compiling
from streamforest.kernels.core.compiling import Announced

SCRIPT = """
from streamforest import ConsistentForestClassifier
model = ConsistentForestClassifier(n_trees=1, seed=1)
for k in range(20):
    model.predict_one({"a": k})
    model.learn_one({"a": k}, k % 2)
"""


def test_a_slow_first_call_is_explained_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STREAMFOREST_QUIET", raising=False)
    monkeypatch.setattr(compiling, "_NOTICE_AFTER", 0.0)

    def slow(x: int) -> int:
        deadline = time.monotonic() + 10
        while "compiling" not in seen() and time.monotonic() < deadline:
            time.sleep(0.01)
        return x

    text = ""

    def seen() -> str:
        nonlocal text
        text += capsys.readouterr().err
        return text

    kernel = Announced(slow, "test")
    assert kernel.run(3) == 3
    assert text.count("compiling the test kernels") == 1
    assert kernel.run is slow  # nothing is left in the way


def test_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")
    compiling._say("hello")
    assert capsys.readouterr().err == ""


def test_the_first_start_compiles_what_it_uses_and_the_next_loads_it(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "STREAMFOREST_QUIET"}
    env["NUMBA_CACHE_DIR"] = str(tmp_path)

    def start() -> str:
        command = [sys.executable, "-c", SCRIPT]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stderr

    assert "compiling the consistent forest kernels" in start()
    cached = {path.name.split(".")[0] for path in tmp_path.rglob("*.nbi")}
    assert "consistent" in cached
    assert not cached & {"online", "flat"}
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")}
    start()
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")}
    assert after == before  # nothing was compiled again


def test_the_caches_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    others = [tmp_path / f"kernels-{k:016}" for k in range(12)]
    for k, other in enumerate(others):
        other.mkdir()
        os.utime(other, (100 + k, 100 + k))
    os.utime(others[0], (200, 200))  # made first, and in use
    own = compiling._cache_folder()
    assert {*tmp_path.iterdir()} == {own, others[0], *others[-6:]}
    os.utime(own, (1, 1))
    compiling._cache_folder()
    assert own.stat().st_mtime > 200


def test_another_environment_loads_what_this_one_compiled(tmp_path: Path) -> None:
    """The cache goes by the sources, not by where they are installed or when they were written."""
    first = Path(compiling.__file__).parents[3]
    second = tmp_path / "another"
    shutil.copytree(
        first / "streamforest", second / "streamforest", ignore=shutil.ignore_patterns("*.pyc")
    )
    for path in second.rglob("*.py"):
        os.utime(path, (0, 0))
    cache = tmp_path / "cache"
    script = "from streamforest.kernels.core.rng import mix; import numpy; mix(numpy.uint64(1))"

    def compiled_after_a_start(at: Path) -> dict[Path, int]:
        env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(at)}
        subprocess.run([sys.executable, "-c", script], env=env, check=True, cwd=tmp_path)
        return {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")}

    compiled = compiled_after_a_start(first)
    assert compiled
    assert compiled_after_a_start(second) == compiled
