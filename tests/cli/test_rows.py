"""What became of my rows: the report, the exit code and the log records of each case."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamforest.cli import root
from streamforest.io.codec.dead_letters import REASONS
from streamforest.io.codec.remedies import REMEDIES

GOOD = '{"x": {"a": %d}, "y": "k%d"}'
UNLABELLED = '{"x": {"a": %d}}'
BAD = '{"x": {"a": 1}, "y": [1]}'
NO_JSON = "no json"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")


def write(lines: list[str], more: str = "") -> None:
    Path("e.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("p.toml").write_text(
        '[pipeline]\nname = "p"\n[source]\nfile = "e.jsonl"\n[model]\nn_trees = 2\n' + more,
        encoding="utf-8",
    )


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["run", "p.toml", *arguments])


def records(done: Result) -> list[tuple[str, str]]:
    """Level and message of each record; everything on stderr must be one."""
    found = [json.loads(line) for line in done.stderr.splitlines()]
    return [(record["level"], record["message"]) for record in found]


def row(done: Result, label: str) -> str:
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"  {label} ")]
    return line.removeprefix(f"  {label} ").strip()


def good(n: int) -> list[str]:
    return [GOOD % (i, i % 2) for i in range(n)]


def test_few_dead_letters_are_reported_and_nothing_more() -> None:
    write([*good(200), NO_JSON])
    done = invoke()
    assert done.exit_code == 0
    assert row(done, "events") == "201 of 201, 2 classes"
    assert row(done, "rows") == "200 learned, 1 dead letter (0.5 %)"
    lines = done.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if "dead letters  " in line)
    assert lines[first].startswith("  dead letters  undecodable 1, the first at e.jsonl, row 201: ")
    assert lines[first + 1].strip() == f"remedy: {REMEDIES['undecodable']}"
    dead, finished = records(done)[1:]
    assert dead[0] == "info"
    assert dead[1].startswith("a dead letter with reason 'undecodable' (1 so far); ")
    assert dead[1].endswith(f"Remedy: {REMEDIES['undecodable']}")
    assert "at e.jsonl, row 201: invalid event: " in dead[1]
    assert finished == ("info", "finished: 200 learned, 1 dead letter (0.5 %)")


def test_above_one_per_cent_is_a_warning() -> None:
    write([*good(60), NO_JSON, BAD, NO_JSON])
    done = invoke()
    assert done.exit_code == 0
    assert row(done, "rows") == "60 learned, 3 dead letters (4.8 %)"
    told = "3 of 63 events (4.8 %) are dead letters: `streamforest dlq list p.toml` shows them"
    assert records(done)[-1] == ("warning", told)
    reasons = [message for _, message in records(done) if message.startswith("a dead letter")]
    assert len(reasons) == 2, "one record a minute for each reason"


def test_above_half_is_exit_code_1_unless_it_is_allowed() -> None:
    write([*good(4), *[NO_JSON] * 5])
    done = invoke()
    assert done.exit_code == 1
    assert row(done, "rows") == "4 learned, 5 dead letters (55.6 %)"
    told = "5 of 9 events (55.6 %) are dead letters: `streamforest dlq list p.toml` shows them"
    accepted = "--allow-unlearned (run.allow_unlearned) accepts that"
    assert records(done)[-1] == ("error", f"{told}. {accepted}")
    again = invoke()
    assert again.exit_code == 1, "a finished run shows it again"
    assert row(again, "rows") == row(done, "rows")
    for way in (("--allow-unlearned",), ("--set", "run.allow_unlearned=true")):
        allowed = invoke(*way)
        assert allowed.exit_code == 0
        assert records(allowed)[-1] == ("warning", told)


def test_nothing_learned_is_exit_code_1() -> None:
    write([UNLABELLED % i for i in range(20)])
    done = invoke()
    assert done.exit_code == 1
    assert row(done, "rows") == "0 learned, 20 predicted only"
    level, message = records(done)[-1]
    assert level == "error"
    assert message.startswith("nothing was learned of 20 events: none of them has a label")
    assert invoke("--fresh", "--max-events", "10").exit_code == 0, "the rest may have labels"
    assert invoke("--allow-unlearned").exit_code == 0


def test_half_of_the_rows_without_a_label_are_predicted_only() -> None:
    write([*good(10), *(UNLABELLED % i for i in range(10))])
    done = invoke()
    assert done.exit_code == 0
    assert row(done, "rows") == "10 learned, 10 predicted only"


def test_the_counts_are_those_of_an_undisturbed_run() -> None:
    write([*good(30), NO_JSON, *good(30), BAD, *good(30)], "[run]\nsnapshot_interval_events = 20\n")
    whole = invoke("--set", "run.folder=whole")
    for _ in range(3):
        invoke("--max-events", "25")
    parts = invoke()
    rows = [row(done, "rows") for done in (whole, parts)]
    assert rows == ["90 learned, 2 dead letters (2.2 %)"] * 2
    names = [f"{folder}/snapshots/s-000000000092.safetensors" for folder in ("whole", "runs/p")]
    assert Path(names[0]).read_bytes() == Path(names[1]).read_bytes()


def test_shadows_have_their_row_with_their_name() -> None:
    shadows = '[[shadow]]\nname = "small"\nkind = "online"\nn_trees = 1\n'
    write(good(50), shadows + shadows.replace("small", "other"))
    done = invoke()
    assert row(done, "accuracy").endswith("(main, which publishes)")
    shown = [line.split() for line in done.stdout.splitlines() if line.startswith("  shadow ")]
    assert [line[1] for line in shown] == ["small:", "other:"]
    assert all(line[2] == "accuracy" for line in shown)


def test_the_log_is_text_where_that_is_asked_for() -> None:
    write([*good(5), *[NO_JSON] * 9])
    done = invoke("--log-format", "text")
    assert done.exit_code == 1
    levels = [line.split()[1] for line in done.stderr.splitlines()]
    assert levels == ["info", "warning", "info", "error"]
    only = invoke("--fresh", "--log-level", "error")
    assert [level for level, _ in records(only)] == ["error"]


def test_every_reason_has_a_remedy() -> None:
    assert set(REMEDIES) == set(REASONS)


def test_values_that_were_not_taken_as_they_are_are_in_the_report() -> None:
    def event(i: int) -> str:
        x = {"a": "n. a." if i == 50 else i, "id": f"id {i}", "shop": f"shop {i // 9}"}
        return json.dumps({"x": x, "y": f"k{i % 2}"})

    write([event(i) for i in range(90)], "max_categories = 5\n")
    done = invoke()
    assert done.exit_code == 0
    assert row(done, "rows") == "90 learned"
    lines = [line.strip() for line in done.stdout.splitlines()]
    first = next(i for i, line in enumerate(lines) if line.startswith("columns "))
    assert lines[first].endswith(
        " 1 values of 'a' are no number, and count as missing, e.g. 'n. a.'"
    )
    assert lines[first + 1] == "'id' is different in nearly every row, and counts as missing"
    other = "'shop' has too many categories: in 45 rows it counts as \"other\""
    assert lines[first + 2] == other
