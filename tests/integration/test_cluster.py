"""A cluster of three brokers in trouble: killed, hung, cut off, without enough copies."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from integration.feed import events
from integration.test_running import Case
from integration.waiting import get, until
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from streamforest.io.kafka.clients import connect
from streamforest.testing.broker.cluster import Cluster


@pytest.fixture
def case(kafka_cluster: Cluster, tmp_path: Path) -> Case:
    """A pipeline on the cluster."""
    return Case(kafka_cluster, tmp_path)  # type: ignore[arg-type]


@contextmanager
def feeding(case: Case) -> Iterator[None]:
    """Events all the time, as fast as the cluster takes them, in both partitions."""
    ended = threading.Event()
    producer = KafkaProducer(
        bootstrap_servers=case.servers, acks="all", linger_ms=20, request_timeout_ms=5_000
    )

    def work() -> None:
        values = itertools.chain.from_iterable(events(500, seed=seed) for seed in itertools.count())
        for number, value in enumerate(values):
            if ended.wait(0.02):
                return
            producer.send(case.events, value, partition=number % 2)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        producer.close(timeout=30)


class Commits:
    """Watches the commits of a pipeline: the longest time between two."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._count, self._since = self.count(), time.monotonic()
        self.longest = 0.0

    def count(self) -> float:
        """How many there were."""
        for line in get(f"http://127.0.0.1:{self._case.port}/metrics")[1].splitlines():
            if line.startswith("streamforest_commits_total"):
                return float(line.split()[-1])
        return 0.0

    def watch(self, seconds: float) -> None:
        """Look for so long, and until there is one more after that."""
        deadline, one_more = time.monotonic() + seconds, False
        while time.monotonic() < deadline or not one_more:
            count, now = self.count(), time.monotonic()
            assert now < deadline + 120, "no more commits"
            if count != self._count:
                self.longest = max(self.longest, now - self._since)
                self._count, self._since, one_more = count, now, now > deadline
            time.sleep(0.05)


def test_clients_connect_while_a_broker_hangs(kafka_cluster: Cluster) -> None:
    """kafka-python by itself: three of ten fail after ten seconds."""
    kafka_cluster.nodes[1].freeze()
    longest = 0.0
    for maker in (KafkaConsumer, KafkaProducer, KafkaAdminClient, KafkaConsumer) * 5:
        begun = time.monotonic()
        connect(maker, kafka_cluster.servers).close()
        longest = max(longest, time.monotonic() - begun)
    assert longest < 5


def hang(case: Case, cluster: Cluster, node: int, seconds: float) -> float:
    """The longest time without a commit while a node hangs."""
    with case.consumer() as consumer, feeding(case):
        consumer.until_ready()
        commits = Commits(case)
        until(lambda: commits.count() > 5)
        commits.watch(1)
        cluster.nodes[node].freeze()
        try:
            commits.watch(seconds)
        finally:
            cluster.nodes[node].thaw()
        assert consumer.stop() == 0, consumer.log()[-3000:]
    return commits.longest


def test_a_hung_broker_stops_predictions_for_seconds(case: Case, kafka_cluster: Cluster) -> None:
    assert hang(case, kafka_cluster, 0, 12) < 15


@pytest.mark.slow
@pytest.mark.parametrize("node", [0, 1, 2])
@pytest.mark.parametrize("time", range(3))
def test_any_hung_broker_stops_predictions_for_seconds(
    case: Case, kafka_cluster: Cluster, node: int, time: int
) -> None:
    longest = hang(case, kafka_cluster, node, 25)
    print(f"node {node + 1}, time {time}: no commit for {longest:.1f} s")
    assert longest < 15


def start_after_kill(case: Case, cluster: Cluster, node: int, seconds: float) -> float:
    """Seconds until a consumer is ready that is started so long after a node was killed."""
    cluster.nodes[node].kill()
    time.sleep(seconds)
    begun = time.monotonic()
    with case.consumer() as consumer:
        consumer.until_ready(90)
        taken = time.monotonic() - begun
        assert consumer.stop() == 0, consumer.log()[-3000:]
    return taken


def test_a_start_at_the_moment_of_a_kill_becomes_ready(case: Case, kafka_cluster: Cluster) -> None:
    case.feed(200)
    start_after_kill(case, kafka_cluster, 0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 2.0, 5.0])
def test_any_start_after_a_kill_becomes_ready(
    kafka_cluster: Cluster, tmp_path: Path, seconds: float
) -> None:
    for attempt in range(10):
        kafka_cluster.heal()
        folder = tmp_path / str(attempt)
        folder.mkdir()
        case = Case(kafka_cluster, folder)  # type: ignore[arg-type]
        case.feed(200)
        taken = start_after_kill(case, kafka_cluster, attempt % 3, seconds)
        print(f"{seconds:.0f} s after the kill of node {attempt % 3 + 1}: ready in {taken:.1f} s")
