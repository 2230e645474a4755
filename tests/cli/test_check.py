"""`streamforest check` and `schema`, and the settings of a pipeline on Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamforest.cli import root

PIPELINE = '[pipeline]\nname = "p"\n[kafka]\nbootstrap_servers = "127.0.0.1:9092"\n'


def invoke(tmp_path: Path, text: str, *arguments: str) -> Result:
    path = tmp_path / "p.toml"
    path.write_text(text, encoding="utf-8")
    return CliRunner().invoke(root, ["check", str(path), *arguments])


def test_a_good_file_says_what_it_means(tmp_path: Path) -> None:
    done = invoke(tmp_path, PIPELINE + '[[shadow]]\nname = "s"\nkind = "online"\n')
    assert done.exit_code == 0, done.stderr
    assert "main (stream), s (online)" in done.stdout
    assert "p.events at 127.0.0.1:9092" in done.stdout
    assert "exactly-once: predictions" in done.stdout
    for line in (
        "to        p.predictions (predictions), p.dlq (dead letters), p.journal (journal)",
        "commits   every 500 ms or 10,000 events, whichever comes first",
        "snapshots every 60 s; the last 3 are kept",
        "metrics   http://127.0.0.1:9108/metrics",
    ):
        assert line in done.stdout.splitlines()
    assert done.stdout.endswith("no mistakes found; the broker was not asked\n")
    again = invoke(tmp_path, PIPELINE, "--set", "kafka.delivery=at-least-once")
    assert "may be published twice" in again.stdout


def test_it_says_by_which_names_metrics_are_served(tmp_path: Path) -> None:
    done = invoke(
        tmp_path,
        PIPELINE,
        "--set",
        "metrics.host=::1",
        "--set",
        'metrics.allowed_hosts=["a", "b.c"]',
    )
    told = "metrics   http://[::1]:9108/metrics, also by the names a, b.c"
    assert told in done.stdout.splitlines(), done.output


def test_a_file_run_says_so_too(tmp_path: Path) -> None:
    text = '[pipeline]\nname = "p"\n[source]\ndataset = "bananas"\nmax_events = 50\n'
    done = invoke(tmp_path, text, "--set", "run.snapshot_interval_events=70")
    assert done.stdout.splitlines()[-5:] == [
        "events    50 of bananas",
        "commits   every 70 events",
        "snapshots every 70 events; the last 3 are kept",
        "metrics   none; set metrics.port to serve them",
        "no mistakes found",
    ]


def test_every_mistake_at_once(tmp_path: Path) -> None:
    text = PIPELINE + (
        'delivery = "twice"\nsession_timeout_ms = 1\n[topics]\nevents = "a/b"\n[metrics]\nport = -1\n'
        '[[shadow]]\nname = "main"\n[[shadow]]\nfactory = "nowhere:f"\n[predictions]\nbatch_messages = 1\n'
        '[limits]\nmin_class_events = 0\n[dead_letters]\npolicy = "ignore"\n'
    )
    done = invoke(tmp_path, text)
    assert done.exit_code == 2
    for part in (
        "kafka.delivery = 'twice': expected one of 'exactly-once', 'at-least-once'",
        "kafka.session_timeout_ms = 1",
        "topics.events = 'a/b'",
        "metrics.port = -1",
        "shadow.0.name = 'main': another model has that name",
        "shadow.1.factory = 'nowhere:f': ModuleNotFoundError",
        "predictions.batch_messages = 1",
        "limits.min_class_events = 0",
        "dead_letters.policy = 'ignore'",
    ):
        assert part in done.stderr, part


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def f():\n    return 7\n", "a int is no model"),
        ("def f():\n    1 / 0\n", "ZeroDivisionError"),
        (
            "from river import feature_extraction as fx\nfrom streamforest import *\n"
            "def f():\n    return fx.BagOfWords() | ConsistentForestClassifier()\n",
            "BagOfWords cannot be saved",
        ),
    ],
)
def test_a_factory_is_judged_before_anything_runs(
    tmp_path: Path, body: str, message: str, request: pytest.FixtureRequest
) -> None:
    module = f"made_{abs(hash(request.node.name))}"
    (tmp_path / f"{module}.py").write_text(body)
    done = invoke(tmp_path, PIPELINE + f'[model]\nfactory = "{module}:f"\n')
    assert done.exit_code == 2
    assert message in done.stderr


def test_the_schema_is_json() -> None:
    done = CliRunner().invoke(root, ["schema"])
    assert json.loads(done.stdout)["title"] == "streamforest event"
