"""Records that are gone from a real broker: the start says what to type, and after that very command the
pipeline runs and has kept all learning that can be kept.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import Result
from integration.operated import Case, learned
from integration.oracle import blocks, read_all, read_output
from integration.waiting import until
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from streamforest.errors import RecoveryError
from streamforest.io.kafka.clients import asking
from streamforest.io.kafka.topics import absent, create_topic
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.loop import Run
from streamforest.testing.broker.server import Broker

FEW_SNAPSHOTS = "run.snapshot_interval_events=1000000"


@pytest.fixture
def case(kafka_broker: Broker, tmp_path: Path) -> Case:
    folder = tmp_path / "a folder"  # which a command has to quote
    folder.mkdir()
    return Case(kafka_broker, folder)


class Crash(Exception):
    """Ends a run as a kill does: without a last commit and without a snapshot."""


def crash_at(case: Case, events: int) -> None:
    """Run on, committing and taking no snapshot, until so many events are committed."""

    def watch(run: Run) -> None:
        last = run.context.last_commit
        if last is not None and last.events >= events:
            raise Crash

    with (
        pytest.raises(Crash),
        opened(load_pipeline(case.path, {}, [FEW_SNAPSHOTS])) as run,
    ):
        run.consume(watch=watch)
    assert case.standing()["events"] == events


def delete_before(case: Case, topic: str, offset: int) -> None:
    with asking(case.servers) as client:
        client.delete_records({TopicPartition(topic, 0): offset})


def run(case: Case, *settings: str) -> Result:
    return case.call("run", case.path, "--drain", "-q", "--log-format", "text", *settings)


def remedied(case: Case, *settings: str) -> tuple[str, Result]:
    """What a refused start says, and the result of the command in it, typed as it is printed."""
    refused = run(case, *settings)
    assert refused.exit_code == 1, refused.output
    lines = [line for line in refused.stderr.splitlines() if "snapshots adopt" in line]
    assert len(lines) == 1, refused.stderr
    (command,) = re.findall("`([^`]+)`", lines[0])
    program, *words = shlex.split(command)
    assert program == "streamforest"
    done = case.call(*words)
    assert done.exit_code == 0, done.output
    return lines[0], done


def exactly_one_answer(case: Case, gone: int = 0) -> None:
    output = read_output(case.servers, case.name)
    assert len(output.predictions) + len(output.dead) == len(case.sent) - gone


@pytest.mark.slow
def test_unread_events_are_gone_after_a_clean_stop(case: Case) -> None:
    case.feed(300)
    case.drain()
    case.feed(200)
    delete_before(case, case.topic, 400)
    said, done = remedied(case)
    assert f"events of {case.topic}-0 from offset 300 on are gone from the log" in said
    assert "--from log-end instead" in said
    assert "0 events learned again; 100 records will not be read" in done.stdout
    assert run(case).exit_code == 0
    assert case.last_models() == learned(case.sent[:300], case.sent[400:])
    exactly_one_answer(case, gone=100)


def test_unread_events_are_gone_under_a_running_pipeline(case: Case) -> None:
    """What it has read by then is committed, and a snapshot of it is the one that is named."""
    case.feed(250)
    deleted = False

    def watch(run: Run) -> None:
        nonlocal deleted
        if run.events == 250 and not deleted:
            deleted = True
            case.feed(250)
            delete_before(case, case.topic, 450)
            consumer = run.log.membership.assignment.consumer  # type: ignore[attr-defined]
            (tp,) = consumer.assignment()
            consumer.seek(tp, run.state.positions[tuple(tp)])  # forget what is fetched already

    pipeline = load_pipeline(case.path, {}, [FEW_SNAPSHOTS])
    with (
        pytest.raises(RecoveryError, match=r"adopt .* --from earliest") as refused,
        opened(pipeline) as consumer,
    ):
        consumer.consume(watch=watch)
    (read,) = map(int, re.findall(r"s-(\d+) --from earliest", str(refused.value)))
    assert 250 <= read < 450  # some may have been fetched before they were deleted
    _, done = remedied(case, "--set", FEW_SNAPSHOTS)
    assert f"{450 - read} records will not be read" in done.stdout
    assert run(case).exit_code == 0
    assert case.last_models() == learned(case.sent[:read], case.sent[450:])
    exactly_one_answer(case, gone=450 - read)


def test_journalled_events_are_gone(case: Case) -> None:
    case.feed(100)
    case.drain()
    case.feed(300)
    crash_at(case, 400)
    case.feed(50)
    delete_before(case, case.topic, 250)
    said, done = remedied(case, "--set", FEW_SNAPSHOTS)
    assert "s-000000000100 --from earliest --set run.snapshot_interval_events=1000000" in said
    assert "of the 300 events after it, those that are left are learned again" in said
    assert "150 events learned again, 150 are gone" in done.stdout
    crash_at(case, 451)  # an adoption has a number of its own
    case.feed(20)
    case.drain()
    assert case.last_models() == learned(case.sent[:100], case.sent[250:])
    exactly_one_answer(case)


@pytest.mark.slow
def test_journalled_and_unread_events_are_gone(case: Case) -> None:
    case.feed(100)
    case.drain()
    case.feed(200)
    crash_at(case, 300)
    case.feed(200)
    delete_before(case, case.topic, 400)
    _, done = remedied(case)
    assert "0 events learned again, 200 are gone; 100 records will not be read" in done.stdout
    case.drain()
    assert case.last_models() == learned(case.sent[:100], case.sent[400:])
    exactly_one_answer(case, gone=100)


def compact(case: Case) -> None:
    """Let the broker keep the last record of each key only, as fast as it can."""
    broker, topic = ConfigResourceType.BROKER, ConfigResourceType.TOPIC
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "1",
    }
    with asking(case.servers) as client:
        client.alter_configs([ConfigResource(broker, "1", {"log.cleaner.backoff.ms": "50"})])
        client.alter_configs([ConfigResource(topic, case.topic, settings)])


def test_journalled_events_are_compacted_away(case: Case) -> None:
    case.feed(100)
    case.drain()
    for _ in range(2):  # the same keys twice
        case.feed(150)
    crash_at(case, 400)
    compact(case)

    def left() -> list[bytes]:
        case.feed(1)  # a segment is closed when the next record comes
        (records,) = read_all(case.servers, case.topic).values()
        return [record.value for record in records if 100 <= record.offset < 400]

    until(lambda: len(left()) < 300)
    with asking(case.servers) as client:
        keep = {"cleanup.policy": "delete"}
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, case.topic, keep)])
    remaining = left()
    said, done = remedied(case)
    assert "gone from the log" in said
    assert f"{len(remaining)} events learned again, {300 - len(remaining)} are gone" in done.stdout
    case.drain()
    (records,) = read_all(case.servers, case.topic).values()
    unread = [record.value for record in records if record.offset >= 400]
    assert case.last_models() == learned(case.sent[:100], remaining, unread)


def journal(case: Case) -> list[tuple[int, dict[str, object]]]:
    (records,) = read_all(case.servers, f"{case.name}.journal").values()
    return [(record.offset, json.loads(record.value)) for record in records]


def test_the_journal_is_cut_after_the_newest_snapshot(case: Case) -> None:
    """Of the commits after it, those whose records are left are learned again."""
    case.feed(100)
    case.drain()
    case.feed(100)
    crash_at(case, 200)
    case.feed(200)
    crash_at(case, 400)
    (place,) = [place for place, entry in journal(case) if entry["first"] == 200][:1]
    delete_before(case, f"{case.name}.journal", place)
    said, done = remedied(case)
    assert f"the journal '{case.name}.journal' begins at {place}" in said
    assert "200 events learned again, 100 are gone" in done.stdout
    case.feed(50)
    case.drain()
    assert case.last_models() == learned(case.sent[:100], case.sent[200:])
    exactly_one_answer(case)


@pytest.mark.parametrize("how", ["cut", pytest.param("recreated", marks=pytest.mark.slow)])
def test_the_journal_is_gone_and_a_snapshot_at_exactly_the_last_commit_exists(
    case: Case, how: str
) -> None:
    case.feed(300)
    case.drain()
    name = f"{case.name}.journal"
    if how == "cut":
        delete_before(case, name, journal(case)[-1][0] + 1)
    else:
        with asking(case.servers) as client:
            client.delete_topics([name])
            until(lambda: absent(client, [name]) == [name])
            create_topic(client, name, 1, {})
    said, done = remedied(case)
    assert "the model keeps all that it has learned" in said
    assert "adopted s-000000000300 as s-000000000301" in done.stdout
    case.feed(150)
    if how == "recreated":
        crash_at(case, 451)  # its recovery needs the new journal
        case.feed(50)
    case.drain()
    assert case.last_models() == learned(case.sent)
    exactly_one_answer(case)


@pytest.mark.slow
def test_the_events_topic_was_recreated(case: Case) -> None:
    case.feed(200)
    case.drain()
    with asking(case.servers) as client:
        client.delete_topics([case.topic])
        until(lambda: absent(client, [case.topic]) == [case.topic])
        create_topic(client, case.topic, 1, {})
    case.feed(100)
    said, _ = remedied(case)
    assert "the topic was deleted and recreated" in said
    case.drain()
    assert case.last_models() == learned(case.sent)


@pytest.mark.slow
def test_one_partition_of_a_pipeline_with_a_forest_for_each(case: Case) -> None:
    text = case.path.read_text(encoding="utf-8")
    case.path.write_text(text.replace("[model]", 'model_scope = "partition"\n[model]'))
    case.feed(200)
    assert run(case).exit_code == 0
    case.feed(100)
    delete_before(case, case.topic, 250)
    said, done = remedied(case)
    assert "s-000000000200 --from earliest --partition 0`" in said
    assert "50 records will not be read" in done.stdout
    assert run(case).exit_code == 0
    name = case.standing()["snapshot"]
    file = case.folder / "run" / "partition-0" / "snapshots" / f"{name}.safetensors"
    assert blocks(file.read_bytes()) == learned(case.sent[:200], case.sent[250:])
    exactly_one_answer(case, gone=50)
