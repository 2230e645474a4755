"""Events of many partitions in the order it happened: as the file has them, as a backlog and live.

All partition counts with kills, and more events: python -m pytest -m slow tests/integration/test_order.py
"""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from integration.oracle import in_order, read_all
from kafka import KafkaProducer

from streamforest.io.kafka.clients import admin
from streamforest.io.kafka.topics import create_topic
from streamforest.io.sources.dataset import ClassSchedule, RecordedSource
from streamforest.io.tools.replay import ReplayOptions, messages, replay
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.loop import Run
from streamforest.testing.broker.server import Broker
from streamforest.testing.forked import ForkedConsumer

EVENTS = 1_200
MODEL = "n_trees = 4"
SCHEDULE = {"order": "random", "first": 2, "every": 100, "seed": 7}
FILE = """
[pipeline]
name = "file"
[source]
dataset = "digits"
max_events = {events}
[source.schedule]
order = "random"
first = 2
every = 100
seed = 7
[model]
{model}
seed = 1
[run]
folder = "{folder}"
"""
KAFKA = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
session_timeout_ms = 2000
[topics]
events = "{topic}"
{topics}
[model]
{model}
seed = 1
[run]
batch_size = {batch}
commit_interval_events = 150
snapshot_interval_events = 300
folder = "{folder}"
[metrics]
port = 0
"""
KILLS = (("after-poll", 4), ("inside-advance", 3), ("after-produce", 2), ("before-commit", 2))
KILLS += (("after-commit", 2),)


def rows(n: int) -> RecordedSource:
    return RecordedSource.open("digits", n, ClassSchedule(**SCHEDULE))  # type: ignore[arg-type]


def said(predictions: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What was said of each event, in order of their numbers, which have no gaps."""
    found = sorted(predictions, key=lambda p: p["event"])
    assert [p["event"] for p in found] == list(range(len(found)))
    return [(p["label"], p["top"], p["truth"], p["learned"], p.get("new")) for p in found]


def file_run(folder: Path, n: int, model: str = MODEL) -> list[tuple[Any, ...]]:
    path = folder / "file.toml"
    path.write_text(FILE.format(events=n, folder=folder / "file", model=model), encoding="utf-8")
    with opened(load_pipeline(path)) as run:
        assert run.consume() == "finished"
    lines = (folder / "file" / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    return said([json.loads(line) for line in lines])


class Case:
    """A topic, and any number of pipelines that read it."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.servers, self.folder = broker.servers, folder
        self.topic = f"order-{uuid.uuid4().hex[:8]}.events"

    def pipeline(
        self, batch: int = 500, labels: str | None = None, model: str = MODEL
    ) -> tuple[str, Path]:
        name = f"order-{uuid.uuid4().hex[:8]}"
        text = KAFKA.format(
            name=name,
            servers=self.servers,
            topic=self.topic,
            topics=f'labels = "{labels}"' if labels else "",
            model=model,
            batch=batch,
            folder=self.folder / name,
        )
        path = self.folder / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        return name, path

    def drained(self, batch: int = 500, labels: str | None = None) -> tuple[str, Run]:
        name, path = self.pipeline(batch, labels)
        with opened(load_pipeline(path), drain=True, create_topics=True) as run:
            assert run.consume() == "finished"
        return name, run

    def killed(self, kills: tuple[tuple[str, int], ...], labels: str | None = None) -> str:
        """A pipeline that dies at each of these points, then reads what is left."""
        name, path = self.pipeline(50, labels)
        for failpoint, passes in kills:
            with ForkedConsumer(
                path,
                "--create-topics",
                folder=self.folder,
                failpoint=failpoint,
                passes=passes,
            ) as consumer:
                consumer.expect_exit(-9, 120)
        with ForkedConsumer(path, "--drain", folder=self.folder) as last:
            last.expect_exit(0, 120)
        return name

    def said(self, name: str) -> list[tuple[Any, ...]]:
        """What a pipeline has published."""
        records = read_all(self.servers, f"{name}.predictions")
        return said([json.loads(r.value) for several in records.values() for r in several])


@pytest.fixture
def case(kafka_broker: Broker, tmp_path: Path) -> Case:
    return Case(kafka_broker, tmp_path)


def check_backlog(case: Case, partitions: int, n: int, kills: tuple[tuple[str, int], ...]) -> None:
    expected = file_run(case.folder, n)
    assert len(expected) == n
    assert replay(case.servers, rows(n), ReplayOptions(case.topic, partitions=partitions)) == n
    assert case.said(case.drained(500)[0]) == expected
    if partitions > 1:
        assert case.said(case.drained(37)[0]) == expected
    if kills:
        assert case.said(case.killed(kills)) == expected


@pytest.mark.parametrize(("partitions", "kills"), [(1, ()), (4, KILLS), (16, ())])
def test_a_backlog_is_learned_as_the_file_is(
    case: Case, partitions: int, kills: tuple[tuple[str, int], ...]
) -> None:
    check_backlog(case, partitions, EVENTS, kills)


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 4, 16])
def test_a_long_backlog_is_learned_as_the_file_is(case: Case, partitions: int) -> None:
    check_backlog(case, partitions, 5_000, KILLS)


def test_another_client_writes_true_times_partition_by_partition(case: Case) -> None:
    """Partition 2 first, then 0, 1, 3; the rows are spread by chance, and one partition has none."""
    client = admin(case.servers)
    create_topic(client, case.topic, 5)
    client.close()
    draw, parts = random.Random(3), {number: [] for number in (2, 0, 1, 3)}  # type: ignore[var-annotated]
    for message in messages(rows(EVENTS), ReplayOptions(case.topic)):
        parts[draw.choice([0, 1, 2, 2, 2, 3])].append(message)
    producer = KafkaProducer(bootstrap_servers=case.servers, linger_ms=5)
    start = 1_600_000_000_000
    for number, several in parts.items():
        for message in several:
            at = start + 60_000 * message.number
            producer.send(case.topic, message.value, partition=number, timestamp_ms=at)
        producer.flush(timeout=60)
    producer.close()
    assert case.said(case.drained()[0]) == file_run(case.folder, EVENTS)


def test_a_second_replay_follows_the_first(case: Case) -> None:
    """Rows are stamped 1 ms apart and sent faster: the second one begins where the first has ended."""
    for _ in range(2):
        assert replay(case.servers, rows(600), ReplayOptions(case.topic, partitions=3)) == 600
    found = read_all(case.servers, case.topic)
    times = sorted((r.timestamp, p) for p, records in found.items() for r in records)
    first = times[0][0]
    assert [time - first for time, _ in times[:600]] == list(range(600))
    second = times[600][0]
    assert second > times[599][0]
    assert [time - second for time, _ in times[600:]] == list(range(600))
    assert [p for _, p in times] == [i % 3 for i in range(600)] * 2


def test_open_and_aborted_transactions_are_not_waited_for(case: Case) -> None:
    """The merge would wait ten minutes for a partition with unread records: here none has any."""
    client = admin(case.servers)
    create_topic(client, case.topic, 2)
    client.close()
    values = [message.value for message in messages(rows(40), ReplayOptions(case.topic))]
    producers = ExitStack()

    def producer_of(**settings: Any) -> KafkaProducer:
        producer = KafkaProducer(bootstrap_servers=case.servers, **settings)
        producers.callback(producer.close)
        return producer

    def send(producer: KafkaProducer, first: int, count: int, partition: int) -> None:
        for i in range(first, first + count):
            at = 1_600_000_000_000 + i
            producer.send(case.topic, values[i], partition=partition, timestamp_ms=at)
        producer.flush(timeout=30)

    def transactional() -> KafkaProducer:
        producer = producer_of(transactional_id=f"t-{uuid.uuid4().hex}")
        producer.init_transactions()
        producer.begin_transaction()
        return producer

    _, path = case.pipeline()
    pipeline = load_pipeline(path, {}, ["kafka.order_wait_ms=600000"])
    deadline = time.monotonic() + 60
    with producers:
        plain, aborted, open_ = producer_of(), transactional(), transactional()
        send(plain, 0, 5, 0)
        send(plain, 5, 5, 1)
        send(aborted, 20, 3, 1)
        aborted.abort_transaction()
        send(open_, 30, 2, 1)
        run = producers.enter_context(opened(pipeline, create_topics=True))

        def read(events: int) -> dict[tuple[str, int], int]:
            ending = run.consume(max_events=events, stop=lambda: time.monotonic() > deadline)
            assert ending == "limit", f"stuck at event {run.events}"
            return run.state.positions

        assert read(10) == {(case.topic, 0): 5, (case.topic, 1): 5}
        send(plain, 10, 5, 0)  # live: the other partition has records, but none that may be read
        assert read(5) == {(case.topic, 0): 10, (case.topic, 1): 5}
        open_.commit_transaction()
        assert read(2)[case.topic, 1] in (
            10,
            11,
        )  # the marker of the other one is before or after them
        send(plain, 15, 3, 0)
        assert read(3)[case.topic, 0] == 13


def test_in_the_order_of_arrival_partitions_come_in_long_runs(case: Case) -> None:
    assert replay(case.servers, rows(400), ReplayOptions(case.topic, partitions=2)) == 400
    runs = {}
    for order in ("arrival", "time"):
        name, path = case.pipeline()
        pipeline = load_pipeline(path, {}, [f"kafka.order={order}"])
        with opened(pipeline, drain=True, create_topics=True) as run:
            assert run.consume() == "finished"
        (records,) = read_all(case.servers, f"{name}.journal").values()
        runs[order] = sum(len(in_order(json.loads(record.value))) for record in records)
    assert runs["arrival"] < 40
    assert runs["time"] >= 400 - len(records)  # a commit may join two of one partition


def check_late_labels(case: Case, n: int, delay: int, kills: tuple[tuple[str, int], ...]) -> None:
    labels = case.topic.replace(".events", ".labels")
    options = ReplayOptions(case.topic, partitions=4, label_delay=delay, labels_topic=labels)
    assert replay(case.servers, rows(n), options) == 2 * n
    name, run = case.drained(500, labels)
    first = _events_only(case, name)
    assert [learned for *_, learned in first] == [max(0, i - delay) for i in range(n)]
    assert run.state.models["main"].n_learned == n
    again, _ = case.drained(41, labels)
    assert _events_only(case, again) == first
    assert _events_only(case, case.killed(kills, labels)) == first


def _events_only(case: Case, name: str) -> list[tuple[Any, ...]]:
    """What was said of each event; the labels between them have numbers too."""
    records = read_all(case.servers, f"{name}.predictions")
    found = [json.loads(r.value) for several in records.values() for r in several]
    found.sort(key=lambda p: p["event"])
    return [(p["id"], p["event"], p["label"], p["top"], p["learned"]) for p in found]


def test_late_labels_of_a_backlog_meet_their_events_in_order(case: Case) -> None:
    check_late_labels(case, 500, 60, (("after-commit", 2),))


@pytest.mark.slow
def test_late_labels_of_a_long_backlog(case: Case) -> None:
    check_late_labels(case, 3_000, 200, KILLS)


def check_live(case: Case, n: int, within: float) -> None:
    """The rows are sent while they are read, 1,000 a second, a new class every tenth of one."""
    model = 'kind = "stream"\nn_trees = 10'
    expected = file_run(case.folder, n, model)
    name, path = case.pipeline(model=model)
    client = admin(case.servers)
    create_topic(client, case.topic, 4)
    client.close()
    options = ReplayOptions(case.topic, partitions=4, rate=1_000)
    with opened(load_pipeline(path), create_topics=True) as run:
        sender = threading.Thread(target=replay, args=(case.servers, rows(n), options))
        sender.start()
        run.consume(max_events=n)
        sender.join(60)
    live = case.said(name)
    assert _births(live) == _births(expected)
    assert abs(_accuracy(live) - _accuracy(expected)) <= within


def test_live_classes_are_born_in_order(case: Case) -> None:
    check_live(case, 1_500, 0.02)


@pytest.mark.slow
def test_live_is_nearly_as_accurate_as_the_file(case: Case) -> None:
    check_live(case, 5_000, 0.005)


def _births(predictions: list[tuple[Any, ...]]) -> list[Any]:
    return [truth for _, _, truth, _, new in predictions if new]


def _accuracy(predictions: list[tuple[Any, ...]]) -> float:
    return sum(label == truth for label, _, truth, _, _ in predictions) / len(predictions)
