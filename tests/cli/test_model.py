"""`streamforest model`: inspect, explain and predict, from snapshots and pipelines."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from river import preprocessing

import streamforest
from streamforest import (
    AutoForestClassifier,
    ConsistentForestClassifier,
    StreamForestClassifier,
    datasets,
)
from streamforest.cli import root
from streamforest.forests.persistence import snapshot
from streamforest.io.codec.events import Prediction
from streamforest.results import read
from streamforest.runtime.operate.model import Refused, open_snapshot

TEXT = """
[pipeline]
name = "orders"
[source]
file = "orders.csv"
[features]
label = "status"
[model]
kind = "stream"
n_trees = 3
seed = 1
[[shadow]]
name = "other"
kind = "online"
n_trees = 2
seed = 1
"""
COLUMNS = ("amount", "colour", "placed", "status")


def _orders(n: int, start: int = 0) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for i in range(start, start + n):
        kind = i % (2 if i < 200 else 3)
        day = f"2026-03-{1 + i % 28:02d} 12:00:00"
        rows.append((10 * kind + i % 7, ["red", "green", "blue"][kind], day, f"s{kind}"))
    return rows


def _write(path: str, rows: list[tuple[object, ...]], columns: tuple[str, ...] = COLUMNS) -> None:
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, list(arguments))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a pipeline has run."""
    folder = tmp_path_factory.mktemp("orders")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _write("orders.csv", _orders(600))
        Path("orders.toml").write_text(TEXT, encoding="utf-8")
        done = invoke("run", "orders.toml", "-q")
        assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(autouse=True)
def here(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ran)


def test_inspect_tells_classes_trees_experts_and_the_source() -> None:
    by_file, by_folder = (
        invoke("model", "inspect", target) for target in ("orders.toml", "runs/orders")
    )
    assert by_file.exit_code == 0, by_file.output
    assert by_file.output == by_folder.output
    for words in ("fed from    events 600, file 'orders.csv'", "600 read, 600 learned", "1 date"):
        assert words in by_file.output
    assert "main (stream, publishes)" in by_file.output
    assert "other (online, shadow)" in by_file.output
    told = json.loads(invoke("model", "inspect", "orders.toml", "--json").output)
    main = told["models"]["main"]
    frame = read("runs/orders")
    assert main["accuracy"] == pytest.approx(frame["correct"].astype(float).mean())
    for one in main["classes"]:
        mine = frame[frame.truth == one["label"]]
        assert one["first"] == mine.event.min() + 1
        assert one["events"] == len(mine)
        assert one["recall"] == pytest.approx(mine.correct.astype(float).mean())
        taken = frame[(frame.label == one["label"]) & (frame.event >= mine.event.min())]
        assert one["precision"] == pytest.approx(taken.correct.astype(float).mean())
    assert [one["first"] for one in main["classes"]][-1] == 201
    assert sum(share for _, share in main["importances"]) == pytest.approx(1)
    assert main["summary"]["depth"] >= 1


def test_predict_gives_what_the_model_itself_says_of_the_features_the_run_made() -> None:
    _write("new.csv", [row[:3] for row in _orders(50, 600)], COLUMNS[:3])  # without labels
    shown = invoke("model", "predict", "orders.toml", "new.csv")
    assert shown.exit_code == 0, shown.output
    assert "50 predicted" in shown.output
    lines = invoke("model", "predict", "runs/orders", "new.csv", "--json").output.splitlines()
    told = [json.loads(line) for line in lines if line.startswith("{")]
    assert [one["label"] for one in told] == [f"s{i % 3}" for i in range(600, 650)]
    opened = open_snapshot(Path("runs/orders"))
    forest = streamforest.load("runs/orders")
    for one, row in zip(told, opened.rows_of(Path("new.csv")).rows(0)):
        event = opened.state.reader.read(row, opened.decode)
        x = opened.state.reader.convert(event.x)
        assert len(x) > 3  # the date is several features
        assert one["probability"] == pytest.approx(max(forest.predict_proba_one(x).values()))
    before = Path(opened.path).read_bytes()
    invoke("model", "predict", "orders.toml", "new.csv")
    assert Path(opened.path).read_bytes() == before


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_every_kind_of_file_is_read_alike(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"new.{suffix}"
    frame = pd.DataFrame(_orders(40, 600), columns=list(COLUMNS))
    if suffix == "csv":
        frame.to_csv(file, index=False)
    elif suffix == "jsonl":
        frame.to_json(file, orient="records", lines=True)
    else:
        frame.to_parquet(file)
    out = tmp_path / "predictions.jsonl"
    done = invoke("model", "predict", "runs/orders", str(file), "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "40 predicted, 40 of 40 labels correct (100.0 %)" in done.output
    assert read(out).correct.all()
    again = invoke("model", "predict", "runs/orders", str(file), "--out", str(out))
    assert again.exit_code == 2
    assert "exists already" in again.output
    made = invoke("report", str(out))
    assert made.exit_code == 0, made.output
    assert (tmp_path / "predictions.html").exists()


def test_a_shadow_is_asked_by_its_name() -> None:
    _write("new.csv", _orders(5, 600))
    told = invoke("model", "predict", "orders.toml", "new.csv", "--model", "other", "--json")
    assert told.exit_code == 0, told.output
    shadow = streamforest.load("runs/orders", "other")
    assert json.loads(told.output.splitlines()[0])["learned"] == shadow.n_learned


def test_explain_names_experts_path_and_neighbours() -> None:
    told = invoke("model", "explain", "orders.toml", "--row", "3")
    assert told.exit_code == 0, told.output
    for words in ("label 's0'", "forest of 3 trees: 's0'", "neighbours", "tree ", "events ago"):
        assert words in told.output
    event = '{"amount": 12, "colour": "green", "placed": "2026-03-05"}'
    made = invoke("model", "explain", "runs/orders", "--event", event, "--json", "--tree", "1")
    found = json.loads(made.output)
    assert found["answer"][0][0] == "s1"
    assert found["tree"]["number"] == 1
    assert found["features"]["colour"] == "green"
    assert {one["name"] for one in found["experts"]} >= {"neighbours", "linear"}


def test_a_model_that_save_wrote_is_inspected_and_asked(tmp_path: Path) -> None:
    stream = datasets.load("digits", events=600)
    model = StreamForestClassifier(n_trees=2, seed=1)
    rows = list(stream.dicts())
    model.advance([x for x, _ in rows], [y for _, y in rows])
    saved = tmp_path / "digits.safetensors"
    streamforest.save(model, saved)
    told = invoke("model", "inspect", str(saved))
    assert told.exit_code == 0, told.output
    assert "main (stream, publishes)" in told.output
    file = tmp_path / "digits.csv"
    pd.DataFrame([{**x, "digit": y} for x, y in rows[:30]]).to_csv(file, index=False)
    done = invoke("model", "predict", str(saved), str(file), "--label", "digit")
    assert done.exit_code == 0, done.output
    right = sum(model.predict_one(x) == y for x, y in rows[:30])
    assert f"{right} of 30 labels correct" in done.output


def test_a_river_pipeline_explains_what_its_steps_made(tmp_path: Path) -> None:
    from river import preprocessing

    model = preprocessing.StandardScaler() | ConsistentForestClassifier(n_trees=2, seed=1)
    for i in range(300):
        model.learn_one({"a": 100.0 + 10 * (i % 2)}, f"c{i % 2}")
    saved = tmp_path / "scaled.safetensors"
    streamforest.save(model, saved)
    made = invoke("model", "explain", str(saved), "--event", '{"a": 110.0}', "--json")
    found = json.loads(made.output)
    assert found["features"]["a"] == pytest.approx(1, abs=0.1)
    assert found["answer"][0][0] == "c1"


def test_rows_that_are_no_events_are_told(tmp_path: Path) -> None:
    file = tmp_path / "new.jsonl"
    good = '{"amount": 1, "colour": "red", "placed": "2026-03-05", "status": "s0"}\n'
    file.write_text(f"{good}nonsense\n{good}{good}", encoding="utf-8")
    done = invoke("model", "predict", "runs/orders", str(file))
    assert done.exit_code == 0
    assert "row 2 (" in done.output
    assert "3 predicted" in done.output
    assert "1 row is not valid" in done.output
    file.write_text("nonsense\nmore\n", encoding="utf-8")
    bad = invoke("model", "predict", "runs/orders", str(file))
    assert bad.exit_code == 2
    assert "most rows are not valid" in bad.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inspect", "nowhere"), "nowhere: no such file; give a snapshot, a run folder or a"),
        (("inspect", "orders.csv"), "not a snapshot, or a damaged one"),
        (("inspect", "orders.toml", "--snapshot", "7"), "s-000000000007: no such snapshot"),
        (("inspect", "runs/orders", "--snapshot", "7"), "--snapshot: for a pipeline file only"),
        (("explain", "orders.toml", "--row", "9999"), "--row 9999: orders.csv has 600 rows"),
        (("explain", "runs/orders"), "FILE: missing; name a .jsonl"),
        (("explain", "runs/orders", "--event", "{"), "--event: not JSON"),
        (("explain", "runs/orders", "--event", '{"q": 1}'), "no feature that the model knows"),
        (("explain", "orders.toml", "--row", "1", "--tree", "9"), "tree=9: use 0 to 2"),
        (("explain", "orders.toml", "--model", "othr"), "--model 'othr': not in "),
        (("predict", "runs/orders", "gone.csv"), "gone.csv"),
        (("predict", "runs/orders", "orders.toml"), "expected a name that ends in .jsonl"),
        (("predict", "runs/orders", "orders.csv", "--label", "y"), "--label: the run's snapshot"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    done = invoke("model", *arguments)
    assert done.exit_code in (1, 2), done.output
    assert done.exit_code == 2 or "snapshot" in words
    assert words in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source", 5),
        ("source", None),
        ("features", {"rules": {"label": 7}}),
        ("features", {"rules": {"nonsense": 1}}),
        ("features", {"rules": {"types": {"a": "magic"}}}),
        ("features", {"rules": {"separator": 1}}),
        ("features", 3),
        ("totals", {}),
        ("admission", {"labels": "x"}),
        ("format", 99),
        ("main", "nobody"),
    ],
)
def test_a_forged_snapshot_is_refused_as_one(key: str, value: Any, tmp_path: Path) -> None:
    models, runtime = snapshot.read(open_snapshot(Path("runs/orders")).path)
    forged = tmp_path / "forged.safetensors"
    snapshot.write(forged, models, {**runtime, key: value})
    for command in (("inspect",), ("explain", "--event", "{}")):
        done = invoke("model", command[0], str(forged), *command[1:])
        assert done.exit_code in (1, 2), done.output
        assert "internal error" not in done.output


def test_predictions_and_refusals_come_in_the_order_of_the_rows(tmp_path: Path) -> None:
    file = tmp_path / "new.jsonl"
    good = '{"amount": 1, "colour": "red", "placed": "2026-03-05"}'
    file.write_text("\n".join([good, "[]", good]) + "\n", encoding="utf-8")
    found = list(open_snapshot(Path("runs/orders")).predict(file))
    assert [type(one) for one in found] == [Prediction, Refused, Prediction]


def test_rows_that_a_step_refuses_are_named_and_no_crash(tmp_path: Path) -> None:
    """All of them, so that nothing is left to be predicted."""
    model = preprocessing.StandardScaler() | AutoForestClassifier(n_trees=1, seed=1)
    for k in range(4):
        model.learn_one({"a": float(k)}, "xy"[k % 2])
    streamforest.save(model, tmp_path / "m.safetensors")
    (tmp_path / "t.csv").write_text("a,kind\nred,x\nblue,y\n")
    arguments = ["model", "predict", str(tmp_path / "m.safetensors"), str(tmp_path / "t.csv")]
    done = CliRunner().invoke(root, [*arguments, "--label", "kind"])
    assert done.exit_code == 2
    assert "StandardScaler cannot take this event" in done.output
    assert "most rows are not valid" in done.output
