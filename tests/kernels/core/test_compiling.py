"""Compiling: once per machine, with a word to the user, and only what is used."""

from __future__ import annotations

import ast
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from streamforest.kernels.core import beside, cache, compiling, linking, notice, packaging, rng
from streamforest.kernels.core.notice import Announced

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
    monkeypatch.setattr(notice, "_NOTICE_AFTER", 0.0)

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


def test_the_notice_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STREAMFOREST_QUIET", raising=False)
    monkeypatch.setattr(notice, "_NOTICE_AFTER", 0.0)
    monkeypatch.setattr(notice, "_FILE", 0.01)
    text = ""
    with notice.counting("test", 7):
        linking._Progress.functions += 3
        deadline = time.monotonic() + 10
        while "3 of 7 functions" not in text and time.monotonic() < deadline:
            text += capsys.readouterr().err
            time.sleep(0.01)
    assert "3 of 7 functions" in text


def test_a_second_process_compiles_what_the_cache_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(beside, "_cores", lambda: 2)
    monkeypatch.setattr(beside, "_second", beside._Second())
    script = "from streamforest.kernels.core.rng import mix; import numpy; mix(numpy.uint64(1))"
    assert not cache.is_compiled("core.rng")
    beside.start("core.rng", "test", script)
    beside.wait()
    assert cache.is_compiled("core.rng")
    first = beside._second.child
    assert first is not None
    assert first.returncode == 0
    monkeypatch.setattr(beside, "_second", beside._Second())
    beside.start("core.rng", "test", script)  # all there
    assert beside._second.child is None


def test_what_comes_first_is_waited_for_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(beside, "_cores", lambda: 2)
    monkeypatch.setattr(beside, "_second", beside._Second())
    beside.wait_for_first()  # there is none
    go_on = tmp_path / "go-on"
    script = (
        "import os, time\nprint(flush=True)\n"
        f"while not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n"
    )
    beside.start("core.rng", "test", script)
    beside.wait_for_first()
    child = beside._second.child
    assert child is not None
    assert child.poll() is None, "it goes on with the rest"
    go_on.touch()
    beside.wait()
    assert child.returncode == 0


def test_a_second_process_that_fails_is_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(beside, "_cores", lambda: 2)
    monkeypatch.setattr(beside, "_second", beside._Second())
    beside.start("core.rng", "test", "raise SystemExit(3)")
    beside.wait_for_first()
    beside.wait()
    beside.wait()
    failed = beside._second.child
    assert failed is not None
    assert failed.returncode == 3
    monkeypatch.setattr(beside, "_second", beside._Second())
    monkeypatch.setattr(beside, "_cores", lambda: 1)  # none on one core
    beside.start("core.rng", "test", "")
    assert beside._second.child is None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the name is of such a CPU")
def test_kernels_for_a_named_cpu_are_found_again(tmp_path: Path) -> None:
    script = (
        "from streamforest.kernels.core.rng import mix; import numpy; print(mix(numpy.uint64(1)))"
    )
    named = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}

    def start(cpu: dict[str, str]) -> tuple[str, dict[Path, int]]:
        env = {k: v for k, v in os.environ.items() if k not in named}
        env |= {"NUMBA_CACHE_DIR": str(tmp_path), **cpu}
        command = [sys.executable, "-c", script]
        said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        return said, {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")}

    said, compiled = start(named)
    assert len(compiled) == 2  # the index, and the code
    assert start(named) == (said, compiled)
    native, both = start({})
    assert native == said
    assert len(both) == 3  # this machine's own beside them


def test_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")
    notice._say("hello")
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
    assert not cached & {"fringe", "grow", "rng"}  # they are in the kernels that call them
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")}
    start()
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")}
    assert after == before  # nothing was compiled again


def test_the_versions_of_a_module_that_were_used_last_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    others = [tmp_path / "kernels" / "core.rng" / f"{k:016}" for k in range(12)]
    for k, other in enumerate(others):
        other.mkdir(parents=True)
        os.utime(other, (100 + k, 100 + k))
    os.utime(others[0], (200, 200))  # made first, and in use
    own = cache.folder("core.rng")
    assert {*own.parent.iterdir()} == {own, others[0], *others[-6:]}
    os.utime(own, (1, 1))
    cache.folder("core.rng")
    assert own.stat().st_mtime > 200


def test_a_change_concerns_the_modules_that_import_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directly, through another module, and by the three ways to write an import."""
    sources = {
        "core.a": "x = 1",
        "core.b": "from streamforest.kernels.core.a import x",
        "ncm.c": "from streamforest.kernels.core import (\n    b,\n)",
        "ncm.d": "import streamforest.kernels.ncm.c",
        "ncm.e": "import numpy",
    }
    for name, text in sources.items():
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(cache, "_KERNELS", tmp_path)

    def digests() -> dict[str, str]:
        cache.digest.cache_clear()
        return {name: cache.digest(name) for name in sources}

    before = digests()
    (tmp_path / "core" / "a.py").write_text("x = 2")
    after = digests()
    cache.digest.cache_clear()
    assert {name for name in sources if before[name] != after[name]} == {
        "core.a",
        "core.b",
        "ncm.c",
        "ncm.d",
    }


def test_every_import_of_a_kernel_module_is_seen() -> None:
    """The rule reads sources as text: it must find all that Python itself finds."""
    root = Path(cache.__file__).parent.parent
    for path in root.rglob("*.py"):
        text = path.read_text()
        seen = cache._imported(text)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "streamforest.kernels."
            ):
                module = str(node.module).removeprefix("streamforest.kernels.")
                assert {module, *(f"{module}.{name.name}" for name in node.names)} <= seen, path


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


_PACKAGED = """
import sys
from pathlib import Path
from streamforest.kernels.core import packaged
packaged.FOLDER = Path(sys.argv[1])
packaged.ABOUT = packaged.FOLDER / "cpu.json"
import numpy
from streamforest.kernels.core.rng import mix
mix(numpy.uint64(1))
"""


@pytest.mark.parametrize("able", [True, False])
def test_kernels_that_came_with_the_package_are_used(tmp_path: Path, able: bool) -> None:
    """Where the CPU can run them; elsewhere kernels are compiled, as without them."""
    rng.mix(np.uint64(1))  # compiled now, if not before
    about = packaging.built("host")
    needs = about.needs if able else ("no-cpu-can-do-this",)
    built = tmp_path / "packaged"
    shutil.copytree(cache.base_folder() / "core.rng", built / "core.rng")
    text = json.dumps({"name": about.name, "features": about.features, "needs": needs})
    (built / "cpu.json").write_text(text)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "own")}
    subprocess.run([sys.executable, "-c", _PACKAGED, str(built)], env=env, check=True)
    compiled = [path.name for path in (tmp_path / "own").rglob("*.nbc")]
    assert (compiled == []) == able, compiled


def test_the_levels_of_x86_contain_each_other() -> None:
    assert set(packaging.LEVELS["x86-64-v3"]) < set(packaging.LEVELS["x86-64-v4"])
