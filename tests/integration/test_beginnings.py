"""The first steps on a real broker: an empty topic, one that was created, a pipeline that is changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from integration.feed import events, send
from integration.test_pipeline import Case

from streamforest.cli import root
from streamforest.io.kafka.clients import asking
from streamforest.io.kafka.topics import create_topic
from streamforest.testing import Consumer
from streamforest.testing.broker.server import Broker


@pytest.fixture
def case(kafka_broker: Broker, tmp_path: Path) -> Case:
    return Case(kafka_broker, tmp_path)


def records(text: str) -> list[tuple[str, str]]:
    """Level and message of each record; everything on stderr must be one."""
    found = [json.loads(line) for line in text.splitlines()]
    return [(record["level"], record["message"]) for record in found]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, list(arguments))


def test_an_empty_topic_is_named_once_and_so_is_one_that_had_to_be_created(case: Case) -> None:
    with Consumer(case.path, "--create-topics") as consumer:
        consumer.until(lambda c: any("waiting: " in m for m in c.messages()))
        send(case.servers, case.events, events(200), 2)
        consumer.until(lambda c: committed_events(case) >= 200)
        assert consumer.stop() == 0, consumer.log()
        told = records(consumer.log())
    created = (
        f"topic '{case.events}' did not exist and was created: topics.events names it, and nothing has "
        "written to it yet"
    )
    assert [level for level, message in told if message == created] == ["warning"]
    assert [m for _, m in told if m.startswith("waiting")] == [
        f"waiting: the topic is empty ({case.events})"
    ]
    snapshots = [message.split()[1] for _, message in told if message.startswith("snapshot s-")]
    assert snapshots[-1] == "s-000000000200:"
    assert len(snapshots) == len(set(snapshots)), "each is logged once"


def committed_events(case: Case) -> int:
    names = sorted((case.folder / "snapshots").glob("s-*.safetensors"))
    done = invoke("snapshots", "list", str(case.path))
    last = done.stdout.splitlines()[-1] if names else ""
    return int(last.split()[-1].replace(",", "")) if last.startswith("last commit") else 0


def test_a_pipeline_that_has_read_nothing_may_be_changed(case: Case) -> None:
    def run(*flags: str) -> Result:
        settings = [part for flag in flags for part in ("--set", flag)]
        return invoke("run", str(case.path), "--drain", "--create-topics", *settings)

    first = run()
    assert first.exit_code == 0, first.stderr
    assert ("info", f"nothing was read: the topic is empty ({case.events})") in records(
        first.stderr
    )
    assert run("model.seed=5").exit_code == 0
    other = f"{case.name}.other"
    with_other = f"topics.events={other}"
    done = run("model.kind=online", with_other)
    assert done.exit_code == 0, done.stderr
    send(case.servers, other, events(200), 2)
    done = run("model.kind=online", with_other)
    assert done.exit_code == 0, done.stderr
    assert "200, " in done.stdout
    again = run("model.kind=online", with_other)
    assert (again.exit_code, "200, " in again.stdout) == (0, True), again.stderr
    refused = run("model.kind=online", "model.seed=7", with_other)
    assert refused.exit_code == 2
    assert "model.seed is 7 and was 0; put it back" in refused.stderr
    moved = run("model.kind=online")
    assert moved.exit_code == 2
    assert "belongs to another pipeline" in moved.stderr


def test_a_run_through_a_broker_keeps_its_predictions(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"x": {"a": i}, "y": i % 2}) for i in range(120)]
    lines[60] = "no json"
    Path("e.jsonl").write_text("\n".join(lines) + "\n")
    name = f"kept-{tmp_path.name.replace('_', '-')}"
    Path("p.toml").write_text(
        f'[pipeline]\nname = "{name}"\n[source]\nfile = "e.jsonl"\n[model]\nn_trees = 2\n'
        "[metrics]\nport = 0\n"
    )
    done = invoke("run", "p.toml", "--broker", kafka_broker.servers)
    assert done.exit_code == 0, done.stderr
    path = Path(f"runs/{name}-broker/predictions.jsonl")
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["event"] for one in kept] == [i for i in range(120) if i != 60]
    assert f"119 predictions of {name}-broker.predictions are in {path}" in done.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    assert invoke("run", "p.toml").exit_code == 0
    text = Path(f"runs/{name}/predictions.jsonl").read_text()
    alone = [json.loads(line) for line in text.splitlines()]
    assert [one["label"] for one in alone] == [one["label"] for one in kept]
    packed = invoke(
        "run",
        "p.toml",
        "--broker",
        kafka_broker.servers,
        "--set",
        "predictions.batch_messages=true",
        "--set",
        f"pipeline.name={name}-packed",
    )
    assert packed.exit_code == 0, packed.stderr
    other = Path(f"runs/{name}-packed-broker/predictions.jsonl")
    assert len(other.read_text().splitlines()) == 119


def test_dead_letters_on_a_topic_are_shown_with_their_event(case: Case) -> None:
    with asking(case.servers) as client:
        create_topic(client, case.events, 2)
    send(case.servers, case.events, [b"no json"], 2)
    done = invoke("run", str(case.path), "--drain", "--create-topics")
    assert done.exit_code == 1
    assert "1 of 1 events (100.0 %) are dead letters, and nothing was learned" in done.stderr
    assert not any("did not exist" in message for _, message in records(done.stderr))
    shown = invoke("dlq", "show", str(case.path)).stdout.splitlines()
    assert shown[-2] == "event    no json"
    assert shown[0].startswith(f"at       {case.events}-")


def test_the_first_records_of_a_topic_are_sampled_where_that_is_asked_for(case: Case) -> None:
    with asking(case.servers) as client:
        create_topic(client, case.events, 2)
    empty = invoke("check", str(case.path), "--sample")
    assert "sampled   there is no record yet" in empty.stdout.splitlines(), empty.output
    sent = [json.dumps({"size": i, "colour": "rgb"[i % 3], "y": i % 2}).encode() for i in range(50)]
    send(case.servers, case.events, [*sent, b"no json"], 2)
    lines = invoke("check", str(case.path), "--sample").stdout.splitlines()
    assert "sampled   the first 51 events: 50 learned, 1 dead letter (2.0 %), 2 classes" in lines, (
        lines
    )
    assert "columns   number: size" in lines, lines[8:]
    assert "          category: colour (3 values)" in lines, lines[8:]
    assert lines[-1] == "no mistakes found; 1 dead letter among the first 51 events"
    assert not any(
        "sampled" in line for line in invoke("check", str(case.path)).stdout.splitlines()
    )
