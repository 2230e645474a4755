"""`streamforest run` as a stranger meets it."""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamforest.cli import root

TEXT = """
[pipeline]
name = "small"
[source]
dataset = "digits"
max_events = 600
[source.schedule]
first = 2
every = 60
[model]
n_trees = 5
[run]
batch_size = 40
snapshot_interval_events = 200
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with one pipeline file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")  # no notice of compiling
    Path("small.toml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def invoke(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(root, ["run", "small.toml", *arguments], env=environ)


def messages(done: Result) -> list[str]:
    """The messages of the log; everything on stderr must be a record."""
    return [json.loads(line)["message"] for line in done.stderr.splitlines()]


def test_a_run_ends_with_a_report_and_its_files() -> None:
    done = invoke()
    assert done.exit_code == 0
    assert messages(done) == ["ready at event 0, 1 partitions", "finished: 600 learned"]
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert done.stdout.splitlines()[0] == "small"
    assert "600 of 600, 10 classes" in lines["events"]
    assert lines["rows"].split(maxsplit=1)[1] == "600 learned"
    assert "kappa 0." in lines["accuracy"]
    assert "1–10: " in lines["by"]
    assert "events/s" in lines["speed"]
    assert "p50 / p99 per batch" in lines["latency"]
    assert Path("runs/small/snapshots/s-000000000600.safetensors").is_file()
    assert len(Path("runs/small/predictions.jsonl").read_text().splitlines()) == 600


def test_metrics_are_served_by_the_names_that_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    page = import_module("streamforest.cli.page")
    asked = []

    def serve(*arguments: Any) -> AbstractContextManager[Any]:
        asked.append(arguments[1:4])
        return nullcontext(SimpleNamespace(port=arguments[2]))

    monkeypatch.setattr(page, "MetricsServer", serve)
    assert invoke("--max-events", "40").exit_code == 0
    assert asked == [], "a file run has none unless it is told to"
    set_ = ("metrics.port=9107", "metrics.host=::1", 'metrics.allowed_hosts=["consumer"]')
    done = invoke("--max-events", "40", *(a for s in set_ for a in ("--set", s)))
    assert done.exit_code == 0
    assert asked == [("::1", 9107, ("consumer",))]
    assert "live page: http://[::1]:9107/" in done.stderr
    asked.clear()
    monkeypatch.setattr(page, "can_listen", lambda port: True)
    told = invoke("--max-events", "40", "--page").stderr
    assert asked == [("127.0.0.1", 9108, ())]
    assert "live page: http://127.0.0.1:9108/" in told
    asked.clear()
    monkeypatch.setattr(page, "can_listen", lambda port: False)  # another run has its page there
    told = invoke("--max-events", "40", "--page").stderr
    assert asked[0][1] != 9108
    assert f"live page: http://127.0.0.1:{asked[0][1]}/" in told


def test_a_limited_run_says_where_it_stands_and_the_next_goes_on() -> None:
    first = invoke("--max-events", "250")
    assert first.exit_code == 0
    assert "Stopped by --max-events 250 after event 250 of 600" in first.stderr
    second = invoke()
    assert "small: continuing at event 250" in messages(second)
    assert "600 of 600" in second.stdout
    third = invoke()
    assert third.exit_code == 0
    assert "already finished: nothing left to do; --fresh starts small over" in messages(third)
    shown = [
        [x for x in done.stdout.splitlines() if "  speed" not in x] for done in (second, third)
    ]
    assert shown[0] == shown[1], "a finished run shows its report again"
    fourth = invoke("--fresh", "--quiet", "--max-events", "10")
    assert "10 of 600" in fourth.stdout


def test_flag_over_environment_over_file() -> None:
    environ = {"STREAMFOREST_RUN__FOLDER": "env", "STREAMFOREST_SOURCE__MAX_EVENTS": "100"}
    done = invoke("--set", "run.folder=flag", "--quiet", **environ)
    assert "100 of 100" in done.stdout
    assert Path("flag/commit.json").is_file()
    assert not Path("env").exists()


def test_wrong_settings_are_exit_code_2_and_touch_nothing() -> None:
    done = invoke("--set", "model.n_tres=3", "--set", "run.batch_size=0")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "Error: small.toml: 2 problems",
        "  model.n_tres (from --set): unknown key in [model]; did you mean n_trees?",
        "  run.batch_size = 0 (from --set): expected a whole number from 1 to 100,000",
    ]
    assert not Path("runs").exists()


def test_other_settings_than_the_run_began_with_are_exit_code_2() -> None:
    invoke("--max-events", "10")
    done = invoke("--set", "model.seed=5")
    assert done.exit_code == 2
    assert "model.seed is 5 and was 0; put it back, or start over: --fresh" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_model_that_is_new_to_a_run_is_exit_code_2_with_a_way_out() -> None:
    invoke("--max-events", "10")
    path = Path("small.toml")
    path.write_text(path.read_text() + '[[shadow]]\nname = "s"\nkind = "online"\n')
    done = invoke()
    assert done.exit_code == 2
    assert (
        "shadow.s is new: a run keeps the models it began with; remove it, or start over"
        in done.stderr
    )
    assert done.stderr.count("\n") == 1
    assert invoke("--set", "run.folder=other").exit_code == 0
    assert invoke("--fresh").exit_code == 0


def test_damaged_snapshots_are_exit_code_1() -> None:
    invoke("--max-events", "10")
    for path in Path("runs/small/snapshots").glob("*.safetensors"):
        path.write_bytes(b"damaged")
    done = invoke()
    assert (done.exit_code, done.stdout) == (1, "")
    last = json.loads(done.stderr.splitlines()[-1])
    assert (last["level"], last["logger"]) == ("error", "streamforest.cli")


def test_a_folder_that_cannot_be_made_is_exit_code_1() -> None:
    Path("runs").write_text("a file where the folder should be")
    done = invoke()
    assert done.exit_code == 1
    (message,) = messages(done)
    assert message.startswith("runs")


def test_the_package_warns_in_one_line() -> None:
    settings = ("--set", "model.kind=consistent", "--set", "model.alpha_growth=1.0")
    done = invoke(*settings, "--max-events", "10", "--quiet")
    (warning,) = messages(done)
    assert warning.startswith("alpha_growth=1")


def test_without_a_terminal_there_is_no_progress() -> None:
    assert len(messages(invoke())) == 2
    assert invoke("--fresh", "--quiet").stderr == ""


@pytest.mark.parametrize("columns", [80, 150])
def test_on_a_terminal_progress_is_a_bar(columns: int) -> None:
    done = invoke(FORCE_COLOR="1", TTY_COMPATIBLE="1", COLUMNS=str(columns))
    assert done.exit_code == 0
    assert "600 of 600" in done.stdout
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stderr)
    last = [line.strip() for line in re.split(r"[\r\n]", plain) if "━" in line][-1]
    assert re.fullmatch(r"small ━+ 600/600 · [0-9.]+ % · [0-9,]+/s", last), last
    assert len(last) <= columns


def test_predictions_agree_with_the_report() -> None:
    done = invoke()
    text = Path("runs/small/predictions.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    hits = sum(line["label"] == line["truth"] for line in lines)
    assert f"{hits / 600:.1%}".replace("%", " %") in done.stdout
