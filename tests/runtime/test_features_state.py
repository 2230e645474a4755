"""What a run knows of its records is part of its state: neither batches nor a kill change anything."""

from __future__ import annotations

import datetime as dt
import json
import random
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from streamforest.errors import ChangedError
from streamforest.io.features.reader import EventReader
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.limits import Limits
from streamforest.runtime.processing.loop import Run

ROWS = 1_500
WORDS = ["delay", "refund", "parcel", "broken", "late", "damaged", "kind", "staff", "thanks"]


def records(n: int = ROWS) -> list[dict[str, Any]]:
    """Flat records with all types of columns, gaps, values that do not fit, and columns that come late."""
    draw = random.Random(3)
    found = []
    for i in range(n):
        k = draw.randrange(2 + i // 500)
        record: dict[str, Any] = {
            "id": f"e{i}",
            "amount": round(draw.gauss(6 * k, 2), 2) if draw.random() > 0.1 else None,
            "price": f"{draw.gauss(k, 0.5):.2f}" if draw.random() > 0.02 else "unknown",
            "colour": draw.choice(["red", "green", "blue"]),
            "paid": draw.random() < 0.5,
            "sent": (dt.datetime(2026, 1, 1) + dt.timedelta(seconds=37 * i)).isoformat(),
            "note": " ".join(draw.choice(WORDS) for _ in range(draw.randrange(4, 7))),
            "shop": {"zone": draw.randrange(3)},
        }
        if i > 700:
            record["late"] = draw.random()
        if draw.random() > 0.05:
            record["label"] = f"class {k}"
        found.append(record)
    found[3] = {"label": "a label alone"}
    return found


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records()))
    path = tmp_path / "p.toml"
    path.write_text(
        f'[pipeline]\nname = "p"\n[source]\nfile = "{tmp_path / "e.jsonl"}"\n'
        '[features]\nlabel = "label"\n[model]\nkind = "stream"\nn_trees = 2\n'
        "[run]\nsnapshot_interval_events = 400\n"
    )
    return path


def open_run(path: Path, folder: Path, *flags: str) -> AbstractContextManager[Run]:
    return opened(load_pipeline(path, {}, [*flags, f"run.folder={folder}"]))


def outcome(folder: Path) -> dict[str, bytes]:
    (*_, last) = sorted((folder / "snapshots").glob("*.safetensors"))
    files = folder / "predictions.jsonl", folder / "dead_letters.jsonl", last
    return {file.name: file.read_bytes() for file in files}


def test_batches_and_interruptions_change_no_byte(pipeline: Path, tmp_path: Path) -> None:
    outcomes = []
    for batch in (1, 7, 500):
        with open_run(pipeline, tmp_path / str(batch), f"run.batch_size={batch}") as run:
            assert run.consume() == "finished"
        outcomes.append(outcome(tmp_path / str(batch)))
    assert outcomes[0] == outcomes[1] == outcomes[2]

    def end(run: Run) -> None:
        if run.events in (90, 350, 1_010):
            raise InterruptedError

    folder = tmp_path / "interrupted"
    for _ in range(3):
        with (
            open_run(pipeline, folder, "run.batch_size=10", "run.commit_interval_events=40") as run,
            pytest.raises(InterruptedError),
        ):
            run.consume(watch=end)
    with open_run(pipeline, folder, "run.batch_size=10", "run.commit_interval_events=40") as run:
        assert run.consume() == "finished"
        types = {column.name: column.type for column in run.state.reader.describe()}
    assert types == {
        "amount": "number",
        "price": "number",
        "colour": "category",
        "paid": "bool",
        "sent": "date",
        "note": "text",
        "shop.zone": "number",
        "late": "number",
    }
    assert outcome(folder) == outcomes[0]


def test_a_run_is_not_continued_by_other_rules(pipeline: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with open_run(pipeline, folder) as run:
        run.consume(max_events=100)
    changed = 'features.ignore=["note"]'
    with (
        pytest.raises(ChangedError, match=r"features\.ignore is \['note'\] and was \[\]"),
        open_run(pipeline, folder, changed),
    ):
        pass


def test_a_state_is_restored_as_it_was() -> None:
    state = RunState.new({}, Limits())
    reader = state.reader
    for number, record in enumerate(records(300)):
        reader.convert({key: value for key, value in record.items() if key != "shop"})
        if number == 200:
            middle = json.loads(json.dumps(state.jsonable({})))
    again = RunState.restored({}, middle, {}, Limits(), {})
    for record in records(300)[201:]:
        again.reader.convert({key: value for key, value in record.items() if key != "shop"})
    assert again.reader.state() == reader.state()


def test_a_run_from_before_keeps_its_columns() -> None:
    state = RunState.new({}, Limits())
    for i in range(10):
        state.gate.admit({"a": float(i), "day": f"2026-01-0{i}"}, "y")
    plain = json.loads(json.dumps(state.jsonable({})))
    del plain["features"]
    reader = RunState.restored({}, plain, {}, Limits(), {}).reader
    assert reader.layout == "nested"
    assert reader.convert({"a": 1.5, "day": "2026-01-03"}) == {"a": 1.5, "day": "2026-01-03"}


@pytest.mark.parametrize(
    "damage",
    [
        {"columns": [["a", "colour", None, False, 0, ""]]},
        {"columns": [["a", "date", "x", False, 0, ""]]},
        {"columns": [["a", "number", None, False, -1, ""]]},
        {"columns": [["a", "number", None, False, 0, ""]] * 2},
        {"columns": 7},
        {"layout": "round"},
        {"seen": -1},
        {"profile": [["a", 1, True, True, "", "zz"]]},
        {"profile": [["a", 1, True, True, "", "f" * 2_000]]},
    ],
)
def test_a_damaged_state_is_refused(damage: dict[str, Any]) -> None:
    reader = EventReader()
    with pytest.raises(ValueError):  # noqa: PT011 - whoever restores a run says where it came from
        reader.restore({**EventReader().state(), **damage})
