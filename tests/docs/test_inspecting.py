"""The commands on the page about inspecting are run as they stand, and print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.pages import TOP
from support.commands import beside_pipelines, in_guide, python_in_guide, run


def test_the_commands_on_inspecting_run_and_print_what_the_guide_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = TOP / "docs" / "inspecting.md"
    beside_pipelines(tmp_path, monkeypatch)
    output = "".join(run(line) for line in in_guide(guide))
    blocks = re.findall(r"^```text\n(.*?)^```", guide.read_text(encoding="utf-8"), re.M | re.S)
    shown = [line for block in blocks for line in block.splitlines()]
    assert len(shown) > 10
    assert [line for line in shown if line not in output.splitlines()] == []
    capsys.readouterr()
    for code in python_in_guide(guide):
        exec(compile(code, str(guide), "exec"), {})
    assert "stream: forest of 20 trees: 6" in capsys.readouterr().out
    assert {"answers.html", "pictures"} <= {path.name for path in tmp_path.iterdir()}
