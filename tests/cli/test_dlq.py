"""`streamforest dlq` on a run without a broker, and `--set` on every command that takes a pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from streamforest.cli import root
from streamforest.io.codec.remedies import REMEDIES


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")
    lines = [json.dumps({"x": {"a": i}, "y": i % 2}) for i in range(20)]
    lines[7] = "no json \\u0007 ü"
    lines[9] = '{"x": {"a": 1}, "y": [2]}'
    Path("e.jsonl").write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\x00\n")
    Path("p.toml").write_text(
        '[pipeline]\nname = "p"\n[source]\nfile = "e.jsonl"\n[model]\nn_trees = 1\n'
    )


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, list(arguments))


def test_the_dead_letters_of_a_file_run_are_listed_and_shown() -> None:
    assert invoke("dlq", "list", "p.toml").stdout == "none\n", "before the first run"
    assert invoke("run", "p.toml", "-q", "--set", "run.folder=other").exit_code == 0
    assert invoke("dlq", "list", "p.toml").stdout == "none\n", "the run is elsewhere"
    done = invoke("dlq", "list", "p.toml", "--set", "run.folder=other")
    assert done.exit_code == 0, done.output
    first, second, third, counts = done.stdout.splitlines()
    assert first.startswith("e.jsonl, row 8  undecodable  ")
    assert first.endswith("  no json \\u0007 ü"), "the event as text"
    assert second.startswith("e.jsonl, row 10  invalid  ")
    assert second.endswith('{"x": {"a": 1}, "y": [2]}')
    assert third.endswith("  fffe00"), "other bytes as hex"
    assert counts == "undecodable 2, invalid 1"
    asked = ("dlq", "list", "p.toml", "--set", "run.folder=other", "--json", "--limit", "1")
    (line,) = invoke(*asked).stdout.splitlines()
    assert json.loads(line)["event"] == "no json \\u0007 ü"


def test_a_letter_is_shown_whole() -> None:
    invoke("run", "p.toml", "-q")
    shown = invoke("dlq", "show", "p.toml", "--reason", "invalid").stdout.splitlines()
    assert shown[0] == "at       e.jsonl, row 10"
    assert shown[1] == "reason   invalid"
    assert shown[2].startswith("message  invalid event: ")
    assert shown[3] == f"remedy   {REMEDIES['invalid']}"
    assert shown[4] == 'event    {"x": {"a": 1}, "y": [2]}'
    assert invoke("dlq", "show", "p.toml", "--skip", "3").stdout == "none\n"
    assert invoke("dlq", "show", "p.toml", "--limit", "9").stdout.count("reason ") == 3


def test_a_misspelt_reason_is_answered_with_the_nearest() -> None:
    assert invoke("run", "p.toml", "-q").exit_code == 0
    done = invoke("dlq", "show", "p.toml", "--reason", "invlid")
    assert (done.exit_code, done.stdout) == (0, "none\n")
    assert done.stderr == "no dead letter has the reason 'invlid'; did you mean invalid?\n"
    assert invoke("dlq", "show", "p.toml", "--reason", "capacity").stderr == ""


def test_what_no_commit_has_named_is_no_dead_letter() -> None:
    invoke("run", "p.toml", "-q")
    path = Path("runs/p/dead_letters.jsonl")
    path.write_bytes(path.read_bytes() + b'{"headers": {}')
    assert len(invoke("dlq", "list", "p.toml").stdout.splitlines()) == 4
    path.write_bytes(path.read_bytes().replace(b"{", b"[", 1))
    done = invoke("dlq", "list", "p.toml")
    assert (done.exit_code, done.stderr) == (
        1,
        "Error: runs/p/dead_letters.jsonl, line 1: not a dead letter; was the file changed?\n",
    )


def test_a_file_run_cannot_send_them_back() -> None:
    done = invoke("dlq", "replay", "p.toml")
    assert done.exit_code == 2
    assert "start over with `streamforest run --fresh`" in done.stderr


def test_every_command_that_takes_a_pipeline_takes_settings() -> None:
    def commands(group: click.Group, path: str) -> dict[str, click.Command]:
        found = {}
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if isinstance(command, click.Group):
                found |= commands(command, f"{path} {name}")
            else:
                found[f"{path} {name}".strip()] = command
        return found

    taking = {
        name: {option for p in command.params for option in p.opts}
        for name, command in commands(root, "").items()
        if any(
            p.name in ("pipeline", "source")
            for p in command.params
            if isinstance(p, click.Argument)
        )
    }
    assert len(taking) >= 10
    assert not {name for name, options in taking.items() if "--set" not in options}
