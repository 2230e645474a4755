"""`promote` and `whatif` on a recorded file; on Kafka see tests/integration/test_operators.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamforest.cli import root

PIPELINE = """
[pipeline]
name = "small"
[source]
dataset = "digits"
max_events = 400
[model]
n_trees = 3
[[shadow]]
name = "other"
n_trees = 2
[run]
snapshot_interval_events = 200
folder = "run"
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")
    monkeypatch.chdir(tmp_path)
    Path("p.toml").write_text(PIPELINE, encoding="utf-8")
    return lambda *arguments: CliRunner().invoke(root, list(arguments))


def test_what_if_and_promote_on_a_file(call: object) -> None:
    def done(*arguments: str, code: int = 0) -> Result:
        result: Result = call(*arguments)  # type: ignore[operator]
        assert result.exit_code == code, result.stderr
        return result

    done("run", "p.toml", "-q", "--max-events", "200")
    assert "other will publish when" in done("promote", "p.toml", "other", "--wait", "0").stdout
    done("run", "p.toml", "-q")
    assert '"promoted":"other"' in Path("run/journal.jsonl").read_text(encoding="utf-8")
    head, was, anew, changed = done(
        "whatif", "p.toml", "200", "--set", "n_trees=4"
    ).stdout.splitlines()
    assert head.split() == ["since", "s-000000000200", "labelled", "accuracy", "kappa"]
    for line in (was, anew, changed):
        assert " 200 " in line
    assert "n_trees=4, untrained there" in changed
    assert "no such snapshot" in done("whatif", "p.toml", "7", "--set", "n_trees=4", code=2).stderr
    told = done("whatif", "p.toml", "200", "--set", "n_tres=4", code=2).stderr
    assert "did you mean n_trees?" in told
    refused = done("snapshots", "adopt", "p.toml", "200", code=2).stderr
    assert "works for a pipeline on Kafka only" in refused
