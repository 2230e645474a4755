"""A table as people have it, at the first try, in every format: dates, gaps, texts, new classes.

The label is the only thing that is set; useless columns stay in it.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import pytest

from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

ROWS = 5_000
WORDS = [
    "delay",
    "refund",
    "parcel",
    "broken",
    "late",
    "damaged",
    "kind",
    "staff",
    "thanks",
    "order",
]
USELESS = ["when", "paid", "note"]


def rows() -> list[dict[str, Any]]:
    """Numbers, categories and gaps that tell classes apart; a new class every 750 rows."""
    draw = random.Random(1)
    found = []
    for i in range(ROWS):
        k = draw.randrange(2 + i // 750)
        own = ["red", "green", "blue", "black"][k % 4]
        found.append(
            {
                "id": f"c-{i:06d}",
                "when": dt.datetime(2026, 1, 1) + dt.timedelta(seconds=37 * i + draw.randrange(30)),
                "amount": round(draw.gauss(10 * k, 4), 2),
                "items": draw.randrange(1, 5) + k % 3,
                "ratio": draw.gauss(k * 7 % 5, 0.7) if draw.random() > 0.1 else None,
                "weight": draw.gauss(k * 3 % 7, 0.8) if draw.random() > 0.05 else None,
                "colour": own if draw.random() > 0.3 else draw.choice(["red", "green", "blue"]),
                "paid": draw.random() < 0.5,
                "note": " ".join(draw.choice(WORDS) for _ in range(draw.randrange(4, 9))),
                "label": f"class {k}",
            }
        )
    return found


def write(folder: Path, several: list[dict[str, Any]]) -> dict[str, Path]:
    """The same rows in four formats."""
    names = ("rows.csv", "rows.parquet", "flat.jsonl", "nested.jsonl")
    csv, parquet, flat, nested = paths = [folder / name for name in names]
    frame = pandas.DataFrame(several)
    frame.to_csv(csv, index=False)
    frame.to_parquet(parquet, index=False)
    records = [{**row, "when": row["when"].isoformat()} for row in several]
    flat.write_text("".join(json.dumps(record) + "\n" for record in records))
    with nested.open("w") as file:
        for record in records:
            x = {key: value for key, value in record.items() if key not in ("id", "label")}
            file.write(json.dumps({"x": x, "id": record["id"], "label": record["label"]}) + "\n")
    return dict(zip(names, paths))


def run(folder: Path, file: Path, *flags: str) -> list[dict[str, Any]]:
    """The predictions; every row has been learned."""
    path = folder / "p.toml"
    path.write_text(
        f'[pipeline]\nname = "p"\n[source]\nfile = "{file}"\n[features]\nlabel = "label"\n'
        f'[model]\nkind = "stream"\nn_trees = 5\n[run]\nfolder = "{folder / "run"}"\n'
        "batch_size = 500\nsnapshot_interval_events = 5000\n"
    )
    with opened(load_pipeline(path, {}, flags), fresh=True) as current:
        assert current.consume() == "finished"
        assert current.state.models["main"].n_learned == ROWS
    return [json.loads(line) for line in (folder / "run" / "predictions.jsonl").open()]


def accuracy(predictions: list[dict[str, Any]]) -> float:
    return sum(one["label"] == one["truth"] for one in predictions) / len(predictions)


def test_it_runs_at_the_first_try_in_every_format(tmp_path: Path) -> None:
    files = write(tmp_path, rows())
    by_format = {}
    for name, file in files.items():
        predictions = run(tmp_path, file)
        assert [one["id"] for one in predictions] == [f"c-{i:06d}" for i in range(ROWS)]
        by_format[name] = [(one["label"], one["top"]) for one in predictions]
        found = accuracy(predictions)
    for name, told in by_format.items():
        assert told == by_format["rows.csv"], name
    ignored = json.dumps(USELESS)
    by_hand = accuracy(run(tmp_path, files["rows.csv"], f"features.ignore={ignored}"))
    assert by_hand > 0.95
    assert found >= by_hand - 0.01
