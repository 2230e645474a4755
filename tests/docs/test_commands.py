"""Every command that README, docs, `pipelines/` and `docker/` show is run as it is written; so is Python.

What needs no broker runs in one folder, in a reader's order; so does what needs one, on a broker that the
commands themselves start and stop. Only the broker's port is another, since 9092 may be taken. What installs
something is run with `-m slow`; what takes hours or a Docker daemon is only parsed.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from docs.pages import PAGES, TOP, commands, fences
from integration.waiting import get

from streamforest.cli import root
from streamforest.testing.broker import download
from streamforest.testing.broker.server import free_port
from streamforest.testing.forked import ForkedConsumer
from streamforest.testing.plugin import missing
from streamforest.testing.process import _START

RUN_ELSEWHERE = {
    "docs/inspecting.md": "tests/docs/test_inspecting.py",
    "docs/serving.md": "tests/docs/test_serving.py",
    **dict.fromkeys(
        (
            f"pipelines/{name}.toml"
            for name in ("digits", "drift", "embeddings", "intents", "river", "species")
        ),
        "tests/runtime/test_shipped_pipelines.py",
    ),
    "pipelines/faults.toml": "tests/integration/test_shipped_pipelines.py",
}
"""Files whose commands another test runs as they are written."""
LINES = list(
    dict.fromkeys(command.line for command in commands() if command.file not in RUN_ELSEWHERE)
)
_SCRIPTS = "tests/runtime/test_shipped_scripts.py, which holds its score, too"
NOT_RUN = {
    "streamforest bench ": "hours, or a quiet machine; tests/bench runs each of them on a small stream",
    "docker ": "a Docker daemon; tests/runtime/test_shipped_scripts.py holds the files and flags",
    "python pipelines/bag_of_words.py": _SCRIPTS,
    "python pipelines/river_scaler.py": _SCRIPTS,
    "python pipelines/embeddings.py": _SCRIPTS,
    "mkdocs ": "tests/docs/test_site.py",
    "python -m streamforest.kernels.core.packaging": "minutes; tests/kernels/core/test_compiling.py",
    "STREAMFOREST_TEST_S3=": "an S3 server of the reader's; in CI the same tests have moto's",
    "pip wheel ": "tests/kernels/core/test_compiling.py loads what a wheel would carry",
    "pip install ": "the set-up of the tests installs it",
    ".venv/bin/pip install ": "the README's commands, which install the same",
    "python3 -m venv .venv": "the README's commands, which begin with it",
}
"""How a command begins that this file does not run, and why not, or what runs it."""
_INSTALL = "python3 -m venv .venv && "
_INLINE = re.compile(r"`(?:streamforest )?((?:[a-z]+) [^`]*)`")


def _is_run(line: str) -> bool:
    installs = line.startswith((_INSTALL, "uv "))
    return installs or not line.startswith(tuple(NOT_RUN))


def _is_kafka(line: str) -> bool:
    words = shlex.split(line)
    files = [TOP / word for word in words if word.endswith(".toml")]
    tables = [tomllib.loads(file.read_text("utf-8")) for file in files if file.is_file()]
    if "check" in words:
        return False
    return (
        "--broker" in words
        or words[1] in ("replay", "broker")
        or "avro_orders.py" in line
        or any("kafka" in table for table in tables)
    )


INSTALLING = [line for line in LINES if line.startswith((_INSTALL, "uv "))]
COMPLETION = [line for line in LINES if "_STREAMFOREST_COMPLETE" in line]
_PLAIN = [line for line in LINES if _is_run(line) and line not in (*INSTALLING, *COMPLETION)]
ON_FILES = [line for line in _PLAIN if not _is_kafka(line)]
STOP = "streamforest broker stop"
ON_KAFKA = [line for line in _PLAIN if _is_kafka(line) and line != STOP]


def test_each_exception_is_needed() -> None:
    assert {*RUN_ELSEWHERE} <= {command.file for command in commands()}
    assert [test for test in RUN_ELSEWHERE.values() if not (TOP / test).exists()] == []
    assert [name for name in NOT_RUN if not any(line.startswith(name) for line in LINES)] == []


def test_the_readme_s_test_command_is_what_ci_runs() -> None:
    shown = [text for language, text in fences("README.md") if language == "sh"]
    command = shown[0].splitlines()[1]
    assert command.endswith("pytest")
    assert command in (TOP / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def _place(folder: Path) -> Path:
    """A folder as a reader has it: the repository's pipelines, and the file of the quick start."""
    shutil.copytree(TOP / "pipelines", folder / "pipelines")
    (toml,) = [text for language, text in fences("docs/quick-start.md") if language == "toml"]
    (folder / "orders.toml").write_text(toml, encoding="utf-8")
    rows = [
        f"{i % 7},{'red' if i % 2 else 'blue'},{'large' if i % 7 > 3 else 'small'}"
        for i in range(300)
    ]
    (folder / "orders.csv").write_text("\n".join(["amount,colour,kind", *rows]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _place(tmp_path_factory.mktemp("reader"))


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")


def _prepare(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that some pages look at, if no page before them has made it."""
    monkeypatch.chdir(folder)
    if re.search(r"runs/digits|digits\.toml", text) and not (folder / "runs" / "digits").exists():
        _run("streamforest run pipelines/digits.toml", folder, monkeypatch)


def _run(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command in this process: it has everything loaded."""
    monkeypatch.chdir(folder)
    name, *arguments = shlex.split(line)
    if name == "streamforest":
        done = CliRunner().invoke(root, arguments)
        assert done.exit_code == 0, f"{line}\n{done.output[-2000:]}\n{done.stderr[-2000:]}"
        return
    assert name == "python", f"{line}: run it here, or say in NOT_RUN what runs it"
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(arguments[0], run_name="__main__")


@pytest.mark.parametrize("line", ON_FILES)
def test_a_command_without_a_broker(
    line: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _prepare(line, files, monkeypatch)
    _run(line, files, monkeypatch)


PYTHON = [page for page in PAGES if any(language == "python" for language, _ in fences(page))]


@pytest.mark.parametrize("page", PYTHON)
def test_python_on_a_page(page: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page are one program."""
    text = "\n".join(text for language, text in fences(page) if language == "python")
    _prepare(text, files, monkeypatch)
    exec(compile(text, page, "exec"), {})


@pytest.mark.parametrize("line", COMPLETION)
def test_completion_of_a_shell(line: str) -> None:
    """What a shell's start file evaluates is a script for that shell."""
    ((variable, shell),) = re.findall(r"(_STREAMFOREST_COMPLETE)=(\w+)_source streamforest", line)
    done = subprocess.run(
        [sys.executable, "-c", _START],
        env={**os.environ, variable: f"{shell}_source"},
        capture_output=True,
        text=True,
    )
    assert "_STREAMFOREST_COMPLETE" in done.stdout


class Reader:
    """A folder, and the broker that `streamforest broker start` has started for it."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self.metrics = free_port()
        for path in (folder / "pipelines").iterdir():
            if path.suffix in (".toml", ".py"):
                text = path.read_text(encoding="utf-8").replace("127.0.0.1:9092", address)
                if path.suffix == ".toml" and "\n[kafka]" in text:
                    text = text.replace("port = 9108", f"port = {self.metrics}")
                    if "\n[metrics]" not in text:
                        text += f"\n[metrics]\nport = {self.metrics}\n"
                path.write_text(text, encoding="utf-8")

    def consume(self, line: str) -> None:
        """Run a consumer until it has read everything, and stop it as Ctrl-C would."""
        with ForkedConsumer(*shlex.split(line)[2:], folder=self.folder) as consumer:
            consumer.until(lambda _: self._drained(), timeout=120)
            assert consumer.stop() == 0, consumer.log()[-3000:]

    def _drained(self) -> bool:
        text = get(f"http://127.0.0.1:{self.metrics}/metrics")[1]
        lags = re.findall(r"^streamforest_consumer_lag_records\S* (\S+)$", text, re.MULTILINE)
        read = re.search(r'^streamforest_rows{\S*"read"\S*} (\S+)$', text, re.MULTILINE)
        return bool(lags) and not any(map(float, lags)) and read is not None and float(read[1]) > 0


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The first and the last command of whoever tries Kafka: `broker start` and `broker stop`."""
    if (reason := download.missing()) is not None:
        missing(reason)
    cache = tmp_path_factory.mktemp("cache")
    jars = download.jars()
    (cache / jars.parent.name).mkdir()
    (cache / jars.parent.name / jars.name).symlink_to(jars)
    port = free_port()
    (cache / "broker").mkdir()
    (cache / "broker" / "broker.json").write_text(json.dumps({"port": port}), encoding="utf-8")
    folder = _place(tmp_path_factory.mktemp("kafka"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMFOREST_CACHE", str(cache))
        patch.setenv("STREAMFOREST_QUIET", "1")
        _run("streamforest broker start", folder, patch)
        try:
            yield Reader(folder, f"127.0.0.1:{port}")
        finally:
            _run(STOP, folder, patch)


@pytest.mark.parametrize("line", ON_KAFKA)
def test_a_command_with_a_broker(
    line: str, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    if line == "streamforest broker start":
        return  # the fixture has just run it
    if line.startswith("streamforest run ") and not re.search("--drain|--broker", line):
        reader.consume(line)
        return
    if line.startswith("streamforest replay "):
        monkeypatch.setenv("STREAMFOREST_KAFKA__BOOTSTRAP_SERVERS", reader.address)
    _run(line.replace("127.0.0.1:9092", reader.address), reader.folder, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("line", [line for line in INSTALLING if not line.endswith("pytest")])
def test_a_command_that_installs(line: str, tmp_path: Path) -> None:
    """In a copy of the repository; the tests themselves are what CI runs."""
    if line.startswith("uv ") and shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    names = ["streamforest", "pipelines", "pyproject.toml", "README.md", "LICENSE"]
    for name in names:
        whole = TOP / name
        copy = shutil.copytree if whole.is_dir() else shutil.copy
        copy(whole, tmp_path / name)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "accuracy" in done.stdout


def _parsed(words: list[str]) -> str | None:
    """What is wrong with a command: an unknown subcommand or option; None if nothing is."""
    command: click.Command = root
    context = click.Context(root)
    for i, word in enumerate(words):
        if not isinstance(command, click.Group):
            known = {opt for p in command.params for opt in (*p.opts, *p.secondary_opts)} | {
                "--help"
            }
            unknown = [
                w for w in words[i:] if w.startswith("--") and w.partition("=")[0] not in known
            ]
            return f"{' '.join(words)}: no option {unknown}" if unknown else None
        if word.startswith("-"):
            return None
        found = command.get_command(context, word)
        if found is None:
            return f"{' '.join(words)}: no command {word}"
        command = found
    return None


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_in_the_text_exist(page: str) -> None:
    text = (TOP / page).read_text(encoding="utf-8")
    shown = [
        line.removeprefix("streamforest ") for line in LINES if line.startswith("streamforest ")
    ]
    groups = root.list_commands(click.Context(root))
    text += "".join(
        f"`{line}`" for line in re.findall(r"^    (streamforest .*)$", text, re.MULTILINE)
    )
    inline = [
        found for found in _INLINE.findall(text.replace("\n", " ")) if found.split()[0] in groups
    ]
    wrong = []
    for line in [*inline, *(shown if page == "README.md" else [])]:
        try:
            words = shlex.split(line)
        except ValueError:
            continue
        if (problem := _parsed(words)) is not None:
            wrong.append(problem)
    assert not wrong
