"""What an operator does to a pipeline on a real broker: adopt a snapshot, promote a shadow, ask what if."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from integration.operated import Case, forget_offsets, learned
from integration.oracle import Kinds, answer, committed, read_all
from integration.waiting import until

from streamforest import ConsistentForestClassifier, OnlineForestClassifier
from streamforest.errors import RecoveryError
from streamforest.io.kafka.membership import KafkaMembership
from streamforest.io.kafka.reader import JournalTail
from streamforest.runtime.processing.loop import Run
from streamforest.testing.broker.server import Broker
from streamforest.testing.forked import ForkedConsumer


@pytest.fixture
def case(kafka_broker: Broker, tmp_path: Path) -> Case:
    return Case(kafka_broker, tmp_path)


def test_expired_offsets_ask_for_adopt_and_nothing_is_lost_or_doubled(case: Case) -> None:
    for n in (300, 150):  # a clean stop leaves a snapshot, whatever the background writer left out
        case.feed(n)
        case.drain()
    forget_offsets(case.servers, case.name)
    case.feed(150)
    command = f"`streamforest snapshots adopt {case.path} s-000000000450 --from journal`"
    with pytest.raises(RecoveryError, match=command):
        case.drain()
    done = case.snapshots("adopt", case.path, "300")
    assert done.exit_code == 0, done.stderr
    assert "adopted s-000000000300 as s-000000000451" in done.stdout
    assert "150 events learned again" in done.stdout
    case.drain()
    case.predictions()
    assert case.last_models() == learned(case.sent)
    (records,) = read_all(case.servers, f"{case.name}.journal").values()
    told = [json.loads(record.value) for record in records]
    assert [entry["adopted"] for entry in told if "adopted" in entry] == ["s-000000000300"]


def test_adopting_keeps_its_place_in_the_group_however_long_it_takes(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.feed(400)
    case.drain()
    looks: list[str] = []

    def counted(what: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            looks.append(what)
            return function(*arguments)

        return call

    monkeypatch.setattr(
        KafkaMembership, "keep_alive", counted("keep_alive", KafkaMembership.keep_alive)
    )
    monkeypatch.setattr(JournalTail, "poll", counted("poll", JournalTail.poll))
    monkeypatch.setattr(Run, "replay", counted("learned", Run.replay))
    done = case.snapshots("adopt", case.path, "0")
    assert done.exit_code == 0, done.stderr
    assert "400 events learned again" in done.stdout
    assert looks.count("learned") >= 4  # commits of 100
    assert all(after == "keep_alive" for work, after in pairwise(looks) if work == "learned"), looks
    assert case.last_models() == learned(case.sent)


def test_adopt_for_one_partition_of_a_pipeline_at_work_is_refused(case: Case) -> None:
    text = case.path.read_text(encoding="utf-8").replace(
        "session_timeout_ms", 'model_scope = "partition"\nsession_timeout_ms'
    )
    case.path.write_text(text, encoding="utf-8")
    case.feed(100)
    with ForkedConsumer(case.path, folder=case.folder) as consumer:
        consumer.until_ready()
        until(lambda: committed(case.servers, case.name, case.topic)[0][0] == 100)
        running = case.snapshots("adopt", case.path, "0", "--partition", "0")
        assert (running.exit_code, "stop it first" in running.stderr) == (1, True), running.output
        assert consumer.stop() == 0


def test_a_model_is_rolled_back(case: Case) -> None:
    case.feed(300)
    case.drain()
    case.feed(200)  # what should not have been learned
    case.drain()
    case.feed(50)
    for origin, told in (("last-commit", "commit"), ("log-end", "50 records will not be read")):
        done = case.snapshots("adopt", case.path, "s-000000000300", "--from", origin)
        assert done.exit_code == 0, done.stderr
        assert told in done.stdout
        assert case.last_models() == learned(case.sent[:300])
    after = len(case.sent)
    case.feed(100)
    with ForkedConsumer(case.path, folder=case.folder) as consumer:  # killed before a snapshot
        until(lambda: committed(case.servers, case.name, case.topic)[0][0] == len(case.sent))
        consumer.kill()
    case.drain()
    assert case.last_models() == learned(case.sent[:300], case.sent[after:])
    del case.sent[500:550]  # these were never to be read
    case.predictions()


def test_adopt_is_refused_with_a_word_on_why(case: Case) -> None:
    case.feed(100)
    with ForkedConsumer(case.path, folder=case.folder) as consumer:
        consumer.until_ready()
        until(lambda: case.standing()["events"] == 100)
        running = case.snapshots("adopt", case.path, "0")
        assert (running.exit_code, "stop it first" in running.stderr) == (1, True)
        assert consumer.stop() == 0
    unknown = case.snapshots("adopt", case.path, "77")
    assert unknown.exit_code == 2
    assert "s-000000000077: no such snapshot" in unknown.stderr


@pytest.fixture
def at_work(case: Case) -> Iterator[ForkedConsumer]:
    with ForkedConsumer(case.path, folder=case.folder) as consumer:
        consumer.until_ready()
        yield consumer


def test_a_shadow_is_promoted_while_it_runs(case: Case, at_work: ForkedConsumer) -> None:
    case.feed(300)
    until(lambda: case.standing()["events"] == 300)
    wrong = case.call("promote", case.path, "othre")
    assert (wrong.exit_code, "did you mean other?" in wrong.stderr) == (2, True)
    done = case.call("promote", case.path, "other")
    assert done.stdout == "other publishes now\n", at_work.log()[-2000:]
    case.feed(150)
    until(lambda: case.standing()["events"] == 450)
    at_work.kill()
    case.feed(50)
    case.drain()  # after a crash it is still the one
    models = [
        ConsistentForestClassifier(n_trees=3, seed=0),
        OnlineForestClassifier(n_trees=2, seed=0),
    ]
    kinds: Kinds = {}
    expected = [[answer(model, raw, kinds) for raw in case.sent] for model in models]
    for prediction in case.predictions():
        number = prediction["event"]
        told = expected[number >= 300][number]
        assert told is not None
        assert [tuple(pair) for pair in prediction["top"]] == told[0], number
    assert case.last_models() == learned(case.sent)


def test_what_if_the_model_had_more_trees(case: Case) -> None:
    for n in (200, 300):
        case.feed(n)
        case.drain()
    asked = case.call("whatif", case.path, "200", "--set", "n_trees=7")
    assert asked.exit_code == 0, asked.stderr
    head, was, anew, changed = asked.stdout.splitlines()
    assert head.startswith("since s-000000000200")

    def since(model: Any, first: int) -> str:
        """Accuracy of the labelled events from 200 on, begun at `first`."""
        right = total = 0
        kinds: Kinds = {}
        for number, raw in enumerate(case.sent):
            told = answer(model, raw, kinds) if number >= first else None
            y = json.loads(raw).get("y") if told is not None else None
            if told is not None and y is not None and number >= 200:
                total += 1
                right += bool(told[0]) and told[0][0][0] == y
        return f"{total:>8,}  {right / total:>8.1%}".replace("%", " %")

    for line, model, first in (
        (was, ConsistentForestClassifier(n_trees=3, seed=0), 0),
        (anew, ConsistentForestClassifier(n_trees=3, seed=0), 200),
        (changed, ConsistentForestClassifier(n_trees=7, seed=0), 200),
    ):
        total, right, _ = line[36:].replace(" %", "%").split()
        assert f"{total:>8}  {right:>7}".split() == since(model, first).replace(" %", "%").split()
    assert "n_trees=7" in changed
