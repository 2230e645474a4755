"""A consumer as a process, on a real broker: stopped, crashed, stalled, and with its broker away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from integration.feed import events, send
from integration.oracle import committed, judge, read_all
from integration.waiting import get, until

from streamforest import ConsistentForestClassifier
from streamforest.io.kafka.clients import admin
from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.loop import Run
from streamforest.testing.broker.server import Broker, free_port
from streamforest.testing.forked import ForkedConsumer

PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
session_timeout_ms = 2000
delivery = "{delivery}"
[model]
kind = "consistent"
n_trees = 3
[run]
batch_size = 50
commit_interval_ms = 100
snapshot_interval_events = 400
folder = "{folder}"
[metrics]
port = {port}
"""


class Case:
    """A pipeline of its own with its topics of two partitions."""

    def __init__(self, broker: Broker, folder: Path, delivery: str = "exactly-once") -> None:
        self.servers, self.folder = broker.servers, folder
        self.name = f"running-{uuid.uuid4().hex[:8]}"
        self.events = f"{self.name}.events"
        self.port = free_port()
        ensure_topics(broker.servers, Topics.of(self.name), create=True, partitions=2)
        self.path = folder / "p.toml"
        text = PIPELINE.format(
            name=self.name,
            servers=broker.servers,
            delivery=delivery,
            folder=folder / "run",
            port=self.port,
        )
        self.path.write_text(text, encoding="utf-8")

    def feed(self, n: int, seed: int = 0) -> None:
        send(self.servers, self.events, events(n, seed=seed), 2)

    def consumer(self, *arguments: str, **settings: object) -> ForkedConsumer:
        return ForkedConsumer(self.path, *arguments, folder=self.folder, **settings)  # type: ignore[arg-type]

    def drain(self) -> None:
        with self.consumer("--drain") as last:
            last.expect_exit(0)

    def judge(self, repeats: bool = False) -> None:
        model = ConsistentForestClassifier(n_trees=3, seed=0)
        judge(self.servers, self.name, self.events, model, self.folder / "run", repeats=repeats)

    def get(self, path: str) -> tuple[int, str]:
        return get(f"http://127.0.0.1:{self.port}{path}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_commits_snapshots_and_leaves_the_group(
    kafka_broker: Broker, tmp_path: Path, number: signal.Signals
) -> None:
    case = Case(kafka_broker, tmp_path)
    case.feed(1_000)
    with case.consumer() as consumer:
        consumer.until_ready()
        until(lambda: 'outcome="predicted"} 0.0' not in case.get("/metrics")[1])
        os.kill(consumer.pid, number)
        consumer.expect_exit(0)
        assert f"Stopped by {number.name} after event" in consumer.log()
    standing = committed(case.servers, case.name, case.events)[0][1]
    assert standing["snapshot"] == f"s-{standing['events']:012d}"  # nothing to replay
    begun = time.monotonic()
    with case.consumer("--drain") as successor:
        successor.until_ready()
        waited = time.monotonic() - begun
        successor.expect_exit(0)
        assert "0 events advanced once more" in successor.log()
    assert waited < 20  # the group was left: nobody waited for a session to end
    case.judge()


@pytest.mark.parametrize("point", ["after-produce", "before-commit", "after-commit"])
def test_at_least_once_survives_a_crash_with_an_exact_model(
    kafka_broker: Broker, tmp_path: Path, point: str
) -> None:
    case = Case(kafka_broker, tmp_path, "at-least-once")
    case.feed(600)
    with case.consumer(failpoint=point, passes=3) as consumer:
        consumer.expect_exit(-signal.SIGKILL)
    case.drain()
    case.judge(repeats=True)
    published = sum(
        len(records)
        for topic in ("predictions", "dlq")
        for records in read_all(case.servers, f"{case.name}.{topic}").values()
    )
    if point == "after-commit":
        assert published == 600
    else:  # what it gives up: those of the commit that was cut short are there twice
        assert published > 600


def test_a_broker_that_hangs_or_dies_is_told_and_survived(tmp_path: Path) -> None:
    with Broker() as broker:
        case = Case(broker, tmp_path)
        case.feed(300)

        def owns(_: object) -> bool:
            return case.get("/readyz") == (200, "ready: owner of 2 partitions\n")

        with case.consumer() as consumer:
            consumer.until(owns, 120)
            pid = broker.status().pid
            os.kill(pid, signal.SIGSTOP)
            consumer.until(lambda c: case.get("/readyz")[0] == 503)
            assert "not ready: " in case.get("/readyz")[1]
            consumer.until(lambda c: logged(c) == (1, 0))
            assert "streamforest_ready 0.0" in case.get("/metrics")[1]
            assert case.get("/livez")[0] == 200
            os.kill(pid, signal.SIGCONT)
            consumer.until(owns, 120)
            consumer.until(lambda c: logged(c) == (1, 1))
            broker.kill()
            consumer.until(lambda c: case.get("/readyz")[0] == 503)
            consumer.until(lambda c: logged(c) == (2, 1))
            broker.start()
            consumer.until(owns, 120)
            consumer.until(lambda c: logged(c) == (2, 2))
            case.feed(300, seed=1)
            consumer.until(lambda c: done(case, 600), 120)
            assert consumer.stop() == 0, consumer.log()[-3000:]
        case.drain()
        case.judge()
        broker.kill()


@pytest.mark.parametrize("scope", ["topic", "partition"])
def test_a_stop_while_the_broker_is_waited_for_is_clean(tmp_path: Path, scope: str) -> None:
    path = tmp_path / "p.toml"
    text = PIPELINE.format(
        name="p", servers="127.0.0.1:9", delivery="exactly-once", folder=tmp_path / "run", port=0
    )
    path.write_text(text.replace("[model]", f'model_scope = "{scope}"\n[model]'), encoding="utf-8")
    with ForkedConsumer(path, folder=tmp_path) as consumer:
        consumer.until(lambda c: "no broker at 127.0.0.1:9: connection refused" in c.log())
        assert consumer.stop(10) == 0, consumer.log()
        assert "Stopped by SIGTERM: asked to stop while waiting for the broker" in consumer.log()


def logged(consumer: ForkedConsumer) -> tuple[int, int]:
    """How often the log says that the broker is gone, and that it is back."""
    messages = consumer.messages()
    return (
        sum(message.startswith("nothing can be committed now: ") for message in messages),
        sum(message.startswith("commits can be made again, after ") for message in messages),
    )


def done(case: Case, n: int) -> bool:
    """Whether all events are committed."""
    return sum(at for at, _ in committed(case.servers, case.name, case.events).values()) >= n


@pytest.mark.parametrize("seconds", [1, 3_600])
def test_a_partition_that_brings_nothing_is_fetched_anew(
    kafka_broker: Broker, tmp_path: Path, seconds: int
) -> None:
    """A fetch got lost: what kafka-python did after some rebalances, done here by hand."""
    case = Case(kafka_broker, tmp_path)
    case.feed(200)
    pipeline = load_pipeline(case.path, {}, [f"kafka.stall_seconds={seconds}", "metrics.port=0"])
    deadline: list[float] = []

    def stall(run: Run) -> None:
        if run.events >= 200 and not deadline:
            deadline.append(time.monotonic() + (60 if seconds == 1 else 6))
            consumer = run.log.membership.assignment.consumer  # type: ignore[attr-defined]
            consumer.pause(*consumer.assignment())
            case.feed(100, seed=1)

    with opened(pipeline) as run:
        run.consume(
            max_events=300, stop=lambda: any(time.monotonic() > at for at in deadline), watch=stall
        )
        assert run.events == (300 if seconds == 1 else 200)


def test_a_broker_interrupted_while_it_starts_leaves_nothing_behind(
    kafka_broker: Broker, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-c",
        "from streamforest.__main__ import main; main()",
        "broker",
        "start",
    ]
    process = subprocess.Popen(
        [*command, "--ephemeral", "--port", "0"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
    )
    until(lambda: any(tmp_path.glob("*/broker.json")))
    (state,) = tmp_path.glob("*/broker.json")
    until(lambda: state.read_text().endswith("}"))
    pid = json.loads(state.read_text())["pid"]
    process.terminate()
    assert process.wait(60) in (0, 130)
    assert not Path(f"/proc/{pid}").exists()
    assert not state.exists()


def test_partitions_grow_under_a_running_consumer(kafka_broker: Broker, tmp_path: Path) -> None:
    case = Case(kafka_broker, tmp_path)
    case.feed(200)
    with case.consumer() as consumer:
        consumer.until_ready()
        client = admin(case.servers)
        client.create_partitions({case.events: 3})
        client.close()
        send(case.servers, case.events, events(90, seed=9), 3)
        until(lambda: len(committed_now(case)) == 3 and done(case, 290))
        assert consumer.stop() == 0
    case.judge()


def committed_now(case: Case) -> dict[int, object]:
    """Partitions that have a commit."""
    try:
        return dict(committed(case.servers, case.name, case.events))
    except AttributeError:  # a partition without one
        return {}
