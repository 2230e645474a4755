"""The commands on the page about serving are run as they stand; only the port is another."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from docs.pages import TOP, fences
from integration.serving import Served
from support.commands import beside_pipelines, in_guide, run

from streamforest.cli import root
from streamforest.testing.plugin import missing

_PORT = "9110"


def test_the_commands_on_serving_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("curl") is None:
        missing("the commands of docs/serving.md need curl")
    page = TOP / "docs" / "serving.md"
    beside_pipelines(tmp_path, monkeypatch)
    server: Served | None = None
    told = []
    try:
        for line in in_guide(page):
            name, *words = shlex.split(line)
            if words[0] == "serve" and words[1].endswith(".toml"):
                root.get_command(None, "serve").make_context("serve", words[1:])  # type: ignore[union-attr, arg-type]
            elif words[0] == "serve":
                assert server is None
                place = words.index("--port")
                assert words[place + 1] == _PORT
                del words[place : place + 2]
                server = Served(tmp_path / words[1], *words[2:])
                server.start()
                server.until(lambda one: one.says()[0] == 200)  # type: ignore[attr-defined]
            elif name == "curl":
                assert server is not None
                asked = [word.replace(_PORT, str(server.port)) for word in [name, *words]]
                done = subprocess.run(asked, capture_output=True, check=True, env={**os.environ})
                told.append(json.loads(done.stdout))
            elif name == "streamforest":
                run(line)
            else:
                assert line.startswith("pip install"), line
    finally:
        if server is not None:
            server.__exit__()
    about, answer = told
    assert about["model"] == "main"
    (shown,) = [
        json.loads(text) for language, text in fences("docs/serving.md") if language == "json"
    ]
    assert shown.keys() - {"novelty"} == answer.keys() - {"novelty"}
    assert shown["learned"] == answer["learned"] == about["learned"]
