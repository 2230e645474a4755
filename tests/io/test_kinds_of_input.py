"""Kinds of input that people bring, each as a file: what its columns are taken for, how many rows are
learned, and what is said. Nothing of it is silent.

A row of `KINDS` is: the file, the settings that it needs beside `features.label`, the type of each column,
rows learned, rows refused, and a part of what is said (a warning, the message of a dead letter, or the one
line with which the file is refused). Topics are in `tests/integration/test_kinds_of_topics.py`.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from streamforest.errors import ConfigError
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened

ROWS = 120
START = dt.datetime(2026, 1, 31, 23, 0, 0)


def value(i: int) -> float:
    """A number that tells the two classes apart."""
    return (i % 2) * 4 + (i * 7 % 10) / 10


def label(i: int) -> str:
    return "cat" if i % 2 else "dog"


def csv(header: str, row: Callable[[int], str], rows: int = ROWS, encoding: str = "utf-8") -> bytes:
    lines = [header, *(row(i) for i in range(rows))]
    return ("\n".join(lines) + "\n").encode(encoding)


def lines(record: Callable[[int], Any], rows: int = ROWS) -> bytes:
    return b"".join(json.dumps(record(i)).encode() + b"\n" for i in range(rows))


def parquet(columns: Callable[[Any], dict[str, Any]]) -> Callable[[Path], None]:
    """A Parquet file with these Arrow columns."""

    def write(path: Path) -> None:
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet as files

        table = {"a": [value(i) for i in range(ROWS)], **columns(pa)}
        files.write_table(pa.table({**table, "label": [label(i) for i in range(ROWS)]}), path)

    return write


@dataclass(frozen=True)
class Kind:
    """One kind of input and what becomes of it."""

    file: str
    content: bytes | Callable[[Path], None]
    types: dict[str, str] = field(default_factory=dict)
    learned: int = ROWS
    refused: int = 0
    said: str = ""
    settings: tuple[str, ...] = ()


def dated(text: Callable[[dt.datetime], str]) -> bytes:
    """A table with a date in this form."""
    row = lambda i: f"{value(i)},{text(START + dt.timedelta(minutes=i))},{label(i)}"  # noqa: E731
    return csv("a,when,label", row)


def with_column(cell: Callable[[int], str], rows: int = ROWS) -> bytes:
    """A table with a column of these cells."""
    return csv("a,c,label", lambda i: f"{value(i)},{cell(i)},{label(i)}", rows)


NUMBERS = {"a": "number"}
WORDS = ["the", "parcel", "came", "late", "and", "was", "damaged", "again"]

KINDS = {
    # ---- separated values
    "numbers": Kind("e.csv", csv("a,label", lambda i: f"{value(i)},{label(i)}"), NUMBERS),
    "a semicolon file": Kind("e.csv", csv("a;label", lambda i: f"{value(i)};{label(i)}"), NUMBERS),
    "a decimal comma": Kind(
        "e.csv", csv("a;label", lambda i: f"{value(i):.1f};{label(i)}".replace(".", ",")), NUMBERS
    ),
    "tabs": Kind("e.tsv", csv("a\tlabel", lambda i: f"{value(i)}\t{label(i)}"), NUMBERS),
    "bars": Kind("e.csv", csv("a|label", lambda i: f"{value(i)}|{label(i)}"), NUMBERS),
    "a separator that is set": Kind(
        "e.csv",
        csv("a^label", lambda i: f"{value(i)}^{label(i)}"),
        NUMBERS,
        settings=('features.separator="^"',),
    ),
    "Windows lines and a mark": Kind(
        "e.csv",
        b"\xef\xbb\xbf" + csv("a,label", lambda i: f"{value(i)},{label(i)}\r"),
        NUMBERS,
    ),
    "UTF-16 as Excel writes it": Kind(
        "e.csv", csv("a\tlabel", lambda i: f"{value(i)}\t{label(i)}", encoding="utf-16"), NUMBERS
    ),
    "cp1252 that is set": Kind(
        "e.csv",
        csv("a,ville,label", lambda i: f"{value(i)},Orléans,{label(i)}", encoding="cp1252"),
        {"a": "number", "ville": "category"},
        settings=('features.encoding="cp1252"',),
    ),
    "cp1252 that is not set": Kind(
        "e.csv",
        csv("a,c,label", lambda i: f"{value(i)},{'é' * (i == 7)},{label(i)}", encoding="cp1252"),
        NUMBERS,
        ROWS - 1,
        1,
        "invalid event: 'utf-8' codec can't decode",
    ),
    "gaps": Kind("e.csv", with_column(lambda i: "" if i % 3 else "1.5"), NUMBERS | {"c": "number"}),
    "NA for a gap": Kind(
        "e.csv", with_column(lambda i: "NA" if i % 3 else "1.5"), NUMBERS | {"c": "number"}
    ),
    "a question mark for a gap": Kind(
        "e.csv", with_column(lambda i: "?" if i < 50 else "7"), NUMBERS | {"c": "number"}
    ),
    "an odd cell among numbers": Kind(
        "e.csv",
        with_column(lambda i: "broken" if i == 60 else "1.5"),
        NUMBERS | {"c": "number 1"},
        said="column 'c' holds numbers; 'broken' is not one, and counts as missing",
    ),
    "codes with leading zeros": Kind(
        "e.csv", with_column(lambda i: f"00{i % 3}"), NUMBERS | {"c": "category"}
    ),
    "numbers that are categories": Kind(
        "e.csv",
        with_column(lambda i: str(i % 3)),
        NUMBERS | {"c": "category"},
        settings=('features.types={c="category"}',),
    ),
    "true and false": Kind(
        "e.csv", with_column(lambda i: str(i % 3 == 0)), NUMBERS | {"c": "bool"}
    ),
    "yes and no that are set": Kind(
        "e.csv",
        with_column(lambda i: "yes" if i % 3 else "no"),
        NUMBERS | {"c": "bool"},
        settings=('features.types={c="bool"}',),
    ),
    "quoted commas": Kind(
        "e.csv", with_column(lambda i: f'"red, {i % 3}"'), NUMBERS | {"c": "category"}
    ),
    "sentences": Kind(
        "e.csv",
        with_column(lambda i: " ".join(WORDS[i % 4 : i % 4 + 4])),
        NUMBERS | {"c": "text"},
    ),
    "a text longer than a category may be": Kind(
        "e.csv", with_column(lambda i: " ".join(WORDS * 20)), NUMBERS | {"c": "text"}
    ),
    "a long value without words": Kind(
        "e.csv",
        with_column(lambda i: "x" * (300 if i % 10 else 3)),
        NUMBERS | {"c": "category 108"},
        said="is longer than a category may be, and counts as missing",
    ),
    "a date": Kind("e.csv", dated(lambda t: t.date().isoformat()), NUMBERS | {"when": "date"}),
    "a time as ISO says": Kind("e.csv", dated(dt.datetime.isoformat), NUMBERS | {"when": "date"}),
    "a time with a zone": Kind(
        "e.csv", dated(lambda t: f"{t.isoformat()}+02:00"), NUMBERS | {"when": "date"}
    ),
    "a time as pandas writes it": Kind("e.csv", dated(str), NUMBERS | {"when": "date"}),
    "a German date": Kind(
        "e.csv", dated(lambda t: t.strftime("%d.%m.%Y %H:%M")), NUMBERS | {"when": "date"}
    ),
    "an American date": Kind(
        "e.csv", dated(lambda t: t.strftime("%m/%d/%Y")), NUMBERS | {"when": "category"}
    ),
    "seconds since 1970, set": Kind(
        "e.csv",
        dated(lambda t: str(int(t.timestamp()))),
        NUMBERS | {"when": "date"},
        settings=('features.types={when="date"}',),
    ),
    "an index without a name": Kind(
        "e.csv",
        csv(",a,label", lambda i: f"{i},{value(i)},{label(i)}", 1_100),
        {"column 1": "number", "a": "number"},
        1_100,
        said="'column 1' counts the rows",
    ),
    "a constant": Kind(
        "e.csv",
        with_column(lambda i: "7", 1_100),
        NUMBERS | {"c": "number"},
        1_100,
        said="'c' has the same value in every row",
    ),
    "an id that is no id": Kind(
        "e.csv",
        with_column(lambda i: f"c-{i * 7919 % 10007}", 990) + b"1,again,dog\n" * 20,
        NUMBERS | {"c": "category"},
        1_010,
        said="'c' is different in nearly every row, as an id is",
    ),
    "an id": Kind("e.csv", csv("id,a,label", lambda i: f"k{i},{value(i)},{label(i)}"), NUMBERS),
    "columns that are left out": Kind(
        "e.csv",
        csv("a,d.b,d.c,label", lambda i: f"{value(i)},{i},{i},{label(i)}"),
        {"a": "number", "d.b": "ignored", "d.c": "ignored"},
        settings=('features.ignore=["d.*"]',),
    ),
    "rows without a label": Kind(
        "e.csv", csv("a,label", lambda i: f"{value(i)},{label(i) if i % 4 else ''}"), NUMBERS, 90
    ),
    "a short row": Kind(
        "e.csv",
        csv("a,label", lambda i: f"{value(i)},{label(i)}" if i != 9 else "1"),
        NUMBERS,
        ROWS - 1,
        1,
        "line 11 has 1 cell, the header has 2",
    ),
    "no such label": Kind("e.csv", b"a,b\n1,2\n", said="has no such column; it has a, b"),
    "a header and nothing else": Kind("e.csv", b"a,label\n", said="has a header and no rows"),
    "an empty file": Kind("e.csv", b"", said="is empty: no header line"),
    "two columns of one name": Kind(
        "e.csv", b"a,a,label\n1,2,x\n", said="more than one column is called a"
    ),
    "another kind of file": Kind("e.xlsx", b"PK", said="expected a name that ends in .jsonl"),
    # ---- JSON lines
    "flat records": Kind(
        "e.jsonl",
        lines(lambda i: {"a": value(i), "colour": "red", "paid": True, "label": label(i)}),
        {"a": "number", "colour": "category", "paid": "bool"},
    ),
    "flat records with whole numbers": Kind(
        "e.jsonl", lines(lambda i: {"a": round(value(i)), "label": i % 2}), NUMBERS
    ),
    "numbers in quotes": Kind(
        "e.jsonl", lines(lambda i: {"a": f"{value(i)}", "label": label(i)}), NUMBERS
    ),
    "a new field later": Kind(
        "e.jsonl",
        lines(lambda i: {"a": value(i), **({"b": 1} if i > 50 else {}), "label": label(i)}),
        {"a": "number", "b": "number"},
    ),
    "objects in records": Kind(
        "e.jsonl",
        lines(lambda i: {"a": value(i), "shop": {"city": "Rome", "id": 3}, "label": label(i)}),
        {"a": "number", "shop.city": "category", "shop.id": "number"},
    ),
    "a change as Debezium sends it": Kind(
        "e.jsonl",
        lines(
            lambda i: {
                "op": "u",
                "ts_ms": 1_767_225_618_000 + i,
                "after": {"a": value(i), "s": label(i)},
            }
        ),
        {"op": "category", "ts_ms": "date", "after.a": "number"},
        settings=("features.label=after.s",),
    ),
    "arrays of numbers": Kind(
        "e.jsonl",
        lines(lambda i: {"v": [value(i), 1], "label": label(i)}),
        {"v.0": "number", "v.1": "number"},
    ),
    "arrays of words": Kind(
        "e.jsonl",
        lines(lambda i: {"a": value(i), "tags": ["new", "blue"], "label": label(i)}),
        {"a": "number", "tags": "text"},
    ),
    "pandas' milliseconds": Kind(
        "e.jsonl",
        lines(lambda i: {"a": value(i), "day": 1_767_225_618_000 + i * 60_000, "label": label(i)}),
        {"a": "number", "day": "date"},
    ),
    "events with x": Kind(
        "e.jsonl", lines(lambda i: {"x": {"a": value(i)}, "label": label(i), "id": i}), NUMBERS
    ),
    "events with objects in x": Kind(
        "e.jsonl",
        lines(lambda i: {"x": {"a": value(i), "b": {"c": 1}}, "label": label(i)}),
        {"a": "number", "b.c": "number"},
    ),
    "vectors": Kind("e.jsonl", lines(lambda i: {"x": [value(i), 1.5], "label": label(i)}), {}),
    "a text in a column of numbers": Kind(
        "e.jsonl",
        lines(
            lambda i: {
                "x": {"a": value(i), "b": "n/a" if i == 5 else "odd" if i == 6 else 1},
                "label": label(i),
            }
        ),
        {"a": "number", "b": "number 1"},
        said="column 'b' holds numbers; 'odd' is not one",
    ),
    "a label under another name": Kind(
        "e.jsonl",
        lines(lambda i: {"a": value(i), "target": label(i)}),
        {"a": "number", "target": "category"},
        0,
        said="none of the first 100 records has the label 'label' (features.label), so nothing is "
        "learned; their fields are 'a', 'target'",
    ),
    "the same in a short file": Kind(
        "e.jsonl",
        lines(lambda i: {"x": {"a": value(i)}, "target": label(i)}, 20),
        NUMBERS,
        0,
        said="none of the first 20 records has the label 'label'",
    ),
    "lines that are no objects": Kind(
        "e.jsonl",
        b'[1, 2]\n"text"\n\n{cut\n' + lines(lambda i: {"a": value(i), "label": label(i)}),
        NUMBERS,
        ROWS,
        4,
        "invalid event: Expected `object`, got `array`",
    ),
    "a record without features": Kind(
        "e.jsonl",
        lines(lambda i: {"a": value(i), "label": label(i)}) + b'{"label": "cat"}\n',
        NUMBERS,
        ROWS,
        1,
        "the record has no features",
    ),
    "a label that is an object": Kind(
        "e.jsonl",
        lines(lambda i: {"a": value(i), "label": label(i) if i != 3 else {"a": 1}}),
        NUMBERS,
        ROWS - 1,
        1,
        "the label 'label' is an object, not a value",
    ),
    # ---- Parquet
    "a time stamp": Kind(
        "e.parquet",
        parquet(lambda pa: {"t": pa.array([START] * ROWS, pa.timestamp("ms", "UTC"))}),
        {"a": "number", "t": "date"},
    ),
    "a day": Kind(
        "e.parquet",
        parquet(lambda pa: {"t": pa.array([START.date()] * ROWS, pa.date32())}),
        {"a": "number", "t": "date"},
    ),
    "decimals": Kind(
        "e.parquet",
        parquet(lambda pa: {"p": pa.array([Decimal("3.50")] * ROWS, pa.decimal128(9, 2))}),
        {"a": "number", "p": "number"},
    ),
    "booleans and nulls": Kind(
        "e.parquet",
        parquet(lambda pa: {"b": pa.array([None, True, False] * (ROWS // 3))}),
        {"a": "number", "b": "bool"},
    ),
    "a dictionary of words": Kind(
        "e.parquet",
        parquet(lambda pa: {"c": pa.array(["red", "blue"] * (ROWS // 2)).dictionary_encode()}),
        {"a": "number", "c": "category"},
    ),
    "NaN": Kind(
        "e.parquet",
        parquet(lambda pa: {"n": pa.array([float("nan"), 1.0] * (ROWS // 2))}),
        {"a": "number", "n": "number"},
    ),
    "structures": Kind(
        "e.parquet",
        parquet(lambda pa: {"s": pa.array([{"u": 1, "v": "x"}] * ROWS)}),
        {"a": "number", "s.u": "number", "s.v": "category"},
    ),
    "a column of vectors": Kind(
        "e.parquet",
        parquet(lambda pa: {"x": pa.array([[1.0, float(i % 2)] for i in range(ROWS)])}),
        {},
    ),
    "durations": Kind(
        "e.parquet",
        parquet(lambda pa: {"d": pa.array([dt.timedelta(seconds=5)] * ROWS)}),
        {"a": "number", "d": "number"},
    ),
    "bytes": Kind(
        "e.parquet",
        parquet(lambda pa: {"b": pa.array([b"ab"] * ROWS)}),
        {"a": "number", "b": "category"},
    ),
}


def run(folder: Path, kind: Kind, *settings: str) -> tuple[Any, list[str]]:
    """The state at the end, and the messages of the dead letters."""
    path = folder / kind.file
    if callable(kind.content):
        kind.content(path)
    else:
        path.write_bytes(kind.content)
    pipeline = folder / "p.toml"
    pipeline.write_text(
        f'[pipeline]\nname = "p"\n[source]\nfile = "{path}"\n[features]\nlabel = "label"\n'
        f'[model]\nkind = "online"\nn_trees = 1\n[run]\nfolder = "{folder / "run"}"\n'
    )
    with opened(load_pipeline(pipeline, {}, [*kind.settings, *settings])) as current:
        assert current.consume() == "finished"
        state = current.state
    letters = (folder / "run" / "dead_letters.jsonl").read_text().splitlines()
    return state, [json.loads(one)["headers"]["__streams.errors.message"] for one in letters]


@pytest.mark.parametrize("name", KINDS)
def test_what_becomes_of_it(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kind = KINDS[name]
    if kind.said and not kind.types:
        with pytest.raises(ConfigError) as refused:
            run(tmp_path, kind)
        assert kind.said in str(refused.value)
        assert "\n" not in str(refused.value)
        return
    with caplog.at_level(logging.WARNING):
        state, letters = run(tmp_path, kind)
    columns = state.reader.describe()
    taken = {c.name: f"{c.type} {c.misfits}" if c.misfits else c.type for c in columns}
    assert taken == kind.types
    assert state.models["main"].n_learned == kind.learned
    assert len(letters) == kind.refused
    warnings = [record.getMessage() for record in caplog.records]
    assert any(kind.said in text for text in [*warnings, *letters]) or not kind.said
    assert bool(kind.said) or not warnings, "nothing is said without a reason"
    assert all(column.example for column in columns if column.misfits)


def test_there_are_enough_of_them() -> None:
    assert len(KINDS) >= 40
