"""Layouts, types, dates and texts, each by itself."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamforest.errors import EventError
from streamforest.io.codec.decoders import RecordDecoder, by_value
from streamforest.io.codec.events import Bounds, decoder, fields_decoder, has_type
from streamforest.io.features import dates, text
from streamforest.io.features.columns import Columns
from streamforest.io.features.reader import EventReader
from streamforest.io.features.rules import FeatureRules
from streamforest.io.features.sample import sample


def decode_by(rules: FeatureRules) -> RecordDecoder:
    names = (rules.label, rules.id, rules.coarse)
    return by_value(decoder(names=names) if has_type(names) else None, fields_decoder())


def records(*values: Any) -> list[Any]:
    return [
        SimpleNamespace(offset=i, key=None, headers=(), value=msgspec.json.encode(value))
        for i, value in enumerate(values)
    ]


def read(value: Any, **rules: Any) -> Any:
    """The only record of a stream as an event."""
    its = FeatureRules(**rules)
    reader = EventReader(its)
    event = reader.read(records(value)[0], decode_by(its))
    return reader.convert(event.x), event.y, event.id


def columns(**rules: Any) -> Columns:
    return Columns(FeatureRules(**rules), Bounds(), 100)


def test_seconds_after_thirty_years_survive_float32() -> None:
    first, later = dt.datetime(1996, 1, 1, 5, 30), dt.datetime(2026, 1, 1, 4, 59, 58)
    table = columns()
    rows = [
        table.convert(
            {"t": (later + dt.timedelta(seconds=s)).isoformat() if s else first.isoformat()}
        )
        for s in (0, 1, 2, 3)
    ]
    packed = {np.array(list(row.values()), np.float32).tobytes() for row in rows}
    assert len(packed) == 4
    days = [row["t.days"] for row in rows]
    assert days == sorted(days)
    assert days[0] == 0.0
    seconds = [row["t.seconds"] for row in rows[1:]]
    assert [b - a for a, b in pairwise(seconds)] == [1.0, 1.0]


@settings(deadline=None, derandomize=True)
@given(st.datetimes(), st.sampled_from([0, 60, -330]))
def test_a_time_is_the_same_as_text_and_as_an_object(when: dt.datetime, minutes: int) -> None:
    zone = dt.timezone(dt.timedelta(minutes=minutes))
    aware = when.replace(tzinfo=zone)
    assert dates.parse(aware.isoformat()) == dates.of_datetime(aware)
    assert dates.parse(str(when)) == dates.of_datetime(when)
    at = dates.of_datetime(aware)[0]
    assert all(np.isfinite(dates.numbers_of(at, 0, True)))


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=40))
def test_any_text_is_read_or_not_a_date(value: str) -> None:
    found = dates.parse(value)
    assert found is None or isinstance(found[0], int)
    table = columns(types={"c": "date", "n": "number", "b": "bool", "t": "text", "k": "category"})
    table.convert(dict.fromkeys("cnbtk", value))


@settings(deadline=None, derandomize=True)
@given(st.integers() | st.floats())
def test_any_number_is_a_time_or_none(value: float) -> None:
    found = dates.of_number(value)
    assert found is None or isinstance(found[0], int)
    table = columns(types={"c": "date"})
    for numbers in table.convert({"c": value, "n": value}).values():
        assert numbers is None or isinstance(numbers, float | int)


def test_cyclic_parts_meet_at_midnight() -> None:
    table = columns()
    before = table.convert({"t": "2026-01-04T23:59:59"})  # a Sunday
    after = table.convert({"t": "2026-01-05T00:00:01"})
    for part in ("hour_sin", "hour_cos", "weekday_sin", "weekday_cos"):
        assert before[f"t.{part}"] == pytest.approx(after[f"t.{part}"], abs=1e-3)


def test_a_date_without_a_time_of_day_has_no_hour() -> None:
    assert set(columns().convert({"d": "2026-01-04"})) == {
        f"d.{part}" for part in ("days", "weekday_sin", "weekday_cos", "year_sin", "year_cos")
    }


def test_words_have_the_same_column_everywhere() -> None:
    counts = text.counts_of("Parcel, parcel late")
    assert [i for i, n in enumerate(counts) if n] == sorted(
        {0x0 + i for i, n in enumerate(counts) if n}
    )
    assert counts[__import__("zlib").crc32(b"parcel") % text.COLUMNS] == 2.0
    assert sum(counts) == 3.0


def test_labels_and_ids_are_found_where_they_are_said_to_be() -> None:
    record = {"after": {"amount": 3, "state": "paid", "no": 7}, "op": "u"}
    x, y, identity = read(record, label="after.state", id="after.no", only=("after.*",))
    assert (x, y, identity) == ({"after.amount": 3.0}, "paid", 7)
    x, y, _ = read({"a.b": 1, "a": {"c": 2}, "y": True})
    assert (x, y) == ({"a.b": 1.0, "a.c": 2.0}, True)
    x, y, identity = read(
        {"x": {"a": 1}, "target": "t", "key": "k", "y": "no"}, label="target", id="key"
    )
    assert (x, y, identity) == ({"a": 1.0}, "t", "k")


@pytest.mark.parametrize(
    ("record", "reason", "told"),
    [
        ({"a": 1, "y": [1]}, "invalid", "the label 'y' is an array"),
        ({"a": 1, "y": "l" * 300}, "too_long", "the label"),
        ({"n" * 300: 1}, "too_long", "the name"),
        ({"a": {"n" * 300: 1}}, "too_long", "the name"),
        ({"a": 1, "y": 2**70}, "invalid", "beyond 64 bits"),
        ({"x": 3, "v": 9, "y": None}, None, ""),
        ({"x": {"a": {"b": 1}}, "v": 9}, "version", "envelope version 9"),
        ({"x": [1, "two"]}, "invalid", "Expected `float`"),
    ],
)
def test_what_is_refused(record: Any, reason: str | None, told: str) -> None:
    if reason is None:
        read(record)
        return
    with pytest.raises(EventError, match=told) as caught:
        read(record)
    assert caught.value.reason == reason


def test_the_first_record_with_features_decides_the_layout() -> None:
    reader = EventReader()
    decode = decode_by(FeatureRules())
    several = records(
        {"y": "alone"}, [1], {"x": None, "y": 1}, {"x": {"a": 1}, "y": 1}, {"a": 1, "y": 1}
    )
    refused = []
    for record in several:
        try:
            reader.read(record, decode)
        except EventError:
            refused.append(record.offset)
    with pytest.raises(
        EventError, match="an earlier record had it, which made the layout 'nested'"
    ):
        reader.read(several[-1], decode)
    assert (reader.layout, refused) == ("nested", [0, 1, 2, 4])
    flat = EventReader()
    for record in records({"a": 1, "y": 1}, {"x": {"a": 2}, "y": 1}):
        event = flat.read(record, decode)
    assert (flat.layout, flat.convert(event.x)) == ("flat", {"x.a": 2.0})


def test_columns_are_bounded() -> None:
    table = Columns(FeatureRules(), Bounds(), 3)
    out = table.convert({f"n{i}": "7" if i % 2 else i for i in range(10)})
    assert len(table) == 3
    assert out["n1"] == 7.0  # a typed column
    assert out["n9"] == "7"  # beyond the bound: as it came
    assert table.untyped == 7


def test_values_of_every_class_have_a_place() -> None:
    table = columns(types={"k": "category", "n": "number"})
    out = table.convert({"k": Decimal("3"), "n": Decimal("3.5"), "raw": b"\xff", "b": True})
    assert out == {"k": "3", "n": 3.5, "raw": "\\xff", "b": True}
    assert table.convert({"k": 3.0, "n": "1e999", "raw": None, "b": "no"}) == {
        "k": "3",
        "n": None,
        "raw": None,
        "b": False,
    }
    assert [c.misfits for c in table.describe()] == [0, 1, 0, 0]
    assert "column 'n' holds numbers; '1e999' is not one" in table.warnings[0]


def test_numbers_may_skip_the_conversion_only_where_it_changes_nothing() -> None:
    plain, with_date, choosy = columns(), columns(), columns(ignore=("b",))
    for table, x in (
        (plain, {"a": 1}),
        (with_date, {"a": 1, "t": "2026-01-01"}),
        (choosy, {"a": 1}),
    ):
        table.convert(x)
        assert not table.passes_numbers, "while the first rows are watched"
        table.finish_profile()
    assert (plain.passes_numbers, with_date.passes_numbers, choosy.passes_numbers) == (
        True,
        False,
        False,
    )
    plain.convert({"t": "2026-01-01"})
    assert not plain.passes_numbers


def test_a_dry_run_says_what_would_become_of_the_first_records() -> None:
    several = records(*({"a": i, "c": "red", "label": i % 2} for i in range(50)), [1], {"a": "odd"})
    rules = FeatureRules(label="label")
    found = sample(several, decode_by(rules), EventReader(rules))
    assert (found.records, found.labelled, found.layout) == (52, 50, "flat")
    assert [(c.name, c.type, c.misfits) for c in found.columns] == [
        ("a", "number", 1),
        ("c", "category", 0),
    ]
    assert [offset for offset, _ in found.refused] == [50]
    assert len(found.warnings) == 1
    unnamed = sample(several, decode_by(FeatureRules()), EventReader())
    assert any("has the label 'y'" in warning for warning in unnamed.warnings)


def test_a_label_that_no_record_has_is_named_with_the_field_that_may_be_meant() -> None:
    for fields, meant in (({"a": 1, "class": "x"}, "; did you mean class?"), ({"a": 1}, "")):
        rules = FeatureRules(label="clas")
        reader = EventReader(rules)
        reader.read(records(fields)[0], decode_by(rules))
        (warning,) = reader.finish()
        assert warning.endswith(f"set features.label to the one that holds the label{meant}")
