"""A real Apache Kafka on loopback, for development and tests: one node, one Java process, one folder.

A `Broker` can be started, stopped, killed and started again with the same folder and port. It listens on
127.0.0.1 only.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamforest.errors import BrokerError
from streamforest.testing.broker import download
from streamforest.testing.broker.security import LISTENERS, BrokerSecurity

HOST = "127.0.0.1"
DEFAULT_PORT = 9092
_SERVER_PORTS = (12_000, 32_000)  # below those of clients on Linux, macOS and Windows
_STARTED = "Kafka Server started"
_PLAIN = re.compile(rf"(?<=[=,])PLAINTEXT://{re.escape(HOST)}:[0-9]+")
_JVM = (
    "-Xms64m -Xmx{heap}m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k "
    "-XX:ReservedCodeCacheSize=48m -Dorg.slf4j.simpleLogger.showThreadName=false"
)
_PROPERTIES = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}{listeners}
advertised.listeners=PLAINTEXT://{host}:{port}{advertised}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}
controller.quorum.voters=1@{host}:{controller}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=1
num.io.threads=2
background.threads=2
log.dirs={logs}
"""


@dataclass(frozen=True)
class Status:
    """The state of the broker of a folder."""

    running: bool
    servers: str
    pid: int
    folder: Path


class Broker:
    """One node in one folder.

    Parameters
    ----------
    folder
        Holds properties, data and log; None gives a temporary folder, removed at the end.
    port
        0 takes a free one. None keeps the folder's own, or takes a free one if it has none.
    settings
        Further lines of `server.properties`.
    heap
        Megabytes of Java heap.
    security
        Certificates and users: opens the listeners of `at` besides the plaintext one, and requires ACLs.
    cluster_id
        Of the cluster to which the node belongs; None makes one for it alone.
    """

    def __init__(
        self,
        folder: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        heap: int = 256,
        security: BrokerSecurity | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.ephemeral = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="streamforest-broker-"))
        self._settings = dict(settings or {})
        self._heap = heap
        self._security = security
        self._cluster_id = cluster_id or new_cluster_id()
        known = self._state()
        self.port = int((known.get("port") if port is None else port) or free_port())
        self._ports = {
            name: int(known.get(name) or free_port()) for name in (LISTENERS if security else ())
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """The address to which clients connect."""
        return f"{HOST}:{self.port}"

    def at(self, listener: str) -> str:
        """The address of a secured listener: one of `security.LISTENERS`."""
        assert self._security is not None, "this broker was started without security"
        return f"{self._security.host}:{self._ports[listener]}"

    @property
    def log(self) -> Path:
        """The broker's own log."""
        return self.folder / "broker.log"

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self, timeout: float = 90.0) -> None:
        """Start the node and wait until it serves."""
        if self.status().running:
            raise BrokerError(f"a broker runs in {self.folder} already, at {self.status().servers}")
        java, libs = download.java(), download.jars()
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        if not can_listen(self.port):  # before anything is written for it
            raise BrokerError(f"port {self.port} is taken: give another one with --port")
        if not properties.exists():
            self._format(java, libs, properties)
        self._move(properties)
        jvm = _JVM.format(heap=self._heap).split()
        if self._security is not None:
            jvm += self._security.jvm
        with self.log.open("ab") as log:
            begun = log.tell()
            self._process = subprocess.Popen(
                [java, *jvm, "-cp", f"{libs}/*", "kafka.Kafka", str(properties)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._write_state(self._process.pid)
        try:
            self._await(begun, timeout)
        except KeyboardInterrupt:
            self.stop()  # nobody else would: for the caller it has not started
            raise

    def _format(self, java: str, libs: Path, properties: Path) -> None:
        """Write the properties and format the storage folder, which fixes the node's identity."""
        logs = self.folder / "data"
        name = HOST if self._security is None else self._security.host
        ports = self._ports.items()
        text = _PROPERTIES.format(
            host=HOST,
            port=self.port,
            controller=free_port(),
            logs=logs,
            listeners="".join(f",{key.upper()}://{HOST}:{port}" for key, port in ports),
            advertised="".join(f",{key.upper()}://{name}:{port}" for key, port in ports),
            protocols="".join(f",{key.upper()}:{LISTENERS[key]}" for key in self._ports),
        )
        settings, credentials = self._settings, []
        if self._security is not None:
            settings = {**self._security.properties(), **settings}
            credentials = self._security.credentials()
        text += "".join(f"{key}={value}\n" for key, value in settings.items())
        fresh = properties.with_suffix(".tmp")
        fresh.touch(mode=0o600)  # it contains the passwords of PLAIN
        fresh.write_text(text, encoding="utf-8")
        command = [java, "-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", f"{libs}/*"]
        command += ["kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(fresh)]
        command += credentials
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise BrokerError(f"the broker's storage was not formatted: {done.stderr.strip()}")
        fresh.rename(properties)

    def _move(self, properties: Path) -> None:
        """Make a folder that was formatted for another port listen at this one."""
        written = properties.read_text(encoding="utf-8")
        moved = _PLAIN.sub(f"PLAINTEXT://{HOST}:{self.port}", written)
        if moved != written:
            fresh = properties.with_suffix(".tmp")
            fresh.touch(mode=0o600)
            fresh.write_text(moved, encoding="utf-8")
            fresh.rename(properties)

    def _await(self, begun: int, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        assert self._process is not None
        while time.monotonic() < deadline:
            with self.log.open("rb") as log:
                log.seek(begun)
                text = log.read().decode(errors="replace")
            if _STARTED in text:
                return
            if self._process.poll() is not None:
                raise BrokerError(
                    f"the broker ended while starting (code {self._process.returncode}); "
                    f"its log is {self.log}"
                )
            time.sleep(0.05)
        self.kill()
        raise BrokerError(f"the broker did not start within {timeout:.0f} s; see {self.log}")

    def status(self) -> Status:
        """Whether the node of this folder runs."""
        known = self._state()
        pid = int(known.get("pid") or 0)
        if self._process is not None and self._process.pid == pid:
            running = self._process.poll() is None
        else:
            running = _is_ours(pid, self.folder)
        servers = f"{HOST}:{known['port']}" if running and "port" in known else self.servers
        return Status(running, servers, pid, self.folder)

    def stop(self, timeout: float = 30.0) -> bool:
        """Stop the node cleanly; False if none was running."""
        was = self._signal(signal.SIGTERM, timeout)
        if self.ephemeral:
            shutil.rmtree(self.folder, ignore_errors=True)
        return was

    def kill(self) -> None:
        """Kill the node with SIGKILL."""
        self._signal(signal.SIGKILL, 30.0)

    def freeze(self) -> None:
        """Make the node hang with SIGSTOP: its connections stay open, and nothing is answered."""
        os.kill(self.status().pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a node that hangs go on."""
        if self.status().running:
            os.kill(self.status().pid, signal.SIGCONT)

    def _signal(self, number: signal.Signals, timeout: float) -> bool:
        status = self.status()
        if not status.running:
            return False
        os.kill(status.pid, number)
        deadline = time.monotonic() + timeout
        while self.status().running:
            if time.monotonic() > deadline:
                os.kill(status.pid, signal.SIGKILL)
                deadline += timeout
            time.sleep(0.02)
        return True

    def _state(self) -> dict[str, int]:
        return _read_state(self.folder)

    def _write_state(self, pid: int) -> None:
        text = json.dumps({"pid": pid, "port": self.port, **self._ports})
        (self.folder / "broker.json").write_text(text, encoding="utf-8")


def new_cluster_id() -> str:
    """An id for a cluster; the storage tool takes none that begins with a dash."""
    return "S" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


def default_folder() -> Path:
    """The folder of the node that `streamforest broker start` starts."""
    return download.cache_folder() / "broker"


def has_port(folder: Path) -> bool:
    """Whether a broker has run in this folder before, and so has a port."""
    return bool(_read_state(folder).get("port"))


def _read_state(folder: Path) -> dict[str, int]:
    try:
        with (folder / "broker.json").open("rb") as file:
            state = json.loads(file.read(65_536))
    except (OSError, ValueError, RecursionError):
        return {}
    known = state.items() if isinstance(state, dict) else ()
    return {name: value for name, value in known if type(value) is int and 0 <= value < 1 << 31}


def _is_ours(pid: int, folder: Path) -> bool:
    """Whether the process with this id is the broker of `folder`: the system reuses ids."""
    if pid <= 0:
        return False
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return str(folder / "server.properties").encode() in file.read()
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
    except OSError:
        return False
    listed = subprocess.run(  # no /proc on this system
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True
    )
    return str(folder / "server.properties") in listed.stdout


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens, to be used later, and again after a restart.

    It is not one of those that the system gives to clients: one of them could take it meanwhile.
    """
    draw = random.SystemRandom()
    for _ in range(1_000):
        port = draw.randrange(*_SERVER_PORTS)
        if can_listen(port):
            return port
    raise BrokerError(f"no free port of {HOST} between {_SERVER_PORTS[0]} and {_SERVER_PORTS[1]}")


def can_listen(port: int, host: str = HOST) -> bool:
    """Whether a server may listen at a port of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
