"""`streamforest replay` up to the broker: what would be sent, and which options are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamforest.cli import replay as command
from streamforest.cli import root
from streamforest.cli import run as run_command
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.sources.dataset import RecordedSource, Source
from streamforest.io.tools.replay import ReplayOptions
from streamforest.runtime.config.load import load_pipeline

KAFKA = '[kafka]\nbootstrap_servers = "there:9"\n'
PIPELINE = f'[pipeline]\nname = "p"\n{KAFKA}[source]\ndataset = "digits"\nmax_events = 30\n'


@dataclass
class Sent:
    """What the command would have sent."""

    calls: list[tuple[Connection, Source, ReplayOptions]] = field(default_factory=list)

    def __call__(self, where: Any, source: Source, options: ReplayOptions, *rest: Any) -> int:
        self.calls.append((where, source, options))
        return source.total

    @property
    def only(self) -> tuple[Connection, Source, ReplayOptions]:
        (one,) = self.calls
        return one


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sent:
    monkeypatch.chdir(tmp_path)
    sent = Sent()
    monkeypatch.setattr(command, "send", sent)
    return sent


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["replay", *arguments])


def written(text: str, name: str = "p.toml") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def test_the_format_is_that_of_the_pipeline_unless_another_is_given(sent: Sent) -> None:
    path = written(PIPELINE + '[events]\nformat = "msgpack"\n')
    for arguments, form in (([], "msgpack"), (["--format", "json"], "json")):
        sent.calls.clear()
        assert invoke(path, *arguments).exit_code == 0
        where, source, options = sent.only
        assert (where.servers, options.topic, options.format) == ("there:9", "p.events", form)
        assert source.total == 30
    sent.calls.clear()
    assert invoke("bananas", "--max-events", "5").exit_code == 0
    assert (sent.only[0].servers, sent.only[2].format) == ("127.0.0.1:9092", "json")


def test_a_run_through_a_broker_sends_in_the_pipelines_format(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(PIPELINE + '[events]\nformat = "msgpack"\n')
    monkeypatch.setattr(run_command, "end_offset_sum", lambda where, topic: 7)
    monkeypatch.setattr(run_command, "replay", sent)
    run_command._feed(load_pipeline(Path(path), bootstrap_servers="here:1"))
    assert (sent.only[0].servers, sent.only[2].format) == ("here:1", "msgpack")
    assert sent.only[2].start == 7


def test_lines_of_json_are_not_sent_to_a_topic_of_messagepack(sent: Sent) -> None:
    Path("e.jsonl").write_text('{"x": [1]}\n')
    text = '[pipeline]\nname = "p"\n[source]\nfile = "e.jsonl"\n[events]\nformat = "msgpack"\n'
    for path in (written(text), written(text + KAFKA)):
        done = invoke(path)
        assert done.exit_code == 2
        assert "events.format = 'msgpack': the lines of e.jsonl are JSON" in done.stderr
    assert not sent.calls


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "--first", "3"], "--first: has no effect without --order"),
        (["digits", "--every", "400"], "--every: has no effect without --order"),
        (["digits", "--seed", "0"], "--seed: has no effect without --order or --bad"),
        (["p.toml", "--every", "9"], "or --set source.schedule.every=…"),
        (
            ["p.toml", "--label-column", "y"],
            "--label-column: for .csv, .tsv, .parquet files only; use --set features.label",
        ),
        (
            ["p.toml", "--id-column", "a"],
            "--id-column: for .csv, .tsv, .parquet files only; use --set features.id=…",
        ),
        (
            ["e.jsonl", "--label-column", "y"],
            "--label-column: for .csv, .tsv, .parquet files only; remove it",
        ),
        (
            ["digits", "--id-column", "a"],
            "--id-column: for .csv, .tsv, .parquet files only; remove it",
        ),
        (["e.jsonl", "--label-delay", "4"], "--label-delay: has no effect for e.jsonl"),
        (["e.jsonl", "--vectors"], "--vectors: has no effect for e.jsonl"),
        (["e.jsonl", "--format", "json"], "--format: has no effect for e.jsonl"),
        (["q.toml", "--vectors"], "--vectors: has no effect for the pipeline's source.file"),
        (["digits", "--labels-topic", "t"], "--labels-topic: has no effect without --label-delay"),
    ],
)
def test_an_option_without_effect_is_refused(
    sent: Sent, arguments: list[str], message: str
) -> None:
    Path("e.jsonl").write_text('{"x": [1]}\n')
    written(PIPELINE)
    written(f'[pipeline]\nname = "p"\n{KAFKA}[source]\nfile = "e.jsonl"\n', "q.toml")
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not sent.calls


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--label-column", "clas"], "--label-column 'clas': e.csv has no such column; it has"),
        ([], "--label-column 'y': e.csv has no such column; it has a, class"),
        (["--label-column", "class", "--id-column", "n"], "--id-column 'n': e.csv has no such"),
    ],
)
def test_a_column_that_is_not_there_is_named_by_its_option(
    sent: Sent, arguments: list[str], message: str
) -> None:
    Path("e.csv").write_text("a,class\n1,x\n")
    done = invoke("e.csv", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "features." not in done.stderr
    assert not sent.calls


def test_an_order_leaves_the_rest_of_the_files_schedule_alone(sent: Sent) -> None:
    path = written(PIPELINE + "[source.schedule]\nfirst = 3\nevery = 7\nseed = 5\n")
    assert invoke(path, "--order", "random", "--every", "9").exit_code == 0
    told = sent.only[1].describe()
    assert {key: told[f"schedule.{key}"] for key in ("order", "first", "every", "seed")} == {
        "order": "random",
        "first": 3,
        "every": 9,
        "seed": 5,
    }


def test_a_file_without_kafka_takes_all_its_settings(sent: Sent) -> None:
    path = written('[pipeline]\nname = "p"\n[source]\ndataset = "digits"\n')
    done = invoke(path, "--set", "source.max_events=20", "--bootstrap-servers", "here:1")
    assert done.exit_code == 0, done.stderr
    where, source, options = sent.only
    assert (where.servers, source.total, options.topic) == ("here:1", 20, "p.events")


def test_every_set_that_can_be_sent_is_listed(sent: Sent) -> None:
    done = invoke("--list")
    assert done.exit_code == 0
    listed = [line.split()[0] for line in done.stdout.splitlines()]
    assert listed == RecordedSource.names()
    assert {"digits", "letter-later", "letter-classes"} <= set(listed)


def test_a_consumer_does_not_need_the_file_that_is_replayed_to_it(sent: Sent) -> None:
    text = f'[pipeline]\nname = "p"\n{KAFKA}[source]\nfile = "elsewhere.csv"\n'
    path = written(text)
    assert load_pipeline(Path(path)).source is None
    done = invoke(path)
    assert done.exit_code == 2
    assert f"source.file = 'elsewhere.csv': no such file in {Path.cwd()}" in done.stderr
    done = CliRunner().invoke(root, ["check", path])
    assert done.exit_code == 0, done.stderr
    assert "unavailable, but only replay needs it: source.file = 'elsewhere.csv'" in done.stdout
