"""A cluster of three brokers in trouble: killed, hung, cut off, without enough copies."""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from integration.feed import events
from integration.oracle import read_all
from integration.test_running import Case, done
from integration.waiting import get, until
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource

from streamforest.io.codec.dead_letters import TRUNCATED
from streamforest.io.kafka.clients import ask, connect
from streamforest.testing import Consumer
from streamforest.testing.broker.cluster import Cluster
from streamforest.testing.broker.server import Broker, free_port


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
        assert commits.longest < 15, consumer.log()[-6000:]
    return commits.longest


@pytest.mark.slow
@pytest.mark.parametrize("node", [0, 1, 2])
@pytest.mark.parametrize("time", range(3))
def test_any_hung_broker_stops_predictions_for_seconds(
    case: Case, kafka_cluster: Cluster, node: int, time: int
) -> None:
    longest = hang(case, kafka_cluster, node, 25)
    print(f"node {node + 1}, time {time}: no commit for {longest:.1f} s")


def test_a_cut_network_is_told_and_survived(kafka_cluster: Cluster, tmp_path: Path) -> None:
    """Nothing comes back, and no connection is closed: as behind a firewall that drops everything."""
    with kafka_cluster.proxied() as proxies:
        case = Case(kafka_cluster, tmp_path)  # type: ignore[arg-type]
        text = case.path.read_text(encoding="utf-8")
        servers = ",".join(proxy.servers for proxy in proxies)
        case.path.write_text(text.replace(kafka_cluster.servers, servers), encoding="utf-8")
        case.feed(300)
        with case.consumer() as consumer:
            until(lambda: case.get("/readyz")[0] == 200)
            for proxy in proxies:
                proxy.cut()
            until(lambda: case.get("/readyz")[0] == 503, 30)
            case.feed(300, seed=1)
            for proxy in proxies:
                proxy.mend()
            until(lambda: case.get("/readyz")[0] == 200)
            until(lambda: done(case, 600))
            assert consumer.stop() == 0, consumer.log()[-3000:]
        case.judge()


@pytest.mark.slow
def test_a_record_over_100_mb_is_a_dead_letter(tmp_path: Path) -> None:
    most = 130 << 20
    settings = {"socket.request.max.bytes": str(most), "message.max.bytes": str(most)}
    with Broker(settings=settings, heap=1_500) as broker:
        case = Case(broker, tmp_path)
        case.feed(100)
        producer = KafkaProducer(bootstrap_servers=broker.servers, max_request_size=most)
        producer.send(case.events, b'"' + b"a" * (110 << 20) + b'"', partition=0).get(timeout=120)
        producer.close()
        case.feed(100, seed=1)
        with case.consumer() as consumer:
            consumer.until_ready(300)
            consumer.until(lambda _: done(case, 201), 120)
            assert consumer.stop() == 0, consumer.log()[-3000:]
        answers = {
            topic: [
                record
                for several in read_all(broker.servers, f"{case.name}.{topic}").values()
                for record in several
            ]
            for topic in ("predictions", "dlq")
        }
        assert sum(map(len, answers.values())) == 201
        (large,) = [r for r in answers["dlq"] if TRUNCATED in dict(r.headers)]
        assert len(large.value) < 1 << 20  # its beginning; the rest is where it was


_JUMPING = """
import os, time
real, at = time.time, os.environ["TESTED_CLOCK"]
time.time = lambda: real() + float(open(at).read() or 0)
"""


@pytest.mark.slow
def test_a_clock_that_jumps_changes_no_prediction(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ahead and back: time-outs and the order of events do not depend on it. A broker takes no message that
    is more than an hour ahead: that is told, and passes when the clock is put right.
    """
    offset = tmp_path / "offset"
    offset.write_text("0", encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(_JUMPING, encoding="utf-8")
    monkeypatch.setenv("TESTED_CLOCK", str(offset))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    case = Case(kafka_broker, tmp_path)
    with Consumer(case.path, folder=tmp_path) as consumer:
        consumer.until_ready(300)
        for seed, jump in enumerate((0, 3_000, -86_400)):
            offset.write_text(str(jump), encoding="utf-8")
            case.feed(100, seed=seed)
            until(lambda seed=seed: done(case, 100 * seed + 100), 30)  # type: ignore[misc]
            assert case.get("/readyz")[0] == 200
        offset.write_text("86400", encoding="utf-8")
        case.feed(100, seed=3)
        until(lambda: "InvalidTimestamp" in case.get("/readyz")[1], 60)
        offset.write_text("0", encoding="utf-8")
        until(lambda: done(case, 400) and case.get("/readyz")[0] == 200, 60)
        assert consumer.stop() == 0, consumer.log()[-3000:]
        assert "joining again" not in consumer.log()
    case.judge()


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


def test_a_start_after_a_kill_and_commits_that_do_not_happen(
    case: Case, kafka_cluster: Cluster
) -> None:
    """Started at the moment of a kill, owner and standby become ready. Then the topic of the predictions
    demands all three copies (min.insync.replicas): nothing can be committed, and both say so.
    """
    case.feed(200)
    kafka_cluster.nodes[0].kill()
    other = free_port()
    with case.consumer() as owner, case.consumer("--set", f"metrics.port={other}") as standby:

        def asked(port: int, path: str = "/readyz") -> tuple[int, str]:
            return get(f"http://127.0.0.1:{port}{path}")

        until(lambda: asked(case.port)[0] == asked(other)[0] == 200 and done(case, 200))
        told = {port: asked(port)[1] for port in (case.port, other)}
        owns, follows = sorted(told, key=lambda port: "standby" in told[port])
        set_copies(case, 3)
        case.feed(200, seed=1)
        until(lambda: asked(owns)[0] == asked(follows)[0] == 503, 60)
        assert re.search("no commit for .* while records wait|NotEnoughReplicas", asked(owns)[1])
        assert re.search(
            r"the owner has made no commit for \d+ s while records wait", asked(follows)[1]
        )
        for port in (owns, follows):
            (line,) = re.findall(
                r"\nstreamforest_uncommitted_seconds (.*)", asked(port, "/metrics")[1]
            )
            assert float(line) > 5.1
        set_copies(case, 2)
        until(lambda: asked(owns)[0] == asked(follows)[0] == 200 and done(case, 400))
        assert owner.stop() == standby.stop() == 0
    case.judge()


def set_copies(case: Case, count: int) -> None:
    """How many copies of a prediction must be there before a commit can be."""
    settings = {"min.insync.replicas": str(count)}
    change = ConfigResource("TOPIC", f"{case.name}.predictions", settings)
    ask(case.servers, lambda client: client.alter_configs([change]))


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
