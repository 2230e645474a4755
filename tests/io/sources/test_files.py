"""Recorded files as sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamforest.errors import ConfigError, DatasetError, EventError
from streamforest.io.codec.events import Bounds, decoder, fields_decoder
from streamforest.io.features.rules import FeatureRules
from streamforest.io.sources.dataset import ClassSchedule
from streamforest.io.sources.opening import open_file
from streamforest.io.sources.scheduled import ScheduledFile
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened


def test_lines_are_messages_and_a_long_one_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(b'{"x": {"a": 1}}\n' + b"z" * 5_000 + b'\n\n{"x": [1]}')
    source = open_file(path, bounds=Bounds(max_bytes=100))
    rows = list(source.rows(0))
    assert source.total == len(rows) == 4
    assert [len(row.value or b"") for row in rows] == [15, 102, 0, 10]
    assert [row.offset for row in source.rows(2)] == [2, 3]


def test_csv_and_parquet_give_the_same_events(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.5, 2.0], "b": ["red", None], "y": [3, 4], "key": ["p", "q"]})
    frame.to_csv(tmp_path / "e.csv", index=False)
    frame.to_parquet(tmp_path / "e.parquet")
    for name in ("e.csv", "e.parquet"):
        source = open_file(tmp_path / name, None, FeatureRules(id="key"))
        assert [row.record for row in source.rows(0)] == [
            {"a": 1.5, "b": "red", "y": 3, "key": "p"},
            {"a": 2.0, "b": None, "y": 4, "key": "q"},
        ]
        assert source.describe()["events"] == 2


def test_what_is_wrong_with_a_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        open_file(tmp_path / "none.csv")
    (tmp_path / "e.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="has no such column; it has a, b"):
        open_file(tmp_path / "e.csv")
    named = FeatureRules(label="clas")
    (tmp_path / "e.csv").write_text("a,b,class\n1,2,x\n")
    with pytest.raises(ConfigError, match=r"label = 'clas': .* a, b, class; did you mean class\?"):
        open_file(tmp_path / "e.csv", None, named)
    with pytest.raises(ConfigError, match="ends in"):
        open_file(tmp_path / "e.txt")


def test_a_file_runs_through_the_loop_bad_lines_included(tmp_path: Path) -> None:
    lines = [b'{"x": {"a": %d}, "y": "%s"}' % (i, b"pq"[i % 2 : i % 2 + 1]) for i in range(300)]
    lines[100] = b"{bad"
    (tmp_path / "e.jsonl").write_bytes(b"\n".join(lines))
    (tmp_path / "p.toml").write_text(
        f'[pipeline]\nname = "p"\n[source]\nfile = "{tmp_path / "e.jsonl"}"\n'
        f'[model]\nn_trees = 2\n[run]\nfolder = "{tmp_path / "run"}"\n'
    )
    with opened(load_pipeline(tmp_path / "p.toml")) as run:
        assert run.consume() == "finished"
        assert run.events == 300
    assert len((tmp_path / "run" / "predictions.jsonl").read_bytes().splitlines()) == 299
    assert len((tmp_path / "run" / "dead_letters.jsonl").read_bytes().splitlines()) == 1


def test_a_file_has_a_class_schedule_too(tmp_path: Path) -> None:
    lines = [b'{"x": {"a": %d}, "y": "%s"}' % (i, b"pqr"[i % 3 : i % 3 + 1]) for i in range(300)]
    lines[10] = b"{bad"
    lines[20] = b'{"x": {"a": 20}}'
    path = tmp_path / "e.jsonl"
    path.write_bytes(b"\n".join(lines))
    source = ScheduledFile(open_file(path), ClassSchedule(["r", "p"], first=1, every=100))
    rows = list(source.rows(0))
    assert [row.offset for row in rows] == list(range(300))
    assert (rows[10].value, rows[20].value) == (lines[10], lines[20])
    assert sorted(row.value or b"" for row in rows) == sorted(lines)
    labels = [json.loads(row.value or b"").get("y") for i, row in enumerate(rows) if i != 10]
    assert {y for y in labels[:97] if y} == {"r"}
    assert {y for y in labels[:190] if y} == {"r", "p"}
    assert {y for y in labels if y} == {"r", "p", "q"}
    assert [row.value for row in source.rows(150)] == [row.value for row in rows[150:]]
    assert source.describe()["schedule.order"] == ["r", "p"]
    with pytest.raises(ConfigError, match="labels the file does not have"):
        ScheduledFile(open_file(path), ClassSchedule(["z"]))


def test_rows_that_are_not_text_are_left_to_the_codec_to_refuse(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_bytes(b"a,b,y\n1,red,x\n2," + b"r" * 300 + b",x\n3,caf\xe9,x\n5\n")
    decode = fields_decoder()
    said = []
    for row in open_file(path).rows(0):
        if row.problem is not None:
            said.append(row.problem)
        elif row.record is None:
            with pytest.raises(EventError) as caught:
                decode(row.value)
            said.append(caught.value.reason)
        else:
            said.append(row.record["b"])
    short = "line 5 has 1 cell, the header has 3: correct or quote its cells"
    assert said == ["red", "r" * 300, "undecodable", short]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,\xff,y\n1,2,3\n", "the column '.udcff' is not named in UTF-8"),
        (b"a,y\n" + b"z" * 200_000 + b",x\n", "line 2 is not a row of a table: field larger"),
        (b"", "is empty: no header line"),
        (b"\n\n", "is empty: no header line"),
        (b"a\x1b[31m,b\n1,2\n", r"has no such column; it has a.x1b\[31m, b"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_at_once(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "e.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        open_file(path)


def test_ids_are_text_and_blank_lines_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_bytes(b"\xef\xbb\xbfkey,a,y\r\n007,1,p\r\n\r\n7,2,q\r\n\r\n ,3,p\r\n")
    source = open_file(path, None, FeatureRules(id="key"))
    records = [row.record or {} for row in source.rows(0)]
    assert source.total == len(records) == 3
    assert [(record["key"], record["a"]) for record in records] == [
        ("007", 1.0),
        ("7", 2.0),
        (None, 3.0),
    ]
    assert [row.record["key"] for row in source.rows(1) if row.record] == ["7", None]


def test_a_row_with_other_cells_than_the_header_is_a_dead_letter_with_its_line(
    tmp_path: Path,
) -> None:
    rows = [f"{i},{'pq'[i % 2]}" for i in range(20)]
    rows[4], rows[9] = "4", "9,p,extra"
    (tmp_path / "e.csv").write_text("a,y\n" + "\n\n".join(rows) + "\n")
    (tmp_path / "p.toml").write_text(
        f'[pipeline]\nname = "p"\n[source]\nfile = "{tmp_path / "e.csv"}"\n'
        f'[model]\nn_trees = 2\n[run]\nfolder = "{tmp_path / "run"}"\n'
    )
    with opened(load_pipeline(tmp_path / "p.toml")) as run:
        assert run.consume() == "finished"
    assert len((tmp_path / "run" / "predictions.jsonl").read_bytes().splitlines()) == 18
    letters = (tmp_path / "run" / "dead_letters.jsonl").read_text().splitlines()
    assert len(letters) == 2
    assert "line 10 has 1 cell, the header has 2" in letters[0]
    assert "line 20 has 3 cells, the header has 2" in letters[1]
    source = ScheduledFile(open_file(tmp_path / "e.csv"), ClassSchedule("random"))
    for number, row in ((4, b'["4"]'), (9, b'"extra"]')):  # and stays one where it is replayed
        found = list(source.rows(0))[number]
        assert row in (found.value or b"")
        with pytest.raises(EventError):
            decoder()(found.value)


def test_a_mark_before_the_first_line_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"x": [1]}\n{"x": [2]}\n')
    assert [row.value for row in open_file(path).rows(0)] == [
        b'{"x": [1]}',
        b'{"x": [2]}',
    ]


def test_what_is_no_parquet_file_is_told(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "e.parquet"
    for content in (b"", b"a,y\n1,2\n", b"PAR1" + b"\0" * 50 + b"PAR1"):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"file = '.*e\.parquet': not a Parquet file"):
            open_file(path)
    pandas.DataFrame({"a": range(1_000), "y": ["p"] * 1_000}).to_parquet(path)
    whole = bytearray(path.read_bytes())
    whole[4:200] = b"\xff" * 196  # the footer stands at the end
    path.write_bytes(whole)
    source = open_file(path)
    with pytest.raises(DatasetError, match=r"e\.parquet: damaged"):
        list(source.rows(0))
