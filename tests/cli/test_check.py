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
    assert "main (auto), s (online)" in done.stdout
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
    assert done.stdout.splitlines()[-7:] == [
        "events    50 of bananas",
        "commits   every 70 events",
        "snapshots every 70 events; the last 3 are kept",
        "metrics   none; set metrics.port to serve them",
        "sampled   the first 50 events: 50 learned, 2 classes",
        "columns   number: 1, 2",
        "no mistakes found",
    ]


def table(tmp_path: Path, rows: list[str], more: str = "") -> list[str]:
    """What `check` says about a CSV file, from its sample on."""
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    text = f'[pipeline]\nname = "p"\n[source]\nfile = "{tmp_path / "t.csv"}"\n[features]\n'
    done = invoke(tmp_path, text + 'label = "kind"\n' + more)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.startswith("sampled")) :]


def test_it_says_what_each_column_is_taken_for(tmp_path: Path) -> None:
    rows = [
        f"2024-01-{1 + i % 28:02d},{i}.5,{'rgb'[i % 3]},{'yes' if i % 2 else 'no'},{'ab'[i % 2]}"
        for i in range(1_500)
    ]
    lines = table(tmp_path, ["day,amount,colour,paid,kind", *rows])
    assert lines[0] == "sampled   the first 1,000 events: 1,000 learned, 2 classes"
    assert any("amount" in line and "number: " in line for line in lines)
    assert any("colour (3 values)" in line and "category: " in line for line in lines)
    assert any("day (" in line and "date: " in line for line in lines)
    assert lines[-1] == "no mistakes found"


def test_it_suggests_zero_for_sparse_rows(tmp_path: Path) -> None:
    words = [
        json.dumps({"x": {f"w{7 * i % 211}": 1, f"w{11 * i % 211}": 2}, "y": i % 2})
        for i in range(300)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(words), encoding="utf-8")
    text = f'[pipeline]\nname = "p"\n[source]\nfile = "{tmp_path / "t.jsonl"}"\n[model]\n'
    advice = "warning   rows are sparse: an event has 2 of 211 features"
    assert advice in invoke(tmp_path, text).stdout
    assert advice not in invoke(tmp_path, text + 'absent = "zero"\n').stdout


def test_it_says_what_would_be_refused_and_what_does_not_fit(tmp_path: Path) -> None:
    rows = [f"{i},{'ab'[i % 2]}" for i in range(40)]
    rows[20], rows[30] = "much,a", "1,2,3"
    lines = table(tmp_path, ["amount,kind", *rows])
    assert lines[0] == "sampled   the first 40 events: 39 learned, 1 dead letter (2.5 %), 2 classes"
    assert (
        "misfits   1 values of 'amount' are no number, and count as missing, e.g. 'much'" in lines
    )
    (refused,) = [line for line in lines if line.startswith("refused")]
    assert refused.startswith("refused   invalid 1, the first at t.csv, row 31: ")
    assert "line 32 has 3 cells, the header has 2" in refused
    assert lines[-1] == "no mistakes found; 1 dead letter among the first 40 events"


def test_a_sample_of_which_nothing_is_left_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("amount,kind\n" + "1,2,3\n" * 5, encoding="utf-8")
    text = f'[pipeline]\nname = "p"\n[source]\nfile = "{tmp_path / "t.csv"}"\n[features]\n'
    done = invoke(tmp_path, text + 'label = "kind"\n')
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("every event of the sample would be refused (5 dead letters); see above")
    assert "no mistakes found" not in done.stdout


def test_a_sample_without_labels_says_so(tmp_path: Path) -> None:
    lines = table(tmp_path, ["amount,kind", *(f"{i}," for i in range(30))])
    assert lines[0] == "sampled   the first 30 events: 0 learned, 30 predicted only, 0 classes"
    assert any(
        line.startswith("warning   none of the first 30 records has the label") for line in lines
    )


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
            "def f():\n    return fx.RBFSampler() | ConsistentForestClassifier()\n",
            "RBFSampler cannot be saved",
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
