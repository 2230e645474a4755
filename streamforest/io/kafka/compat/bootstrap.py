"""How a client finds its cluster, also while a broker of it hangs or has just died.

kafka-python draws one address and gives it all the time there is: if that broker hangs, the client fails
though two others would have answered. It then asks any node for metadata, coordinators and topics, and waits
ten seconds for one that does not answer. Here

- addresses are asked side by side, each next one after a moment, and the first that answers is taken;
- questions that any node can answer go to one that has answered before and owes no answer; they are given
  up after a few seconds, so that another node is asked;
- a connection that is not made within a few seconds is given up, too;
- so is everything that was asked of a broker, as soon as the cluster no longer lists it. Kafka does so after
  nine seconds (`broker.session.timeout.ms`); a request that was sent by then would wait for its own ten.

Everything else is kafka-python's own. Without this, three of ten clients fail while one broker of three hangs
(`test_clients_connect_while_a_broker_hangs` in `tests/integration/test_cluster.py`).
"""

from __future__ import annotations

import random
import time
from typing import Any

from kafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.wakeup_notifier import WakeupNotifier
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

_STAGGER = 0.3  # seconds after which the next address is asked as well
_OVERDUE = (
    1.5  # seconds without an answer after which a node is asked nothing that others could answer
)
_LOOK = 1.0  # seconds between two looks for answers that are overdue
_LOOKUP_MS = 4_000  # for an answer that any node could give
_ROUND = 1.0  # seconds between two rounds over the addresses
_SETUP = {
    "socket_connection_setup_timeout_ms": 3_000,
    "socket_connection_setup_timeout_max_ms": 10_000,
}


def network_client(**configs: Any) -> Any:
    """The network client of a consumer, a producer or an admin."""
    net = NetworkSelector(**configs)
    return KafkaNetClient(net=net, manager=Connections(net, **{**configs, **_SETUP}))


class Connections(KafkaConnectionManager):  # type: ignore[misc]
    """kafka-python's connections, with another way to the first and to the least busy one."""

    _good: tuple[str, int] | None = None
    """Where the node listens that answered when the client began."""

    def __init__(self, net: Any, **configs: Any) -> None:
        super().__init__(net, **configs)
        self.cluster.add_listener(self._drop_unlisted)
        self._look()

    def _look(self) -> None:
        """Now and then: while an answer is overdue, ask which brokers the cluster still counts on."""
        if self.closed:
            return
        if self.bootstrapped and self._overdue(initializing=False):
            self.cluster.request_update()
        self._net.call_later(_LOOK, self._look)

    def _drop_unlisted(self, cluster: Any) -> None:
        """Give up what was asked of brokers that the cluster has given up: others have their work now."""
        listed = {node.node_id for node in cluster.brokers()}
        for node_id, connection in list(self._conns.items()):
            number = str(node_id).removeprefix("coordinator-")
            if number.isdigit() and int(number) not in listed and self._is_late(connection):
                connection.close(KafkaConnectionError(f"broker {number} is gone from the cluster"))

    async def _do_bootstrap(self, deadline: float | None) -> bool:
        """Ask all addresses, each next one after a moment, until one answers or it is time."""
        while not self.closed and (deadline is None or time.monotonic() < deadline):
            begun = time.monotonic()
            brokers = self.cluster.bootstrap_brokers()
            random.shuffle(brokers)  # not all clients to one broker
            response, broker = await self._first_answer(brokers, deadline)
            for other in brokers:
                connection = self._conns.pop(other.node_id, None)
                if connection is not None:
                    connection.close()
                self.reset_backoff(other.node_id)
            if response is not None and response.brokers:
                self._good = broker.host, broker.port
                self.cluster.update_metadata(response)
                self.cluster.start_refresh_loop()
                return True
            pause = begun + _ROUND - time.monotonic()
            if deadline is not None:
                pause = min(pause, deadline - time.monotonic())
            if pause > 0:
                await self._bootstrap_wakeup(pause)
        raise KafkaTimeoutError(f"Unable to bootstrap from {self.config['bootstrap_servers']}")

    async def _first_answer(self, brokers: list[Any], deadline: float | None) -> tuple[Any, Any]:
        """The first answer and whose it is; None if nobody answers."""
        wake = WakeupNotifier(self._net)
        asked: list[tuple[Any, Any]] = []
        for broker in [*brokers, None]:
            limit = deadline
            if broker is not None:
                question = self.call_soon(self._ask, broker, deadline)
                question.add_both(lambda _: wake.notify())
                asked.append((question, broker))
                limit = time.monotonic() + _STAGGER
            while True:
                for question, one in asked:
                    if question.succeeded():
                        return question.value, one
                    if isinstance(question.exception, IncompatibleBrokerVersion):
                        raise question.exception
                left = None if limit is None else limit - time.monotonic()
                if all(question.is_done for question, _ in asked) or (left or 1) < 0:
                    break
                await wake(left)
        return None, None

    async def _ask(self, broker: Any, deadline: float | None) -> Any:
        """The metadata that one address gives."""
        left = None if deadline is None else max(1.0, 1000 * (deadline - time.monotonic()))
        connection = self.get_connection(
            broker.node_id,
            timeout_ms=left,
            pop_on_close=False,
            refresh_metadata_on_err=False,
            reset_backoff_on_connect=False,
        )
        await connection
        return await connection.send_request(
            self.cluster.metadata_request(), request_timeout_ms=left
        )

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: Any = None) -> Any:
        """kafka-python's own; what any node could answer is given up sooner."""
        if request_timeout_ms is None and isinstance(
            request, FindCoordinatorRequest | MetadataRequest
        ):
            request_timeout_ms = min(_LOOKUP_MS, self.config["request_timeout_ms"])
        return super().send(request, node_id, request_timeout_ms)

    def least_loaded_node(self) -> Any:
        """The node to ask what any could answer: connected, not busy, and one that has answered."""
        nodes = self.cluster.brokers()
        random.shuffle(nodes)
        overdue = self._overdue()
        ranks = []
        for node in nodes:
            connection = self._conns.get(node.node_id)
            if (connection and connection.paused) or self.connection_delay(node.node_id) > 0:
                continue
            place = node.host, node.port
            connected = connection is not None and connection.connected
            waiting = 0 if connection is None else len(connection.in_flight_requests)
            rank = (place in overdue, not connected, waiting, place != self._good)
            ranks.append((rank, node.node_id))
        return min(ranks, key=lambda one: one[0])[1] if ranks else None

    def _overdue(self, initializing: bool = True) -> set[tuple[str, int]]:
        """Where nodes listen that have owed an answer for a while, or are being connected to."""
        found = set()
        for node_id, connection in list(self._conns.items()):
            node = self.cluster.broker_metadata(node_id)
            waits = initializing and connection.initializing
            if node is not None and (waits or self._is_late(connection)):
                found.add((node.host, node.port))
        return found

    @staticmethod
    def _is_late(connection: Any) -> bool:
        """Whether the oldest request has had no answer for a while."""
        flying = connection.in_flight_requests
        return bool(flying) and flying[0][2] < time.monotonic() - _OVERDUE
