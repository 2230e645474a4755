"""Commands as guides and pipeline files write them, run as they stand."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamforest.cli import root

TOP = Path(__file__).parents[2]


def in_comments(file: Path) -> list[str]:
    """The indented lines of a pipeline file's first comment."""
    head = file.read_text(encoding="utf-8").split("\n\n", 1)[0]
    return re.findall(r"^#     (\S.*)$", head, re.M)


def in_guide(file: Path) -> list[str]:
    """The lines of every block of shell commands in a guide."""
    blocks = re.findall(
        r"^```(?:sh|bash|console)\n(.*?)^```", file.read_text(encoding="utf-8"), re.M | re.S
    )
    joined = "".join(blocks).replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def python_in_guide(file: Path) -> list[str]:
    """Every block of Python in a guide."""
    return re.findall(r"^```python\n(.*?)^```", file.read_text(encoding="utf-8"), re.M | re.S)


def run(line: str, more: tuple[str, ...] = ()) -> str:
    """Run one command in this process; its output. It must succeed."""
    program, *arguments = shlex.split(line, comments=True)
    if program == "python":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", arguments)
            runpy.run_path(arguments[0], run_name="__main__")
        return ""
    assert program == "streamforest", line
    done = CliRunner().invoke(root, [*arguments, *more])
    assert done.exit_code == 0, f"{line}\n{done.output}"
    return done.output


def beside_pipelines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in `folder`, with the shipped pipelines in it as in a fresh clone."""
    (folder / "pipelines").symlink_to(TOP / "pipelines")
    monkeypatch.chdir(folder)
