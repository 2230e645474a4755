"""Three nodes of Apache Kafka on loopback, each broker and controller, for what one node cannot show.

A topic has three copies and takes a message if two of them have it: any one node may be killed, hang or be
restarted. `heal` undoes all that. Clients may also come through proxies (`proxied`), which cut the network.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from streamforest.errors import BrokerError
from streamforest.io.kafka.clients import asking
from streamforest.testing.broker import download
from streamforest.testing.broker.proxy import Proxy
from streamforest.testing.broker.server import HOST, Broker, free_port, new_cluster_id

NODES = 3
_INTERNAL_PARTITIONS = 4
_SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": str(_INTERNAL_PARTITIONS),
    "transaction.state.log.num.partitions": str(_INTERNAL_PARTITIONS),
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
}


class Cluster:
    """Three nodes in one folder, which is removed at the end unless it is named.

    `nodes[0]` is node 1, and so on; each is a `Broker`, to be killed, frozen or stopped by itself.
    """

    def __init__(
        self, folder: Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.ephemeral = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="streamforest-cluster-"))
        ports = [[free_port() for _ in range(4)] for _ in range(NODES)]
        self._proxied = [(behind, front) for _, _, behind, front in ports]
        voters = ",".join(f"{n}@{HOST}:{own[1]}" for n, own in enumerate(ports, 1))
        cluster_id = new_cluster_id()
        self.nodes = [
            Broker(
                self.folder / f"node-{n}",
                port,
                {
                    **_SETTINGS,
                    **(settings or {}),
                    "node.id": str(n),
                    "controller.quorum.voters": voters,
                    "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller},"
                    f"PROXIED://{HOST}:{behind}",
                    "advertised.listeners": f"PLAINTEXT://{HOST}:{port},PROXIED://{HOST}:{front}",
                },
                cluster_id=cluster_id,
            )
            for n, (port, controller, behind, front) in enumerate(ports, 1)
        ]

    @property
    def servers(self) -> str:
        """The addresses to which clients connect."""
        return ",".join(node.servers for node in self.nodes)

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the nodes that do not run, side by side, and wait until they serve."""
        download.jars()  # once, not in three threads
        self._each(lambda node: None if node.status().running else node.start())
        self._await(self.in_sync, 60.0)

    def stop(self) -> None:
        """Stop all nodes."""
        self._each(lambda node: node.thaw())
        self._each(lambda node: node.kill())  # nothing is kept, and a quorum ends slowly
        if self.ephemeral:
            shutil.rmtree(self.folder, ignore_errors=True)

    def heal(self) -> None:
        """Undo what was done to the nodes: all run, answer, and have every message."""
        self._each(lambda node: node.thaw())
        self.start()

    def in_sync(self) -> bool:
        """Whether all three nodes are known, and every copy of every topic is up to date."""
        with suppress(BrokerError), asking(self.servers) as client:
            if len(client.describe_cluster()["brokers"]) < NODES:
                return False
            topics = client.describe_topics(client.list_topics())
            copies = [part for topic in topics for part in topic["partitions"]]
            return all(len(part["isr_nodes"]) == len(part["replica_nodes"]) for part in copies)
        return False

    def leader(self, topic: str, partition: int = 0) -> Broker:
        """The node that leads a partition."""
        with asking(self.servers) as client:
            (described,) = client.describe_topics([topic])
        leaders: dict[int, int] = {
            part["partition_index"]: part["leader_id"] for part in described["partitions"]
        }
        return self.nodes[leaders[partition] - 1]

    def coordinator(self, group: str) -> Broker:
        """The node that coordinates a consumer group."""
        return self.leader("__consumer_offsets", _partition_of(group))

    def transaction_coordinator(self, transactional_id: str) -> Broker:
        """The node that decides the transactions of a producer."""
        return self.leader("__transaction_state", _partition_of(transactional_id))

    @contextmanager
    def proxied(self) -> Iterator[list[Proxy]]:
        """A proxy in front of each node; clients that begin there are sent from one to the other."""
        proxies = [Proxy(front, behind) for behind, front in self._proxied]
        try:
            yield proxies
        finally:
            for proxy in proxies:
                proxy.close()

    def _each(self, work: Callable[[Broker], object]) -> None:
        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(work, self.nodes))

    def _await(self, condition: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"the cluster in {self.folder} is not whole after {timeout:.0f} s"
                )
            time.sleep(0.2)


def _partition_of(name: str) -> int:
    """The partition of an internal topic that belongs to a group or a transactional id: by Java's hash.

    >>> _partition_of("shop"), _partition_of("polygenelubricants")
    (2, 0)
    """
    code = 0
    for letter in name:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    code -= (code >> 31) << 32
    return (0 if code == -(1 << 31) else abs(code)) % _INTERNAL_PARTITIONS
