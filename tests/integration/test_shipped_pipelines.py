"""The shipped pipelines on Kafka, by the commands in their comments, against a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import TOP, beside_pipelines, in_comments, run

from streamforest.results import read
from streamforest.testing.broker.server import Broker


@pytest.mark.parametrize("name", ["faults", "kafka"])
def test_its_commands_run_as_written(
    name: str, kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but `broker start`: the broker is there. A run that would go on for ever ends with its topic."""
    beside_pipelines(tmp_path, monkeypatch)
    monkeypatch.setenv("STREAMFOREST_KAFKA__BOOTSTRAP_SERVERS", kafka_broker.servers)
    monkeypatch.setenv("STREAMFOREST_METRICS__PORT", "0")
    commands = in_comments(TOP / "pipelines" / f"{name}.toml")
    assert commands[0].startswith("streamforest broker start")
    for line in commands[1:]:
        run(line, ("--drain",) if " run " in line and "--drain" not in line else ())
    frame = read(f"pipelines/{name}.toml")
    judged = frame[frame.truth.notna()]
    assert len(frame) > 3_900
    assert len(judged) > 0.95 * len(frame)
    assert judged.correct.mean() > 0.85
    told = json.loads(run(f"streamforest report pipelines/{name}.toml --json"))
    assert told["accuracy"] == pytest.approx(judged.correct.mean())
    shown = json.loads(run(f"streamforest model inspect pipelines/{name}.toml --json"))
    main = shown["models"]["main"]
    assert main["accuracy"] == pytest.approx(told["accuracy"], abs=1e-9)
    assert {one["label"] for one in main["classes"]} == {*judged.truth}
    topic = run(
        f"streamforest report {name if name == 'faults' else 'kafka-digits'}.predictions "
        f"--bootstrap-servers {kafka_broker.servers} --json"
    )
    assert json.loads(topic)["events"] == len(frame)
