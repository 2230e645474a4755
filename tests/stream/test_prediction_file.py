"""The predictions file: as long as it is told to be, never longer after a restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamforest.errors import SnapshotError
from streamforest.stream.sink import Prediction, PredictionFile


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_labels_keep_their_type(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with PredictionFile(path) as sink:
        sink.append([Prediction(0, 1, 0.5, "1"), Prediction(1, True, 1.0, None)])
    assert [(line["label"], line["truth"]) for line in lines(path)] == [(1, "1"), (True, None)]


def test_reopening_cuts_off_what_came_after(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with PredictionFile(path) as sink:
        sink.append(Prediction(i, "a", 1.0, "a") for i in range(3))
        kept = sink.sync()
        sink.append(Prediction(i, "b", 1.0, "b") for i in range(3, 900))
    with path.open("ab") as file:
        file.write(b'{"event":900,"lab')  # torn by a kill
    with PredictionFile(path, kept) as sink:
        sink.append([Prediction(3, "c", 1.0, "c")])
    assert [(line["event"], line["label"]) for line in lines(path)] == [
        (0, "a"),
        (1, "a"),
        (2, "a"),
        (3, "c"),
    ]


def test_a_file_that_lost_lines_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"short\n")
    with pytest.raises(SnapshotError, match=r"6 bytes.*after 100.*--fresh"):
        PredictionFile(path, 100)
    assert path.read_bytes() == b"short\n"
